"""One step of the update in plain PyTorch, sequence by sequence: the reference of the engine.

Without verl, batches and ranks: trajectories, a transformers model and formulas.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Settings:
    temperature: float
    loss_agg_mode: str
    clip_low: float = 0.2
    clip_high: float = 0.3
    dual_clip: float = 3.0
    entropy_coeff: float = 0.0
    kl_coef: float = 0.0


def advantages(trajectories, by_turn):
    """GRPO per deal and side, each seat of each game once; by_turn: turn rewards count for their own turn alone."""
    seats = defaultdict(list)
    for number, one in enumerate(trajectories):
        seats[one.group_id, one.side, one.task_id, one.actor].append(number)
    groups = defaultdict(list)
    for key, numbers in seats.items():
        turns = [reward for number in numbers for reward in trajectories[number].turn_rewards] if by_turn else []
        groups[key[:2]].append((numbers, trajectories[numbers[0]].reward - sum(turns), turns))
    rows = [torch.zeros(len(one.token_ids)) for one in trajectories]
    for members in groups.values():
        outcomes = torch.tensor([outcome for _, outcome, _ in members])
        all_turns = [reward for _, _, turns in members for reward in turns]
        for numbers, outcome, _ in members:
            for number in numbers:
                one, start = trajectories[number], 0
                for turn, end in enumerate(one.turn_ends):
                    extra = one.turn_rewards[turn] - sum(all_turns) / len(all_turns) if by_turn else 0.0
                    value = (outcome - outcomes.mean() + extra) / (outcomes.std() + 1e-6)
                    rows[number][start:end] = value * torch.tensor(one.loss_mask[start:end])
                    start = end
    return rows


def loss(model, settings, trajectories, advantages, old_log_probs, reference_log_probs=None, importance_weights=None):
    """PPO with clipping on both sides and dual clipping, plus entropy and KL (k3) terms. All rows align with tokens."""
    losses, masks = [], []
    for row, one in enumerate(trajectories):
        ids, mask = torch.tensor(one.token_ids), torch.tensor(one.loss_mask, dtype=torch.float32)
        logits = model(input_ids=ids[None]).logits[0] / settings.temperature
        log_p = torch.log_softmax(logits, dim=-1)
        # The logits at position i speak of token i + 1.
        log_prob, entropy = torch.zeros(len(ids)), torch.zeros(len(ids))
        log_prob[1:] = log_p[:-1].gather(-1, ids[1:, None])[:, 0]
        entropy[1:] = -(log_p.exp() * log_p).sum(-1)[:-1]
        ratio, advantage = torch.exp(log_prob - old_log_probs[row]), advantages[row]
        clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        token_loss = torch.maximum(-advantage * ratio, -advantage * clipped)
        token_loss = torch.where(advantage < 0, torch.minimum(token_loss, -advantage * settings.dual_clip), token_loss)
        if importance_weights is not None:
            token_loss = token_loss * importance_weights[row]
        token_loss = token_loss - settings.entropy_coeff * entropy
        if reference_log_probs is not None:
            log_ratio = reference_log_probs[row] - log_prob
            token_loss = token_loss + settings.kl_coef * (torch.exp(log_ratio) - log_ratio - 1)
        losses.append(torch.where(mask > 0, token_loss, 0.0))
        masks.append(mask)
    if settings.loss_agg_mode == "token-mean":
        return torch.cat(losses).sum() / torch.cat(masks).sum()
    assert settings.loss_agg_mode == "seq-mean-token-mean"
    return torch.stack([each.sum() / mask.sum() for each, mask in zip(losses, masks, strict=True)]).mean()


def gradients(model, *arguments, **keywords):
    """``loss`` and the gradient of every parameter, by name."""
    model.zero_grad()
    found = loss(model, *arguments, **keywords)
    found.backward()
    return found.item(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
