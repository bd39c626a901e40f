"""``python -m algo.tiny_agent DIR``: build a tiny Qwen3 that calls tools, by imitation of conversations.

With it agents are trained on a CPU without a download. ``--lessons lessons.jsonl`` trains the tokenizer and the weights
on the lessons: one JSON object per line with ``messages`` and ``tools``, in the format of OpenAI's fine-tuning (an
assistant's message with ``"weight": 0`` is not imitated). With ``--lessons my.module`` a module writes them first:
``python -m my.module --lessons FILE``. A few minutes on two cores.

Tool calls have Hermes' format (``serving.tool_parser: hermes``). The lessons determine the model's quality: those of
the examples are often wrong on purpose, since a perfect model cannot learn from rewards.
"""

import hashlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algo.machine.built_folder import build_folder, folder_parser
from algo.tiny_model import MARKER_FILE, new_model, save_model, train_tokenizer
from store.program import run_program

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

DEFAULT_STEPS = 300

_LARGEST_VOCABULARY = 1024
_LESSONS_A_STEP = 8
_LEARNING_RATE = 4e-3
_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# Prefix-stable: sampled replies are rendered unchanged, so that lessons look like the gateway's conversations.
_CHAT_TEMPLATE = """
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content + '\\n' -}}{%- endif -%}
{%- for tool in tools -%}{{- (tool.function | tojson) + '\\n' -}}{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' + (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{%- if message.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif message.role == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' -}}
{%- elif not (tools and loop.first and message.role == 'system') -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""".strip()


@dataclass(frozen=True)
class Lesson:
    """A conversation to imitate. messages, tools: as in OpenAI's chat completions."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()


def read_lessons(path: Path) -> list[Lesson]:
    """The lessons of a file. Raises ValueError, naming an invalid line, and OSError."""
    lessons = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):  # U+2028 is legal in JSON
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            lesson = Lesson(tuple(map(_readable, found["messages"])), tuple(found.get("tools") or ()))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: invalid conversation: {type(error).__name__} {error}") from error
        if not any(message["role"] == "assistant" and message.get("weight", 1) for message in lesson.messages):
            raise ValueError(f"{path}, line {number}: no assistant message to imitate")
        lessons.append(lesson)
    if not lessons:
        raise ValueError(f"{path} has no lessons")
    return lessons


def build_tiny_agent(
    directory: Path | str,
    lessons: Sequence[Lesson],
    seed: int = 0,
    steps: int = DEFAULT_STEPS,
    *,
    force: bool = False,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> Path:
    """Build the model folder at ``directory``; see ``build_folder``.

    steps: of imitation, eight lessons each. on_step: called with each step's number and loss in nats per token.
    """
    encoded = json.dumps([[lesson.messages, lesson.tools] for lesson in lessons])
    recipe = {
        "built_by": "algo.tiny_agent",
        "format": 1,
        "seed": seed,
        "steps": steps,
        "lessons": hashlib.blake2b(encoded.encode(), digest_size=8).hexdigest(),
    }

    def write(built: Path) -> None:
        tokenizer = _tokenizer(lessons)
        model = new_model(tokenizer, seed)
        _imitate(model, tokenizer, lessons, seed, steps, on_step)
        save_model(built, model, tokenizer)

    return build_folder(Path(directory), MARKER_FILE, recipe, write, force=force)


def pieces(tokenizer: "PreTrainedTokenizerFast", lesson: Lesson) -> Iterator[tuple[list[int], bool]]:
    """(token ids, whether they are imitated) of a lesson's prompts and replies in turn, as a server encodes them."""

    def rendered(count: int, prompt: bool) -> str:
        return tokenizer.apply_chat_template(
            list(lesson.messages[:count]),
            tools=list(lesson.tools) or None,
            tokenize=False,
            add_generation_prompt=prompt,
        )

    done = ""
    for number, message in enumerate(lesson.messages):
        if message["role"] != "assistant":
            continue
        before, after = rendered(number, True), rendered(number + 1, False).removesuffix("\n")
        yield tokenizer.encode(before.removeprefix(done), add_special_tokens=False), False
        yield tokenizer.encode(after.removeprefix(before), add_special_tokens=False), bool(message.get("weight", 1))
        done = after


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """A message for chat templates, with decoded arguments of tool calls."""
    read = {**message, "content": message.get("content") or ""}
    if message.get("tool_calls"):
        read["tool_calls"] = [
            {
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": json.loads(call["function"]["arguments"] or "{}"),
                },
            }
            for call in message["tool_calls"]
        ]
    elif message["role"] not in ("system", "user", "assistant", "tool"):
        raise ValueError(f"unknown role {message['role']!r}")
    return read


def _tokenizer(lessons: Sequence[Lesson]) -> "PreTrainedTokenizerFast":
    said = [message for lesson in lessons for message in lesson.messages]
    text = [str(message["content"]) for message in said]
    text += [json.dumps(message["tool_calls"]) for message in said if "tool_calls" in message]
    # Tools are in every prompt, and its longest part.
    tools = {json.dumps(tool["function"]) for lesson in lessons for tool in lesson.tools}
    text += sorted(tools) * max(1, len(lessons) // 10)
    text += [_CHAT_TEMPLATE, "system user assistant"] * 20
    return train_tokenizer(text, _LARGEST_VOCABULARY, _TAGS, _CHAT_TEMPLATE)


def _imitate(
    model: "Qwen3ForCausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    lessons: Sequence[Lesson],
    seed: int,
    steps: int,
    on_step: Callable[[int, float], None],
) -> None:
    import torch

    rows = [list(pieces(tokenizer, lesson)) for lesson in lessons]
    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=max(steps, 1))
    for step in range(1, steps + 1):
        drawn = chance.choices(rows, k=_LESSONS_A_STEP)
        width = max(sum(len(ids) for ids, _ in row) for row in drawn)
        inputs = torch.full((len(drawn), width), tokenizer.pad_token_id)
        labels = torch.full((len(drawn), width), -100)
        for number, row in enumerate(drawn):
            start = 0
            for ids, imitated in row:
                inputs[number, start : start + len(ids)] = torch.tensor(ids)
                if imitated:
                    labels[number, start : start + len(ids)] = torch.tensor(ids)
                start += len(ids)
        loss = model(input_ids=inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        on_step(step, loss.item())


def _lessons_of(named: str) -> list[Lesson]:
    if named.endswith(".jsonl") or not all(part.isidentifier() for part in named.split(".")):
        return read_lessons(Path(named))
    with tempfile.TemporaryDirectory() as folder:
        # In its own process: an agent's module imports its framework.
        path = Path(folder) / "lessons.jsonl"
        subprocess.run([sys.executable, "-m", named, "--lessons", path], check=True)
        return read_lessons(path)


def main(arguments: list[str] | None = None) -> None:
    """The command line: ``python -m algo.tiny_agent DIR --lessons FILE``."""
    parser = folder_parser(
        "algo.tiny_agent",
        "Write a tiny Qwen3 that has imitated conversations with tools.",
        "runs/service_agent/model",
    )
    parser.add_argument(
        "--lessons",
        required=True,
        metavar="FILE|MODULE",
        help="JSON lines of messages and tools, as for fine-tuning, or a module that writes them",
    )
    text = "seed of the weights and of the order of the lessons (default: %(default)s)"
    parser.add_argument("--seed", type=int, default=0, help=text)
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="steps of imitation (default: %(default)s)")
    options = parser.parse_args(arguments)

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == options.steps:
            print(f"step {step}: {loss:.3f} nats per token", flush=True)

    try:
        lessons = _lessons_of(options.lessons)
        directory = build_tiny_agent(
            options.directory, lessons, options.seed, options.steps, force=options.force, on_step=report
        )
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    print(f"tiny agent ready in {directory}")


if __name__ == "__main__":
    run_program(main)
