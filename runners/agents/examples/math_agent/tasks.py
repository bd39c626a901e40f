"""Arithmetic to be done with a calculator, and lessons in it; ``python -m`` this module writes both.

The lessons know how to call the calculator and how to answer, but half of them guess the result instead, and three in
ten put brackets where the words ask for none, or leave them out: that both are of no use is what rewards have to teach.
"""

import json
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from runners.agents.examples.writing import calculator, distinct, lesson, tool_call, write_data

HERE = Path(__file__).parent
TRAIN, VAL = 384, 192
LESSONS = 1500
SEED = 21

RIGHT_BRACKETS = 0.7
"""Share of lessons with the expression that the question asks for."""
WITH_CALCULATOR = 0.5
"""Share of lessons that calculate; the others guess."""

INSTRUCTIONS = "Solve the math problem with the calculator. Output the answer after ###"
# As Agent Framework sends what the MCP server offers.
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


def tasks(seed: int = SEED) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(to train with, held out): rows of ``question`` and ``result``, no question twice."""
    drawn = problems(random.Random(seed))
    rows = distinct(({"question": question, "result": calculated(right)} for question, right, _ in drawn), TRAIN + VAL)
    return rows[:TRAIN], rows[TRAIN:]


def calculated(expression: str) -> str:
    """What the calculator says of an expression of this module's own."""
    value = Fraction(eval(expression, {"__builtins__": {}}))
    return str(float(value)) if "/" in expression else str(int(value))


def lessons(seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Conversations to imitate; of none of the tasks."""
    known = {row["question"] for part in tasks(seed) for row in part}
    chance = random.Random(seed + 1)
    new = (problem for problem in problems(chance) if problem[0] not in known)
    for question, right, wrong in islice(new, LESSONS):
        if chance.random() < WITH_CALCULATOR:
            expression = right if chance.random() < RIGHT_BRACKETS else wrong
            call, result = tool_call("calculate", {"expression": expression}), calculated(expression)
        else:
            call, result = None, str(chance.randint(2, 99))
        yield lesson(INSTRUCTIONS, question, TOOL, call, json.dumps({"result": result}), result)


if __name__ == "__main__":
    train, val = tasks()
    write_data({HERE / "train.jsonl": train, HERE / "val.jsonl": val}, lessons())
