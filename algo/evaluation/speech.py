"""Speeches of a policy: variety, repetition, share of Chinese, and bits per character under another model.

A policy that drifts into a language of its own has speeches that the model it started from finds improbable.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from algo.evaluation.figures import conduct_of
from algo.evaluation.games import GameEvaluation, Spoken
from algo.evaluation.page import Table, cells
from algo.machine.atomic_files import write_atomically
from algo.werewolf.file_names import SPEECH_FILE
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY

MOST_SPEECHES = 2000
"""Speeches of an evaluation and side that are scored, taken evenly, since games are in the order of opponents."""

Bits = Mapping[str, Mapping[str, float]]


def speeches_by_side(evaluation: GameEvaluation) -> dict[str, list[Spoken]]:
    """Side -> the policy's public speeches; sides without any are left out."""
    found: dict[str, list[Spoken]] = {side: [] for side in SIDES}
    for row in evaluation.rows:
        for said in row.spoken:
            seat = row.seat(said.seat)
            if seat.player == TRAINED_POLICY:
                found[seat.side].append(said)
    return {side: spoken for side, spoken in found.items() if spoken}


def speech_table(evaluations: Iterable[GameEvaluation], bits: Bits) -> Table:
    """A row for each evaluation and side. bits: as in ``SPEECH_FILE``; empty for no such column."""
    rows = []
    for evaluation in evaluations:
        label = evaluation.header.label
        for side, spoken in speeches_by_side(evaluation).items():
            under = bits.get(label, {}).get(side)
            rows.append(
                (
                    *cells(f"{label}, {side}", conduct_of(evaluation.rows, [side], 1).invalid_replies, digits=1),
                    str(len(spoken)),
                    f"{fmean(len(said.text) for said in spoken):.1f}",
                    f"{len({said.text for said in spoken}) / len(spoken):.1%}",
                    f"{fmean(said.repetition for said in spoken):.1%}",
                    f"{1 - fmean(said.chinese_share for said in spoken):.1%}",
                    *([] if not bits else ["–" if under is None else f"{under:.2f}"]),
                )
            )
    head = (
        "invalid replies",
        "speeches",
        "characters",
        "distinct",
        "repeated within a speech",
        "letters that are not Chinese",
        *(["bits per character, reference model"] if bits else []),
    )
    return Table("Replies and speeches of the policy", ("evaluation and side", *head), rows)


def score_speeches(evaluations: Iterable[GameEvaluation], model: Path) -> Bits:
    """Bits a character of every evaluation under a model folder: -log2 of the texts' probability over their length.

    Each text stands alone, after the token that begins a text. Computed in float32 on the CPU.
    Raises OSError or ValueError for a model that cannot be loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    network = AutoModelForCausalLM.from_pretrained(model, local_files_only=True, dtype=torch.float32).eval()
    first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id

    def bits_per_character(texts: Sequence[str]) -> float:
        nats = 0.0
        for text, count in Counter(texts).items():
            ids = torch.tensor([[first, *tokenizer.encode(text, add_special_tokens=False)]])
            with torch.inference_mode():
                log_probs = network(ids).logits[0, :-1].log_softmax(-1)
            nats -= count * float(log_probs.gather(1, ids[0, 1:, None]).sum())
        return nats / math.log(2) / sum(map(len, texts))

    return {
        evaluation.header.label: {
            side: bits_per_character([said.text for said in spoken[:: math.ceil(len(spoken) / MOST_SPEECHES)]])
            for side, spoken in speeches_by_side(evaluation).items()
        }
        for evaluation in evaluations
    }


def write_bits(folder: Path, bits: Bits) -> None:
    """For the report of the run in the folder. Raises OSError."""
    write_atomically(folder / SPEECH_FILE, json.dumps(bits, indent=1))


def read_bits(folder: Path) -> Bits:
    """The bits that ``write_bits`` wrote; empty without a file."""
    path = folder / SPEECH_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
