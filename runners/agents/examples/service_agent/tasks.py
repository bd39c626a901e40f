"""Word problems, and conversations about them for a tiny model to imitate; ``python -m`` this module writes both.

The problems are like gsm8k's: a story and a question, the answer after ####. One operation on two numbers solves each,
and the story says which. The lessons know how to call the calculator and how to answer, but they often guess the result
instead, or take another operation than the story's: that both are of no use is what rewards have to teach.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runners.agents.examples.writing import tool_call, write_data

HERE = Path(__file__).parent
TRAIN, VAL = 512, 256
LESSONS = 1500
SEED = 20

RIGHT_OPERATION = 0.7
"""Share of lessons with the operation that the story asks for."""
WITH_CALCULATOR = 0.5
"""Share of lessons that calculate; the others guess."""

# As the service's SDK sends it.
TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Calculate an arithmetic expression.",
        "parameters": {
            "properties": {"expression": {"title": "Expression", "type": "string"}},
            "required": ["expression"],
            "title": "calculate_args",
            "type": "object",
            "additionalProperties": False,
        },
    },
}
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


def tasks(seed: int = SEED) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(to train with, held out): rows of ``question`` and ``answer``, no question twice."""
    rows = {}
    for question, operation, a, b in problems(random.Random(seed)):
        result = _RESULT[operation](a, b)
        rows[question] = {"question": question, "answer": f"{a} {operation} {b} = {result}\n#### {result}"}
        if len(rows) == TRAIN + VAL:
            break
    rows = list(rows.values())
    return rows[:TRAIN], rows[TRAIN:]


def lessons(seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Conversations as OpenAI's fine-tuning takes them; of none of the tasks."""
    known = {row["question"] for part in tasks(seed) for row in part}
    chance = random.Random(seed + 1)
    count = 0
    for question, operation, a, b in problems(chance):
        if question in known:
            continue
        if chance.random() > RIGHT_OPERATION:
            operation = chance.choice([other for other in STORIES if other != operation])
        result = _RESULT[operation](a, b)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": question},
        ]
        if chance.random() < WITH_CALCULATOR:
            call = tool_call("calculate", {"expression": f"{a} {operation} {b}"})
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
        else:
            result = chance.randint(2, 99)
        messages.append({"role": "assistant", "content": f"The answer is\n### {result}"})
        yield {"messages": messages, "tools": [TOOL]}
        count += 1
        if count == LESSONS:
            return


if __name__ == "__main__":
    files = {"train.jsonl": lambda seed: tasks(seed)[0], "val.jsonl": lambda seed: tasks(seed)[1]}
    write_data("runners.agents.examples.service_agent.tasks", HERE, SEED, files, lessons)
