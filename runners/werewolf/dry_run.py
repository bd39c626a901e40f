"""``python -m runners.werewolf --dry-run``: one game, every model call printed, nothing stored.

Plays with what the hub published last, which is only read, or with any model that a vLLM serves (``--endpoint``):
also a way to see what a model answers before any training. The game is played as a runner plays it, so what is
printed is what would be trained on.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from agentlightning import Attempt, AttemptedRollout, ResourcesUpdate
from agentscope.message import Msg

from runners.addresses import Addresses
from runners.errors import CannotPlay, MissingResources
from runners.policy.chat_tokens import ChatTokens
from runners.policy.servers import Policies
from runners.werewolf.agent import WerewolfPlay
from runners.werewolf.game import Side
from runners.werewolf.language.replies import render_reply
from runners.werewolf.players import Decided, Player
from runners.werewolf.prompts_zh.names import seat_name
from store.client import StoreUnreachable, connect
from store.schema import TRAINED_POLICY, PolicyResources, Sampling, TokenLimits
from store.token_spans import SpanRecord
from store.werewolf import GameTask, ResultSpan, TurnSpan

PRESET, SEED, PLAYERS, REPLY_TOKENS = "5p_tiny", 1, dict.fromkeys(Side, TRAINED_POLICY), 256
"""What is played where the command line does not say."""

_NAME = "dry-run"
_RULE = "─" * 100
Show = Callable[[str], None]


async def dry_run(options: argparse.Namespace, show: Show = print) -> int:
    """Play and show the game that the command line asks for; the process's exit status.

    options: ``runners.werewolf.__main__``'s; those that are None are chosen here.
    """
    try:
        resources = _served_at(options) if options.endpoint else await _newest_resources(options)
        await _play(options, resources, show)
    except (CannotPlay, StoreUnreachable, ValueError, aiohttp.ClientError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _served_at(options: argparse.Namespace) -> PolicyResources:
    endpoint = options.endpoint.rstrip("/")
    return PolicyResources(
        run_name=_NAME,
        version=0,
        endpoints=(endpoint if endpoint.endswith("/v1") else f"{endpoint}/v1",),
        model=options.model,
        sampling=Sampling(
            temperature=1.0 if options.temperature is None else options.temperature, thinking=bool(options.thinking)
        ),
    )


async def _newest_resources(options: argparse.Namespace) -> PolicyResources:
    client = connect(options.store, options.patience)
    try:
        await client.wait_until_reachable()
        update = await client.get_latest_resources()
    finally:
        await client.close()
    if update is None:
        raise MissingResources(
            f"the hub at {options.store} has no resources yet: start `python -m algo.werewolf_verl`, or name a server "
            f"with --endpoint and --model"
        )
    return PolicyResources.decode(update)


class _Published:
    """Stands where the hub's client stands while the game is played: it has these resources, and takes nothing."""

    def __init__(self, resources: PolicyResources):
        self._update = ResourcesUpdate(
            resources_id=resources.resources_id,
            resources=resources.encode(),
            create_time=0.0,
            update_time=0.0,
            version=1,
        )

    async def query_resources(self, resources_id: str) -> list[ResourcesUpdate]:
        """The resources."""
        return [self._update]


async def _play(options: argparse.Namespace, resources: PolicyResources, show: Show) -> None:
    players: Mapping[Side, str] = options.players or PLAYERS
    policies = Policies(options.tokenizer)
    allowed = options.allow_address if options.endpoint is None else [options.endpoint]
    addresses = Addresses(options.store, allowed)
    play = WerewolfPlay(_Published(resources), options.tokenizer, keys=options.keys, addresses=addresses)
    try:
        await addresses.check(resources)
        tokens, limits = await _tokens_and_limits(options, resources, policies, players)
        task = GameTask(
            game_id=_NAME,
            group_id=_NAME,
            seed=SEED if options.seed is None else options.seed,
            sampling_seed=SEED if options.seed is None else options.seed,
            preset=options.preset or PRESET,
            seating=players,
            trainable=frozenset(side for side, name in players.items() if name == TRAINED_POLICY),
            limits=limits,
        )
        show(f"{task.model_dump_json(indent=1)}\n{resources.model_dump_json(indent=1)}")
        result = await _show_game(play, task, resources, tokens, show)
        show(f"{_RULE}\n{result.transcript}\n{_RULE}\n{_summary(result)}")
    finally:
        await play.close()
        await policies.close()


async def _tokens_and_limits(
    options: argparse.Namespace, resources: PolicyResources, policies: Policies, players: Mapping[Side, str]
) -> tuple[dict[str, ChatTokens], TokenLimits]:
    """The tokenizers of the policies that play, by name; limits that are not given are the servers'."""
    tokens: dict[str, ChatTokens] = {}
    served: list[int] = []
    for name in sorted(set(players.values()) & {TRAINED_POLICY, *resources.frozen}):
        server, tokens[name] = await policies.serving(resources, name)
        served.append(await server.context_tokens())
    context = options.context_tokens or min(served, default=2 * REPLY_TOKENS)
    return tokens, TokenLimits(
        context_tokens=context, reply_tokens=options.reply_tokens or min(REPLY_TOKENS, context // 4)
    )


async def _show_game(
    play: WerewolfPlay, task: GameTask, resources: PolicyResources, tokens: Mapping[str, ChatTokens], show: Show
) -> ResultSpan:
    attempt = Attempt(rollout_id=_NAME, attempt_id=_NAME, sequence_id=1, start_time=time.time())
    rollout = AttemptedRollout(
        rollout_id=_NAME,
        input=task.encode(),
        start_time=time.time(),
        resources_id=resources.resources_id,
        attempt=attempt,
    )
    calls: asyncio.Queue[tuple[TurnSpan, str] | None] = asyncio.Queue()
    actions: dict[int, str] = {}

    def note_decision(player: Player, request: dict[str, Any], answer: Msg) -> None:
        decided: Decided = answer.metadata["decided"]
        question = request["msg"].metadata["observation"].request
        action = render_reply(decided.action, question) + ("  (the default)" if decided.defaulted else "")
        actions[player.seat] = action
        if not decided.turns:
            show(f"{_RULE}\n{seat_name(player.seat)} ({type(player).__name__}) {question.decision}: {action}")

    def take(turn: SpanRecord, *times: float) -> None:
        if isinstance(turn, TurnSpan):  # answers that are no model calls are shown by ``note_decision``
            calls.put_nowait((turn, actions[turn.seat]))

    async def show_calls() -> None:
        while (call := await calls.get()) is not None:
            turn, action = call
            show(await _call_text(turn, action, tokens[turn.policy]))

    Player.register_class_hook("post_reply", _NAME, note_decision)
    showing = asyncio.create_task(show_calls())
    try:
        # The table hands over a turn right after its player's decision, before the player is asked again.
        result = await play(rollout, take)
        calls.put_nowait(None)
        await showing
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        Player.remove_class_hook("post_reply", _NAME)
    return result


async def _call_text(turn: TurnSpan, action: str, tokens: ChatTokens) -> str:
    """One model call, everything that is known of it."""
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
        "action" if turn.valid else "error": action if turn.valid else turn.error,
        "facts": facts,
    }
    shown = "\n".join(f"[{name}] {_visible(text)}" for name, text in sections.items() if text)
    return f"{_RULE}\n{head}{', re-ask' if turn.is_reask else ''}\n{counts}\n{shown}"


def _visible(text: str) -> str:
    """``text`` with what a terminal would obey, or not show, written out: a model may say anything."""
    return "".join(
        character if character.isprintable() or character == "\n" else character.encode("unicode_escape").decode()
        for character in text
    )


def _summary(result: ResultSpan) -> str:
    lines = [
        f"{result.result} after {result.days} days; model calls: {result.turns}, "
        f"unusable replies: {sum(seat.invalid_turns for seat in result.seats)}, "
        f"decisions: {sum(seat.decisions for seat in result.seats)}, "
        f"by default: {sum(seat.defaulted_decisions for seat in result.seats)}"
    ]
    for seat in result.seats:
        lines.append(
            f"{seat_name(seat.seat)} {seat.role} ({seat.policy}): {seat.turns} model calls, "
            f"{seat.decisions} decisions, {seat.segments} segments"
        )
    return "\n".join(lines)
