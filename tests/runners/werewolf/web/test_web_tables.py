"""A seat's answers: taken once, in time, and within the rules."""

import asyncio
import json

import aiohttp

from tests.support.werewolf.web_server import WebServer


async def test_an_answer_that_comes_twice_or_late_or_against_the_rules_changes_nothing(tmp_path):
    headers = {"X-Werewolf": "1"}
    async with WebServer(tmp_path) as server, aiohttp.ClientSession(server.url, headers=headers) as session:
        async with session.post("/api/tables", json={"preset": "9p", "people": 1, "clock": 0, "seed": 12}) as response:
            table = (await response.json())["table"]
        async with session.get(f"/api/table/{table}") as response:
            seat = "/api" + (await response.json())["people"][0]["link"]
        stream = await session.get(f"{seat}/live")

        async def asked():
            async for line in stream.content:
                if line.startswith(b"data: ") and (page := json.loads(line[6:]))["request"]:
                    return page["request"]

        async def answer(**given):
            async with session.post(f"{seat}/act", json=given) as response:
                return response.status

        request = await asyncio.wait_for(asked(), 30)
        number = request["question"]
        for wrong in ({"choice": 99}, {"choice": "1"}, {"choice": True}, {"text": 3}, {"text": "长" * 5000}):
            assert await answer(**({"question": number, "text": "好"} | wrong)) == 400
        assert await answer(question=number + 1, text="好") == 409
        assert await answer(question=number, text="好") == 200
        assert await answer(question=number, text="再来") == 409
        async with session.get(f"{seat}/game") as response:
            assert response.status == 404  # secrets stay secret until the end
        stream.close()
