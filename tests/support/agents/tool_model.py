"""A tiny Qwen3 that calls tools: trained on a handful of replies, in seconds.

Like real chat templates, its template makes re-rendered conversations differ from the sampled tokens: it drops earlier
thoughts, merges consecutive tool results into one turn, and reformats the arguments of calls.
"""

import random
from pathlib import Path

TEMPLATE = Path(__file__).with_name("tool_model.jinja").read_text()

TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Calculates an expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}

_ARGUMENTS = ('{"expression": "1+2"}', '{"expression":"3*4"}', '{ "expression": "5 - 1" }')
_CALLS = tuple(f'<tool_call>\n{{"name": "calculate", "arguments": {text}}}\n</tool_call>' for text in _ARGUMENTS)
REPLIES = (
    *_CALLS,
    *(f"Let me see.\n\n{call}" for call in _CALLS),
    f"{_CALLS[0]}\n{_CALLS[1]}",
    f"{_CALLS[2]}\n\n{_CALLS[0]}",
    " The answer is\n### 3 ",
    "### 12\n\n",
    "I do not know.",
)
_THOUGHTS = ("", "I need the calculator.", "Nearly done.\n")


def build_tool_model(directory: Path, steps: int = 120, seed: int = 0) -> Path:
    """Write the model's folder."""
    import torch
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    split = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    text = [*REPLIES, *_THOUGHTS, TEMPLATE, "system user assistant"] * 20
    raw.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=600,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=special,
            show_progress=False,
        ),
    )
    tags = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
    raw.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    chance = random.Random(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        for _ in range(steps):
            rows = [_row(tokenizer, chance) for _ in range(16)]
            width = max(len(head) + len(reply) for head, reply in rows)
            ids = torch.full((len(rows), width), tokenizer.pad_token_id)
            labels = torch.full((len(rows), width), -100)
            for number, (head, reply) in enumerate(rows):
                ids[number, : len(head) + len(reply)] = torch.tensor(head + reply)
                labels[number, len(head) : len(head) + len(reply)] = torch.tensor(reply)
            loss = model(input_ids=ids, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _row(tokenizer, chance: random.Random) -> tuple[list[int], list[int]]:
    """Token ids of the end of some prompt, and of a reply to it."""
    before = [chance.randrange(len(tokenizer)) for _ in range(chance.randint(0, 40))]
    thinks = chance.random() < 0.5
    head = "<|im_end|>\n<|im_start|>assistant\n" + ("" if thinks else "<think>\n\n</think>\n\n")
    thought = f"<think>\n{chance.choice(_THOUGHTS)}\n</think>\n\n" if thinks else ""
    reply = f"{thought}{chance.choice(REPLIES)}<|im_end|>"
    encode = tokenizer.encode
    return before + encode(head, add_special_tokens=False), encode(reply, add_special_tokens=False)
