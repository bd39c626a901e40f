"""Word problems, and lessons about them for a tiny model; ``python -m`` this module writes both.

The problems are like gsm8k's: a story and a question, the answer after ####. One operation on two numbers solves each.
The lessons show the calculator call and the form of answers, but often guess the result or use the wrong operation:
reinforcement learning has to correct both.
"""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from runners.agents.examples.writing import calculation, calculator, lesson, split, write_data

HERE = Path(__file__).parent
TRAIN, VAL = 512, 256
LESSONS = 1500
SEED = 20

RIGHT_OPERATION = 0.7
"""Share of lessons with the right operation."""
WITH_CALCULATOR = 0.5
"""Share of lessons that calculate; the others guess."""

# In the form in which the SDK sends it.
TOOL = calculator("Calculate an arithmetic expression.", "calculate_args", additionalProperties=False)
INSTRUCTIONS = "Solve the math problem with the calculator. Output the answer after ###"

NAMES = ("Ann", "Ben", "Eva", "Joe", "Kim", "Leo", "Mia", "Tom")
THINGS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps")
STORIES = {
    "+": (
        "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?",
        "{name} has {a} {things}. A friend has {b}. How many {things} do they have together?",
        "There are {a} {things} in a bag and {b} in a box. How many {things} are there in all?",
    ),
    "-": (
        "{name} has {a} {things} and gives away {b}. How many {things} are left?",
        "{name} has {a} {things} and loses {b} of them. How many {things} remain?",
        "{name} has {a} {things}, a friend has {b}. How many {things} does the friend lack?",
    ),
    "*": (
        "{name} has {a} bags with {b} {things} each. How many {things} is that?",
        "{name} buys {a} {things} a day for {b} days. How many {things} is that?",
        "There are {a} rows of {b} {things}. How many {things} are there?",
    ),
}
_RESULT = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def problems(chance: random.Random) -> Iterator[tuple[str, str, int, int]]:
    """(question, operation, first number, second number), without end."""
    while True:
        operation = chance.choice(tuple(STORIES))
        b = chance.randint(2, 9)
        a = chance.randint(b + 1, 19)
        story = chance.choice(STORIES[operation])
        question = story.format(name=chance.choice(NAMES), things=chance.choice(THINGS), a=a, b=b)
        yield question, operation, a, b


def tasks() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(training, held-out) rows of ``question`` and ``answer``, without duplicates."""
    drawn = problems(random.Random(SEED))
    return split(({"question": question, "answer": _answer(*solved)} for question, *solved in drawn), TRAIN, VAL)


def _answer(operation: str, a: int, b: int) -> str:
    result = _RESULT[operation](a, b)
    return f"{a} {operation} {b} = {result}\n#### {result}"


def lessons() -> Iterator[dict[str, Any]]:
    """Conversations to imitate, about other questions than the tasks."""
    known = {row["question"] for part in tasks() for row in part}
    chance = random.Random(SEED + 1)
    new = (problem for problem in problems(chance) if problem[0] not in known)
    for question, operation, a, b in islice(new, LESSONS):
        if chance.random() > RIGHT_OPERATION:
            operation = chance.choice([other for other in STORIES if other != operation])
        call, result = None, _RESULT[operation](a, b)
        if chance.random() < WITH_CALCULATOR:
            call = calculation(f"{a} {operation} {b}")
        answer, result = str(result), result if call else chance.randint(2, 99)
        yield lesson(INSTRUCTIONS, question, TOOL, call, answer, result)


if __name__ == "__main__":
    train, val = tasks()
    write_data({HERE / "train.jsonl": train, HERE / "val.jsonl": val}, lessons())
