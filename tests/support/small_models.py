"""Small random models on disk and sequences for them: for tests that compare an engine with plain PyTorch."""

import random

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.support.algo.trajectories import made_trajectory
from tests.support.recording_proxy import FLOAT32_TOLERANCE

TEMPERATURE = 0.7


def make_model(directory, tied, seed=0):
    words = {f"w{number}": number for number in range(64)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), eos_token="w1", pad_token="w0"
    )
    tokenizer.save_pretrained(directory)
    torch.manual_seed(seed)
    shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=16)
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=64, num_key_value_heads=1, tie_word_embeddings=tied, eos_token_id=1, **shape)
    )
    # Larger than the usual initialisation, so that probabilities differ much from token to token.
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(directory)
    return directory


def random_adapters(folder, model, seed, rank):
    """LoRA adapters of every linear layer that change a model's outputs a lot."""
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    layers = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(base, layers)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    adapted.save_pretrained(folder)
    return folder


def make_trajectories(count, seed=0):
    """Uneven sequences of turns: a few given tokens, then a few sampled ones; some end in given tokens."""
    rng = random.Random(seed)
    trajectories = []
    for number in range(count):
        mask = []
        for _ in range(rng.randint(1, 4)):
            mask += [0] * rng.randint(1, 9) + [1] * rng.randint(1, 5)
        mask += [0] * (number % 3)
        token_ids = tuple(rng.randrange(2, 64) for _ in mask)
        logprobs = tuple(-rng.random() if sampled else 0.0 for sampled in mask)
        trajectories.append(made_trajectory(mask, task_id=f"game-{number}", token_ids=token_ids, logprobs=logprobs))
    return trajectories


def plain_log_probs(model, trajectory, temperature=TEMPERATURE):
    return token_log_probs(model, trajectory.token_ids, temperature)


def rows_of(model, trajectories):
    """Log-probs of each, by plain forward passes."""
    with torch.no_grad():
        return [plain_log_probs(model, trajectory) for trajectory in trajectories]


def token_log_probs(model, token_ids, temperature=1.0):
    """Of every token, by a plain forward pass; 0.0 for the first."""
    ids = torch.tensor([token_ids])
    logits = model(input_ids=ids).logits[0] / temperature
    following = torch.log_softmax(logits[:-1], dim=-1).gather(-1, ids[0, 1:, None])[:, 0]
    return torch.cat([torch.zeros(1), following])


def load_model(directory, adapters=None):
    """A folder's model, with the LoRA adapters of another folder if one is named."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model if adapters is None else PeftModel.from_pretrained(model, adapters)


def calls_that_go_on(conversation, model):
    """Number of calls of a conversation that extend another call.

    AssertionError unless all calls are one sequence with the log-probs that a plain forward pass over it gives.
    """
    ids, logprobs = [], []
    for call in conversation:
        assert (call.segment, call.context_tokens) == (0, len(ids))
        ids += [*call.prompt_ids, *call.response_ids]
        logprobs += [*[None] * len(call.prompt_ids), *call.logprobs]
    with torch.no_grad():
        plain = token_log_probs(model, ids).tolist()
    for stored, ours in zip(logprobs, plain, strict=True):
        assert stored is None or abs(stored - ours) < FLOAT32_TOLERANCE
    return sum(call.turn > 0 for call in conversation)


def largest_difference(ours, theirs):
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def with_value_head(directory):
    """Turn a language model's folder into a value model; values differ much between tokens."""
    model = AutoModelForTokenClassification.from_pretrained(directory, dtype=torch.float32, num_labels=1)
    torch.nn.init.normal_(model.score.weight, std=0.3)
    model.save_pretrained(directory)
    return directory
