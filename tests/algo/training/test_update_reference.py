"""A whole update against plain PyTorch: loss and gradients of one step.

The engine's optimizer is plain SGD here, so that the weights before and after one step give the gradient back:
before - after = learning rate * gradient.

Tolerances: both sides compute in float32, whose relative rounding error is 6e-8 an operation. Sums over some hundred
tokens in another order (padded rows, micro-batches, ranks) and the backward pass through two layers make of it about
1e-6 of the largest entry. A shift of any row by one token, to either side, changes more than 1e-2 of it.
"""

import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from verl.workers.config import FSDPOptimizerConfig

from algo.advantages.estimators import TokenAdvantages, token_advantages
from algo.loop.policy_update import LearnerShare, update_policy
from algo.sequences.batch import build_batch
from algo.sequences.selection import Selection
from algo.training.engine import Engine
from configs.sections.training import AdvantageConfig, RolloutCorrectionConfig
from configs.werewolf import WerewolfConfig
from tests.support.algo import reference_update
from tests.support.algo.trajectories import made_trajectory
from tests.support.small_models import TEMPERATURE, load_model, make_model, rows_of

AGREES = 2e-5
LEARNING_RATE = (
    1024.0  # a power of two, so that dividing by it is exact; large, so that w - lr * g keeps the digits of g
)

ENGINES = {
    "one_rank": dict(ranks=1, loss_agg_mode="seq-mean-token-mean", entropy_coeff=0.0, kl_coef=0.2),
    "two_ranks": dict(ranks=2, loss_agg_mode="token-mean", entropy_coeff=0.05, kl_coef=0.2),
}


@dataclass
class Started:
    """An engine, its model before any step, and what the reference needs to know of its configuration."""

    engine: Engine
    config: WerewolfConfig
    settings: reference_update.Settings
    folder: Path

    def before(self):
        return load_model(self.folder / "model")

    def step(self, train):
        """The metrics of one update, and the gradient that it made, by parameter."""
        self.engine.load(self.folder / "start")
        metrics = train(self.engine)
        self.engine.export(self.folder / "after")
        old, new = dict(self.before().named_parameters()), dict(load_model(self.folder / "after").named_parameters())
        return metrics, {name: (old[name] - new[name]).detach() / LEARNING_RATE for name in old}

    def reference_log_probs(self, trajectories):
        """Of the reference policy, by plain PyTorch."""
        return rows_of(load_model(self.folder / "reference"), trajectories)


@pytest.fixture(scope="module")
def started(request, ray_cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    make_model(folder / "model", tied=False)
    older_weights(load_model(make_model(folder / "reference", tied=False)), noise=0.04).save_pretrained(
        folder / "reference"
    )
    training = dict(ENGINES[request.param])
    kl_coef = training.pop("kl_coef")
    config = WerewolfConfig.model_validate(
        {
            "model": {"path": folder / "model"},
            "rollout": {"temperature": TEMPERATURE},
            "training": training | {"mini_batch_size": 16, "micro_batch_size": 2, "grad_clip": 1e9},
            "reference": {"kl": "loss", "coef": kl_coef, "path": folder / "reference"},
        }
    )
    sgd = FSDPOptimizerConfig(
        optimizer="SGD", optimizer_impl="torch.optim", lr=LEARNING_RATE, weight_decay=0.0, clip_grad=1e9
    )
    settings = reference_update.Settings(
        TEMPERATURE, training["loss_agg_mode"], entropy_coeff=training["entropy_coeff"], kl_coef=kl_coef
    )
    with closing(Engine(config, optimizer=sgd)) as engine:
        engine.save(folder / "start", step=0)
        yield Started(engine, config, settings, folder)


def played_games(seed, games=2, segments=2, sides=("wolf", "good")):
    """Sequences of one deal: a seat of each side in each game; the first one's has several segments."""
    chance = random.Random(seed)
    trajectories = []
    for game in range(games):
        for seat, side in enumerate(sides):
            reward = (1.0 if (game + seat) % 2 else -1.0) + 0.3 * chance.random()
            for segment in range(segments if (game, seat) == (0, 0) else 1):
                mask, turns = [], chance.randint(1, 4)
                for _ in range(turns):
                    mask += [0] * chance.randint(2, 9) + [1] * chance.randint(1, 5)
                mask += [0] * 2
                trajectories.append(
                    made_trajectory(
                        mask, task_id=f"game-{game}", actor=f"seat {seat:02d}", role="wolf", side=side, segment=segment,
                        token_ids=tuple(chance.randrange(2, 64) for _ in mask), logprobs=(0.0,) * len(mask),
                        reward=reward, turn_rewards=tuple(chance.uniform(-0.5, 0) for _ in range(turns)),
                    )
                )  # fmt: skip
    return trajectories


def older_weights(model, noise=0.08):
    """Log-probs under these differ from the model's by some tenths."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    return model


def sampled_by(model, trajectories):
    """The trajectories with the model's log-probs at their sampled tokens."""
    return [
        replace(one, logprobs=tuple((row * torch.tensor(one.loss_mask)).tolist()))
        for one, row in zip(trajectories, rows_of(model, trajectories), strict=True)
    ]


def difference(found, expected):
    """Largest difference of two gradients, as a share of the largest entry."""
    assert found.keys() == expected.keys()
    largest = max(each.abs().max().item() for each in expected.values())
    assert largest > 1e-3
    return max((found[name] - expected[name]).abs().max().item() for name in expected) / largest


CASES = {
    "as sampled": dict(),
    "clipped": dict(older=True),
    "a reward for each turn": dict(older=True, credit="turn"),
    "weighed by importance": dict(credit="turn", weighed=True),
    "nine sequences, four of one seat": dict(older=True, credit="turn", games=3, segments=4),
    "three sequences": dict(older=True, games=2, sides=("wolf",)),
}
both_engines = pytest.mark.parametrize("started", ENGINES, indirect=True)


@dataclass
class Rows:
    """What goes into the update beside the trajectories: by row and token."""

    advantages: list[torch.Tensor]
    old_log_probs: list[torch.Tensor]
    reference_log_probs: list[torch.Tensor]
    importance_weights: list[torch.Tensor] | None


def prepare(started, *, older=False, credit="game", weighed=False, **shape):
    """The trajectories of a case and our rows of them; older: ratios are those to the weights that sampled."""
    present, past = started.before(), older_weights(started.before())
    trajectories = sampled_by(past, played_games(6, **shape))
    now, then = rows_of(present, trajectories), rows_of(past, trajectories)
    weights = [(new - was).exp().clamp(max=1.1) for new, was in zip(now, then, strict=True)] if weighed else None
    advantages = token_advantages(trajectories, AdvantageConfig(credit=credit)).per_token
    return trajectories, Rows(advantages, then if older else now, started.reference_log_probs(trajectories), weights)


def train_on(trajectories, rows):
    batch = build_batch(trajectories, temperature=TEMPERATURE, **vars(rows))
    return lambda engine: engine.update(batch)


@both_engines
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_plain_pytorch(started, case):
    trajectories, rows = prepare(started, **CASES[case])
    metrics, found = started.step(train_on(trajectories, rows))
    # The reference computes advantages of its own.
    expected = replace(rows, advantages=reference_update.advantages(trajectories, CASES[case].get("credit") == "turn"))
    loss, gradients = reference_update.gradients(started.before(), started.settings, trajectories, **vars(expected))
    assert difference(found, gradients) < AGREES
    ours = metrics["actor/pg_loss"] - started.settings.entropy_coeff * metrics.get("actor/entropy_loss", 0.0)
    ours += started.settings.kl_coef * metrics["actor/kl_loss"]
    assert ours == pytest.approx(loss, abs=AGREES)
    norm = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm().item()
    assert metrics["actor/grad_norm"] == pytest.approx(norm, rel=AGREES)
    # Each case is what it is called: both kinds of clipping bite, or neither does.
    for name in ("actor/pg_clipfrac", "actor/pg_clipfrac_lower"):
        assert (metrics[name] > 0) == CASES[case].get("older", False)


@pytest.mark.parametrize("started", ["one_rank"], indirect=True)
def test_a_step_of_the_loop_weighs_by_turn_and_by_importance(started):
    """``algo.loop.policy_update.update_policy`` on what older weights sampled, every turn alike however long it is."""
    trajectories, rows = prepare(started, credit="turn", games=3, segments=4)
    correction = RolloutCorrectionConfig(rollout_is="token", rollout_is_threshold=1.1)
    config = started.config.model_copy(
        update={
            "advantage": AdvantageConfig(credit="turn", weigh="turn"),
            "training": started.config.training.model_copy(update={"rollout_correction": correction}),
        }
    )
    advantages = TokenAdvantages(rows.advantages, (True,) * len(trajectories), None, {})
    selected = Selection(tuple(range(len(trajectories))), Counter())
    share = LearnerShare("policy", tuple(trajectories), None, advantages, selected)
    done, found = started.step(lambda engine: update_policy(config, engine, share, policy_version=2))
    assert done.metrics["policy_lag/mean"] == 2 and done.trained == tuple(trajectories)

    model, then = started.before(), [torch.tensor(one.logprobs) for one in trajectories]
    weights = [(new - was).exp().clamp(max=1.1) for new, was in zip(rows.old_log_probs, then, strict=True)]
    mine = replace(rows, advantages=reference_update.advantages(trajectories, by_turn=True), importance_weights=weights)
    # The policy's loss is a mean of turns; the KL is what it is without weights, a mean of sequences.
    without_kl, turns, numbers = replace(started.settings, kl_coef=0.0), [], []
    for number, one in enumerate(trajectories):
        for start, end in one.turn_spans():
            alone = [mask if start <= place < end else 0 for place, mask in enumerate(one.loss_mask)]
            turns.append(SimpleNamespace(token_ids=one.token_ids, loss_mask=alone))
            numbers.append(number)
    of_turns = {name: given and [given[number] for number in numbers] for name, given in vars(mine).items()}
    loss, by_turn = reference_update.gradients(model, without_kl, turns, **of_turns)
    nothing = replace(mine, advantages=[torch.zeros(len(row)) for row in mine.advantages])
    _, of_kl = reference_update.gradients(model, started.settings, trajectories, **vars(nothing))
    gradients = {name: by_turn[name] + of_kl[name] for name in of_kl}
    assert difference(found, gradients) < AGREES
    assert done.metrics["actor/pg_loss"] == pytest.approx(loss, abs=AGREES)
