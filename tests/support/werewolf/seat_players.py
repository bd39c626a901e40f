"""Who plays in tests: models by their replies, and a person that answers over HTTP."""

import asyncio
import json
import random
import re

OURS = {"X-Werewolf": "1"}


def reply_to(prompt):
    """A usable answer to any question, now and then none, and a thought."""
    question = prompt.rsplit("【裁判】", 1)[-1]
    if "轮到你发言" in question or "遗言" in question or "说一句" in question:
        return "<think>先看看大家怎么说</think>我是好人，听大家的。"
    if random.Random(len(prompt)).random() < 0.15:
        return "我再想想"
    return "决定：弃票" if "弃票" in question else "决定：2号" if "2号" in question else "决定：3号"


def offered(question):
    """The options of a question, or of the last of several."""
    found = re.findall("可选：([^。）]*)", question)
    return found[-1].split("、") if found else []


def legal_answer(rng):
    """A policy that always answers in form: one of the options offered, or a sentence."""

    def answer(prompt):
        options = offered(prompt.rpartition("<|im_start|>user")[2])
        return f"决定：{rng.choice(options)}" if options else "我是好人，请相信我。"

    return answer


async def open_table(session, **wanted):
    """(the host's address of a new table, the people's addresses); both below /api. Nobody takes a moment there."""
    table = {"people": 1, "clock": 0, "pace": 0} | wanted
    async with session.post("/api/tables", json=table, headers=OURS) as response:
        answer = await response.json()
        assert response.status == 200, answer
    table = f"/api/table/{answer['table']}"
    async with session.get(table) as response:
        return table, ["/api" + person["link"] for person in (await response.json())["people"]]


async def pages_of(session, seat):
    """What a seat's page is sent, until the game is over."""
    async with session.get(f"{seat}/live") as stream:
        assert stream.status == 200
        async for line in stream.content:
            if line.startswith(b"data: ") and line != b"data: {}\n":
                yield json.loads(line[6:])


async def play_seat(session, seat, says="我是好人，先听大家的。"):
    """Answer every question with the first choice there is, until the game is over; the last page."""
    answered = 0
    async with asyncio.timeout(120):
        async for page in pages_of(session, seat):
            request = page["request"]
            if request is None or request["question"] == answered:
                continue
            answered = request["question"]
            chosen = None if request["mayPass"] or request["speechChars"] else 0
            given = {"question": answered, "choice": chosen, "text": says if request["speechChars"] else ""}
            async with session.post(f"{seat}/act", json=given, headers=OURS) as response:
                assert response.status in (200, 409), await response.text()  # the game may just have stopped
    return page
