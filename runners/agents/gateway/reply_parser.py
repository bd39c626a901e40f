"""Parses whole replies at a policy's server, those that end at the same time in one request."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runners.errors import PolicyUnavailable
from runners.policy.client import PolicyClient

PARSE_ROUTE = "/v1/chat/completions/derender"

_MOST_AT_ONCE = 32

_Reply = tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]
"""A choice of vLLM's, and the future of its message."""


class ReplyParser:
    """Parses replies to requests with the same tools together: while a request is open, further replies wait for it.

    A single reply never waits, and eight conversations in step need two requests instead of eight.
    """

    def __init__(self, server: PolicyClient):
        self._server = server
        self._waiting: dict[str, list[_Reply]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def parse(
        self, chat_request: Mapping[str, Any], token_ids: Sequence[int], finish_reason: str
    ) -> dict[str, Any]:
        """The message of a reply. Raises RouteRefused and PolicyUnavailable.

        chat_request: vLLM's, with the tools. token_ids: without the end of turn.
        """
        key = json.dumps(chat_request, sort_keys=True)
        future = asyncio.get_running_loop().create_future()
        reply = ({"token_ids": token_ids, "finish_reason": finish_reason}, future)
        if key in self._waiting:
            self._waiting[key].append(reply)
        else:
            self._waiting[key] = [reply]
            task = asyncio.create_task(self._parse_waiting(key, chat_request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _parse_waiting(self, key: str, chat_request: Mapping[str, Any]) -> None:
        while waiting := self._waiting[key]:
            self._waiting[key] = waiting[_MOST_AT_ONCE:]
            await self._parse(chat_request, waiting[:_MOST_AT_ONCE])
        del self._waiting[key]

    async def _parse(self, chat_request: Mapping[str, Any], replies: Sequence[_Reply]) -> None:
        replies = [reply for reply in replies if not reply[1].done()]  # by the end of an attempt
        if not replies:
            return
        try:
            messages = await self._ask(chat_request, [choice for choice, _ in replies])
        except Exception as error:
            # One that the parser fails at must not fail the others; without an answer each would wait again.
            if len(replies) > 1 and not isinstance(error, PolicyUnavailable):
                await asyncio.gather(*(self._parse(chat_request, [reply]) for reply in replies))
                return
            for _, future in replies:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), message in zip(replies, messages, strict=True):
            if not future.done():
                future.set_result(message)

    async def _ask(self, chat_request: Mapping[str, Any], choices: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        numbered = [{"index": index, **choice} for index, choice in enumerate(choices)]
        response = {"request_id": "replies", "choices": numbered}
        body = {"generate_response": response, "chat_request": chat_request}
        answer = await self._server.ask(PARSE_ROUTE, body, final={500})  # some parsers raise errors for some replies
        try:
            found = {choice["index"]: choice["message"] for choice in answer["choices"]}
            return [{**found[index]} for index in range(len(choices))]
        except (LookupError, TypeError) as error:
            raise PolicyUnavailable(
                f"{self._server.endpoint} does not parse replies as vLLM 0.28 and newer do; serve the policy with it"
            ) from error
