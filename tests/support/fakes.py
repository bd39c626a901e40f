"""Sample records, and a fake of vLLM's completions endpoint. Fakes stand in for real parts only in unit tests."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from jinja2 import TemplateError

from runners.policy.client import PolicyClient
from store.token_spans import context_digest, to_span
from store.werewolf import ResultSpan, SeatResult, TurnSpan
from tests.support.http_fake import HttpFake


def make_turn(**changes):
    fields = dict(
        game_id="g",
        group_id="d",
        seat=2,
        role="seer",
        side="good",
        day=1,
        decision="speech",
        turn=3,
        segment=0,
        is_reask=False,
        policy="policy",
        policy_version=5,
        trainable=True,
        valid=True,
        context_tokens=2,
        context_digest=context_digest([4, 5]),
        prompt_ids=(6, 2**31, 151_935),
        response_ids=(7, 8),
        logprobs=(-0.1, -17.25),
        finish_reason="stop",
        reply="我是预言家，查验了3号。",
    )
    return TurnSpan(**{**fields, **changes})


def make_result(result="wolf"):
    seat = SeatResult(
        seat=1,
        role="wolf",
        side="wolf",
        policy="policy",
        trainable=True,
        outcome=1.0,
        turns=2,
        invalid_turns=1,
        segments=1,
        decisions=2,
        reasked_decisions=0,
        defaulted_decisions=0,
    )
    return ResultSpan(
        game_id="g",
        group_id="d",
        preset="5p_tiny",
        seed=3,
        policy_version=5,
        result=result,
        days=2,
        turns=9,
        seats=(seat,),
        transcript="第一夜\n平安夜",
    )


def spans_of(records, rollout_id="ro-1", attempt_id="at-1"):
    """The records as spans of an attempt, in their order."""
    # agentlightning tells seconds from nanoseconds by size, so the times must be plausible.
    common = dict(rollout_id=rollout_id, attempt_id=attempt_id, start_time=1.7e9, end_time=1.7e9)
    return [to_span(record, **common, sequence_id=number) for number, record in enumerate(records, start=1)]


def refusal(message: str, status: int = 400) -> web.Response:
    """An error in vLLM's form."""
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


class FakeVllm(HttpFake):
    """Answers completions with scripted text, in token ids with made-up log-probs; records every exchange.

    answer: prompt text -> reply text. tokenizer: turns both into ids, and answers vLLM's tokenizer routes.
    model_folder: the served model; context_tokens: the longest accepted call.
    ends: the token that ends replies, if it is not a stop token of the request.
    fail_next: number of next requests that get a server error.
    gate: while cleared, completions wait; parts_gate: those that are streamed, after their first tokens, after which
        they break off with break_streams. healthy: else it answers 503 to whoever asks for its models.
    signs_of_life: number of requests for its models.
    policy_version, version_until: what it says with every completion that it serves; None says nothing.
    tokenizer_info: whether it was started with --enable-tokenizer-info-endpoint.
    likely: (prompt's token ids, token id) -> log-prob, for requests with log-probs of given tokens.
    callers: clients that are closed when it stops.
    """

    path = "/v1"
    template: str | None = None
    """In place of the tokenizer's."""

    def __init__(self, tokenizer: Any, answer: Callable[[str], str], model_folder: str = "unused"):
        self.tokenizer = tokenizer
        self.answer = answer
        self.model_folder = model_folder
        self.context_tokens = 32_768
        self.tokenizer_info = True
        self.likely: Callable[[list[int], int], float] = lambda prompt, token: -5.0
        self.policy_version: int | str | None = None
        self.version_until: int | None = None
        self.exchanges: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.ends: tuple[int, ...] = ()
        self.fail_next = 0
        self.healthy, self.signs_of_life = True, 0
        self.adapters: dict[str, str] = {}
        self.callers: list[PolicyClient] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.break_streams = False
        self.parts_gate = asyncio.Event()
        self.parts_gate.set()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/tokenizer_info", self._tokenizer_info)
        app.router.add_post("/v1/chat/completions/render", self._render)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        return app

    async def start(self) -> str:
        self.endpoint = await super().start()
        return self.endpoint

    async def stop(self) -> None:
        self.gate.set()
        for caller in self.callers:
            await caller.close()
        await super().stop()

    async def _models(self, request: web.Request) -> web.Response:
        self.signs_of_life += 1
        if not self.healthy:
            raise web.HTTPServiceUnavailable
        card = {"id": "policy", "root": self.model_folder, "max_model_len": self.context_tokens}
        cards = [card, *({"id": name, "root": root, "parent": "policy"} for name, root in self.adapters.items())]
        return web.json_response({"object": "list", "data": cards})

    async def _tokenizer_info(self, request: web.Request) -> web.Response:
        if not self.tokenizer_info:
            raise web.HTTPNotFound
        special = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        added = {token_id: str(token) for token_id, token in self.tokenizer.added_tokens_decoder.items()}
        return web.json_response(
            {
                **special,
                "tokenizer_class": "FakeTokenizer",
                "chat_template": self.tokenizer.chat_template,
                "added_tokens_decoder": added,
            }
        )

    async def _render(self, request: web.Request) -> web.Response:
        body = await request.json()
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():  # as vLLM does, for templates
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        try:
            text = self.tokenizer.apply_chat_template(
                body["messages"],
                chat_template=self.template,
                tokenize=False,
                tools=body.get("tools"),
                add_generation_prompt=body.get("add_generation_prompt", True),
                **body.get("chat_template_kwargs", {}),
            )
        except (TemplateError, ValueError) as error:
            return refusal(str(error))
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if len(ids) > self.context_tokens:
            return refusal(f"This model's maximum context length is {self.context_tokens} tokens.")
        return web.json_response({"token_ids": ids})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = self.tokenizer.encode(body["prompt"], add_special_tokens=body.get("add_special_tokens", True))
        return web.json_response({"count": len(ids), "max_model_len": self.context_tokens, "tokens": ids})

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": self.tokenizer.decode((await request.json())["tokens"])})

    def _log_probs_of(self, body: dict[str, Any], index: int, prompt: list[int]) -> dict[str, Any]:
        top = {f"token_id:{token}": self.likely(prompt, token) for token in body["logprob_token_ids"]}
        return {"index": index, "logprobs": {"top_logprobs": [top]}}

    async def _completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.set()
        await self.gate.wait()
        if self.fail_next:
            self.fail_next -= 1
            return refusal("fake failure", 500)
        prompt = body["prompt"]
        if "logprob_token_ids" in body:
            return web.json_response(
                {"choices": [self._log_probs_of(body, *numbered) for numbered in enumerate(prompt)]}
            )
        if len(prompt) + body["max_tokens"] > self.context_tokens:
            return refusal("longer than the model's context")
        reply = self.tokenizer.encode(self.answer(self.tokenizer.decode(prompt)), add_special_tokens=False)
        (end,) = self.ends or body.get("stop_token_ids") or [self.tokenizer.eos_token_id]
        sampled, finish = [*reply, end], "stop"
        if len(sampled) > body["max_tokens"]:
            sampled, finish = sampled[: body["max_tokens"]], "length"
        choice = {
            "index": 0,
            "text": self.tokenizer.decode(sampled),
            "finish_reason": finish,
            "token_ids": sampled,
            "prompt_token_ids": prompt,
            "logprobs": {"token_logprobs": [-0.1 * (n + 1) for n in range(len(sampled))]},
        }
        self.exchanges.append((body, choice))
        if body.get("stream"):
            return await self._streamed(request, choice)
        return web.json_response({"choices": [choice]}, headers=self._versions())

    def _versions(self) -> dict[str, str]:
        headers = {"x-policy-version": self.policy_version, "x-policy-version-until": self.version_until}
        return {name: str(version) for name, version in headers.items() if version is not None}

    async def _streamed(self, request: web.Request, choice: dict[str, Any]) -> web.StreamResponse:
        """Three tokens at a time."""
        headers = self._versions()
        until = headers.pop("x-policy-version-until", None)
        response = web.StreamResponse(headers=headers | {"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        for start in range(0, len(ids), 3):
            if start and self.break_streams:
                request.transport.abort()
                return response
            part = {"index": 0, "text": "", "token_ids": ids[start : start + 3], "finish_reason": None}
            part["logprobs"] = {"token_logprobs": logprobs[start : start + 3]}
            if start == 0:
                part["prompt_token_ids"] = choice["prompt_token_ids"]
            if start + 3 >= len(ids):
                part["finish_reason"] = choice["finish_reason"]
            await response.write(f"data: {json.dumps({'choices': [part]})}\n\n".encode())
            if start == 0:
                await self.parts_gate.wait()
        await response.write(b"data: [DONE]\n\n")
        if until:
            await response.write(f": x-policy-version-until {until}\n\n".encode())
        return response
