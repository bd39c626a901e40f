"""``python -m runners.werewolf --dry-run``: plays one game and prints every model call; stores nothing.

Uses the hub's newest resources, or any model of a vLLM (``--endpoint``), also before training. A runner plays games
the same way, so the output shows exactly what would be trained on.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping

import aiohttp

from runners.addresses import Addresses
from runners.errors import CannotPlay, MissingResources
from runners.policy.chat_tokens import ChatTokens
from runners.werewolf.agent import WerewolfGames
from runners.werewolf.game import Side
from runners.werewolf.prompts_zh.names import seat_name
from runners.werewolf.prompts_zh.record import render_events
from runners.werewolf.transcript import event_of
from store.client import StoreUnreachable, connect
from store.schema import TRAINED_POLICY, PolicyResources, Sampling, TokenLimits
from store.token_spans import SpanRecord
from store.werewolf import GameTask, ResultSpan, TurnSpan

REPLY_TOKENS = 256
"""Default of the command line."""

_NAME = "dry-run"
_RULE = "─" * 100
Show = Callable[[str], None]


async def dry_run(options: argparse.Namespace, show: Show = print) -> int:
    """Play and show one game; returns the exit status.

    options: of ``runners.werewolf.__main__``.
    """
    try:
        addresses = Addresses(options.store, [options.endpoint] if options.endpoint else options.allow_address)
        resources = _served_at(options) if options.endpoint else await _newest_resources(options)
        await addresses.check(resources)
        games = WerewolfGames(addresses, options.tokenizer, options.policy_timeout, options.keys)
        try:
            await _play(games, options, resources, show)
        finally:
            await games.close()
    except (CannotPlay, StoreUnreachable, ValueError, aiohttp.ClientError) as error:
        print(f"error: {_visible(str(error))}", file=sys.stderr)
        return 1
    return 0


def _served_at(options: argparse.Namespace) -> PolicyResources:
    endpoint = options.endpoint.rstrip("/")
    return PolicyResources(
        run_name=_NAME,
        version=0,
        endpoints=(endpoint if endpoint.endswith("/v1") else f"{endpoint}/v1",),
        model=options.model,
        sampling=Sampling(temperature=options.temperature, thinking=options.thinking),
    )


async def _newest_resources(options: argparse.Namespace) -> PolicyResources:
    client = connect(options.store, options.hub_timeout)
    try:
        await client.wait_until_reachable()
        update = await client.get_latest_resources()
    finally:
        await client.close()
    if update is None:
        raise MissingResources(
            f"the hub at {options.store} has no resources yet: start `python -m algo.werewolf_verl`, or use --endpoint "
            f"and --model"
        )
    return PolicyResources.decode(update)


async def _play(games: WerewolfGames, options: argparse.Namespace, resources: PolicyResources, show: Show) -> None:
    players: Mapping[Side, str] = options.players
    served: list[int] = []
    for name in sorted(set(players.values()) & {TRAINED_POLICY, *resources.frozen}):
        server, _ = await games.policies.serving(resources, name)
        served.append(await server.context_tokens())
    context = options.context_tokens or min(served, default=2 * REPLY_TOKENS)
    task = GameTask(
        game_id=_NAME,
        group_id=_NAME,
        seed=options.seed,
        sampling_seed=options.seed,
        preset=options.preset,
        seating=players,
        trainable=frozenset(side for side, name in players.items() if name == TRAINED_POLICY),
        limits=TokenLimits(
            context_tokens=context, reply_tokens=options.reply_tokens or min(REPLY_TOKENS, context // 4)
        ),
    )
    show(_visible(f"{task.model_dump_json(indent=1)}\n{resources.model_dump_json(indent=1)}"))
    calls: asyncio.Queue[SpanRecord | None] = asyncio.Queue()

    async def show_calls() -> None:
        while isinstance(turn := await calls.get(), TurnSpan):
            # A side of past selves has a policy for each seat.
            _, tokens = await games.policies.serving(resources, turn.policy)
            show(await _call_text(turn, tokens))

    playing = asyncio.create_task(games.play(task, resources, lambda turn, *times: calls.put_nowait(turn)))
    playing.add_done_callback(lambda _: calls.put_nowait(None))
    both = playing, asyncio.create_task(show_calls())
    try:
        result, _ = await asyncio.gather(*both)
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
    show(f"{_RULE}\n{result.transcript}\n{_RULE}\n{_summary(result)}")


async def _call_text(turn: TurnSpan, tokens: ChatTokens) -> str:
    """A model call with its facts and the events after it."""
    head = f"{seat_name(turn.seat)} {turn.role} ({turn.side}), day {turn.day}, {turn.decision}, call {turn.turn}"
    counts = (
        f"{len(turn.prompt_ids)} new + {turn.context_tokens} context tokens in segment {turn.segment}, "
        f"{len(turn.response_ids)} sampled, finish: {turn.finish_reason}"
    )
    facts = ", ".join(f"{name} {value:g}" for name, value in turn.facts.items())
    sections = {
        "prompt": await tokens.decode(turn.prompt_ids),
        "thought": turn.thought,
        "reply": turn.reply,
        "error": turn.error,
        "facts": facts,
        "then": render_events(map(event_of, json.loads(turn.events)["events"])) if turn.events else "",
    }
    shown = "\n".join(f"[{name}] {_visible(text)}" for name, text in sections.items() if text)
    return f"{_RULE}\n{head}{', re-ask' if turn.is_reask else ''}\n{counts}\n{shown}"


def _visible(text: str) -> str:
    """``text`` with control characters escaped, since a model may write anything."""
    return "".join(
        character if character.isprintable() or character == "\n" else character.encode("unicode_escape").decode()
        for character in text
    )


def _summary(result: ResultSpan) -> str:
    lines = [
        f"{result.result} after {result.days} days; model calls: {result.turns}, "
        f"invalid replies: {sum(seat.invalid_turns for seat in result.seats)}, "
        f"decisions: {sum(seat.decisions for seat in result.seats)}, "
        f"defaulted: {sum(seat.defaulted_decisions for seat in result.seats)}"
    ]
    for seat in result.seats:
        lines.append(
            f"{seat_name(seat.seat)} {seat.role} ({seat.policy}): {seat.turns} model calls, "
            f"{seat.decisions} decisions, {seat.segments} segments"
        )
    return "\n".join(lines)
