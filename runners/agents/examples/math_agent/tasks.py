"""Arithmetic tasks for a calculator, and lessons about them; ``python -m`` this module writes both.

The lessons show the calculator call and the form of answers, but half of them guess the result and three in ten have
wrong brackets: reinforcement learning has to correct both.
"""

import json
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from runners.agents.examples.writing import calculation, calculator, lesson, split, write_data

HERE = Path(__file__).parent
TRAIN, VAL = 384, 192
LESSONS = 1500
SEED = 21

RIGHT_BRACKETS = 0.7
"""Share of lessons with the right expression."""
WITH_CALCULATOR = 0.5
"""Share of lessons that calculate; the others guess."""

INSTRUCTIONS = "Solve the math problem with the calculator. Output the answer after ###"
# In the form in which Agent Framework sends the MCP server's tools.
TOOL = calculator("Calculates/evaluates the given expression.", "calculateArguments")

# (question, expression, the expression that is not meant)
_QUESTIONS = (
    ("What is {a} plus {b}, times {c}?", "({a}+{b})*{c}", "{a}+{b}*{c}"),
    ("What is {a} plus {b} times {c}?", "{a}+{b}*{c}", "({a}+{b})*{c}"),
    ("Take {a} minus {b}, then halve it.", "({a}-{b})/2", "{a}-{b}/2"),
    ("Take {a} minus half of {b}.", "{a}-{b}/2", "({a}-{b})/2"),
)


def problems(chance: random.Random) -> Iterator[tuple[str, str, str]]:
    """(question, expression, another one), without end."""
    while True:
        question, right, wrong = chance.choice(_QUESTIONS)
        numbers = {"a": chance.randint(10, 29), "b": chance.randint(2, 9), "c": chance.randint(2, 9)}
        yield question.format(**numbers), right.format(**numbers), wrong.format(**numbers)


def tasks() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(training, held-out) rows of ``question`` and ``result``, without duplicates."""
    drawn = problems(random.Random(SEED))
    return split(({"question": question, "result": calculated(right)} for question, right, _ in drawn), TRAIN, VAL)


def calculated(expression: str) -> str:
    """The calculator's result for an expression of this module."""
    value = Fraction(eval(expression, {"__builtins__": {}}))
    return str(float(value)) if "/" in expression else str(int(value))


def lessons() -> Iterator[dict[str, Any]]:
    """Conversations to imitate, about other questions than the tasks."""
    known = {row["question"] for part in tasks() for row in part}
    chance = random.Random(SEED + 1)
    new = (problem for problem in problems(chance) if problem[0] not in known)
    for question, right, wrong in islice(new, LESSONS):
        if chance.random() < WITH_CALCULATOR:
            expression = right if chance.random() < RIGHT_BRACKETS else wrong
            call, result = calculation(expression), calculated(expression)
        else:
            call, result = None, str(chance.randint(2, 99))
        yield lesson(INSTRUCTIONS, question, TOOL, call, json.dumps({"result": result}), result)


if __name__ == "__main__":
    train, val = tasks()
    write_data({HERE / "train.jsonl": train, HERE / "val.jsonl": val}, lessons())
