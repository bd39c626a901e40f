"""Attempts, requests and a gateway for tests, and a fake of vLLM's chat routes."""

import asyncio
import re
from typing import Any

from aiohttp import web
from openai import AsyncOpenAI

from runners.agents.gateway.attempt import Attempt
from runners.agents.gateway.requests import ModelRequest
from store import protocol
from store.agents import AgentTask
from store.schema import PolicyResources
from tests.support.agents.tool_model import TEMPLATE
from tests.support.fakes import FakeVllm, refusal


def rollout_of(number=1):
    attempt = protocol.Attempt(rollout_id=f"ro-{number}", attempt_id=f"at-{number}", sequence_id=1, start_time=0.0)
    return protocol.AttemptedRollout(rollout_id=f"ro-{number}", input={}, start_time=0.0, attempt=attempt)


def task_of(number=1, **changes):
    fields = dict(
        task_id=f"task-{number}",
        group_id="group",
        input={"question": "?"},
        sampling_seed=number,
        limits={"context_tokens": 100_000, "reply_tokens": 300},
        max_calls=1000,
    )
    return AgentTask.model_validate(fields | changes)


def resources_of(endpoint="http://127.0.0.1:1/v1", **changes):
    fields = dict(
        run_name="run",
        version=3,
        endpoints=(endpoint,),
        model="policy",
        policies=({"name": "past", "endpoints": (endpoint,), "model": "policy"},),
    )
    return PolicyResources.model_validate(fields | changes)


def attempt_of(servers, spans, number=1, resources=None, **changes):
    """spans: a list that takes the spans of calls."""
    return Attempt(
        rollout_of(number),
        task_of(number, **changes),
        resources or resources_of(),
        servers,
        lambda span, started, ended: spans.append(span),
    )


def request_of(messages, model="policy", actor=None, tools=(), **changes):
    return ModelRequest(model=model, messages=tuple(messages), actor=actor, tools=tuple(tools), **changes)


class FakeChatVllm(FakeVllm):
    """A fake of vLLM with the routes that render messages and parse replies, of a model with tools.

    refuse_render: error of a render, with status render_status. renders: their number.
    parses_parts: as vLLM from 0.31 on.
    parsed: number of whole replies in each request that parses them; these wait while parse_gate is cleared, and fail
        with the text unparsable, with status unparsable_status.
    """

    template = TEMPLATE

    def __init__(self, tokenizer: Any, answer):
        super().__init__(tokenizer, answer)
        self.tokenizer_info = False
        self.refuse_render: str | None = None
        self.render_status = 400
        self.renders = 0
        self.parses_parts = True
        self.parsed: list[int] = []
        self.parse_gate = asyncio.Event()
        self.parse_gate.set()
        self.unparsable: str | None = None
        self.unparsable_status = 400
        self.unparsable_reason = "no reply"

    async def _render(self, request: web.Request) -> web.Response:
        self.renders += 1
        if self.refuse_render is not None:
            return refusal(self.refuse_render, self.render_status)
        return await super()._render(request)

    async def _derender(self, request: web.Request) -> web.Response:
        body = await request.json()
        tools = bool(body["chat_request"].get("tools"))
        if not body.get("stream"):
            choices = body["generate_response"]["choices"]
            self.parsed.append(len(choices))
            await self.parse_gate.wait()
            if self.unparsable in [self.tokenizer.decode(choice["token_ids"]) for choice in choices]:
                return refusal(self.unparsable_reason, self.unparsable_status)
            parsed = [
                {"index": place, "message": self._message(choice["token_ids"], tools, 100 * place)}
                for place, choice in enumerate(choices)
            ]
            return web.json_response({"choices": parsed})
        if not self.parses_parts:
            return refusal("not implemented")
        (choice,) = body["generate_chunk"]["choices"]
        before = (body["stream_state"] or {}).get("ids", [])
        ids = [*before, *choice["token_ids"]]
        if self.unparsable is not None and self.unparsable in self.tokenizer.decode(ids):
            return refusal(self.unparsable_reason, self.unparsable_status)
        old = self._message(before, tools, whole=False)
        new = self._message(ids, tools, whole=choice["finish_reason"] is not None)
        delta = {name: (new.get(name) or "").removeprefix(old.get(name) or "") for name in ("reasoning", "content")}
        calls = list(enumerate(new.get("tool_calls", ())))[len(old.get("tool_calls", ())) :]
        delta["tool_calls"] = [{"index": index, **call} for index, call in calls]
        return web.json_response({"chunk": {"choices": [{"delta": delta}]}, "stream_state": {"ids": ids}})

    def _message(self, ids: list[int], tools: bool, place: int = 0, whole: bool = True) -> dict[str, Any]:
        """place: number of its first tool call. whole: if false, a possible beginning of a tag or character is left
        out."""
        text = self.tokenizer.decode(ids)
        if not whole:
            text = re.sub("(<[^>]*|\ufffd+)$", "", text)
            if text.startswith("<think>") and "</think>" not in text:
                return {"role": "assistant"}
        thought, _, rest = text.rpartition("</think>")
        calls = re.findall(r'<tool_call>\n\{"name": "(\w+)", "arguments": (.*)\}\n</tool_call>', rest)
        message: dict[str, Any] = {"role": "assistant", "content": rest.partition("<tool_call>")[0] or None}
        if thought:
            message["reasoning"] = thought.removeprefix("<think>")
        if calls and tools:
            message["tool_calls"] = [
                {
                    "id": f"call-{len(self.exchanges)}-{place + number}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for number, (name, arguments) in enumerate(calls)
            ]
        return message

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_post("/v1/chat/completions/derender", self._derender)
        return app


CALL = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1+2"}}\n</tool_call>'
QUESTION = [{"role": "user", "content": "hi"}]


class World:
    """A gateway with one attempt, and a client of it. ``spans`` are those of its calls."""

    def __init__(self, vllm, gateway, servers):
        self.vllm = vllm
        self.endpoint = vllm.endpoint
        self.gateway = gateway
        self.servers = servers
        self.spans = []
        self.attempts = 0

    def attempt(self, **changes):
        self.attempts += 1
        resources = changes.pop("resources", None) or resources_of(self.endpoint)
        return attempt_of(self.servers, self.spans, self.attempts, resources, **changes)


def client_of(address, **options):
    return AsyncOpenAI(base_url=address, api_key="none", max_retries=0, **options)
