"""Games in which scripted players decide for the policy's seats, with the policy's tokens."""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runners.play import TurnSink
from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import Completion, PolicyClient
from runners.policy.codecs import LocalCodec
from runners.policy.model import TokenExactChatModel
from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import Role, Side, get_preset
from runners.werewolf.language.replies import render_reply
from runners.werewolf.players import Decided, PolicyPlayer
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.schema import TRAINED_POLICY, TokenLimits
from store.werewolf import GameTask, ResultSpan, TurnSpan

LIMITS = {"context_tokens": 16_384, "reply_tokens": 300}
Wait = Callable[[], Awaitable[None]]
"""Awaited at every model call; simulates the latency of a model."""


async def _at_once() -> None:
    pass


class ScriptedPolicyPlayer(PolicyPlayer):
    """A policy seat with prompts and tokens; a scripted player makes the replies. Is its own server."""

    model = "scripted"

    def __init__(self, seat: int, tokens: ChatTokens, system: str, key: str, wait: Wait):
        super().__init__(seat, TokenExactChatModel(self, tokens, TokenLimits(**LIMITS), key), system)
        self._brain = ScriptedBrain(random.Random(key))
        self._tokens, self._wait = tokens, wait

    async def decide(self, observation) -> Decided:
        self._reply = render_reply(self._brain.act(observation), observation.request)
        return await super().decide(observation)

    async def complete(self, prompt_ids: object, max_tokens: int, seed: int) -> Completion:
        """As ``PolicyClient``: the reply in token ids, with made-up log-probs."""
        await self._wait()
        ids = tuple(await self._tokens.encode_reply(self._reply))
        return Completion(ids, (-1.0,) * len(ids), "stop")


@cache
def _codec(model_folder: Path) -> LocalCodec:
    """Shared by all games, as in a runner."""
    return LocalCodec.of(model_folder)


def task_of(preset: str, seed: int, limits: Mapping[str, int] = LIMITS, **rules: Any) -> GameTask:
    """A game with the policy in all seats."""
    name = f"{preset}-{seed}"
    seating = dict.fromkeys(Side, TRAINED_POLICY)
    return GameTask(
        game_id=name, group_id=name, seed=seed, sampling_seed=seed, preset=preset, rules=rules, seating=seating,
        trainable=frozenset(Side), limits=limits,
    )  # fmt: skip


async def play_scripted(task: GameTask, model_folder: Path, on_turn: TurnSink, wait: Wait = _at_once) -> ResultSpan:
    """Play a task with scripted players in all policy seats."""
    preset, codec = get_preset(task.preset, task.rules), _codec(model_folder)
    tokens = await ChatTokens.of(codec, codec.added)

    def seat_player(seat: int, role: Role, name: str) -> ScriptedPolicyPlayer:
        key = f"{task.sampling_seed}/{seat}"
        return ScriptedPolicyPlayer(seat, tokens, system_prompt(preset, seat, role), key, wait)

    return await play_game(task, 0, seat_player, on_turn)


async def record_game(
    preset: str, seed: int, model_folder: Path, wait: Wait = _at_once
) -> tuple[ResultSpan, list[TurnSpan]]:
    """Play one game at the real table; returns its result and its turns in order."""
    turns: list[TurnSpan] = []
    return await play_scripted(task_of(preset, seed), model_folder, lambda turn, *at: turns.append(turn), wait), turns


async def play_served(task: GameTask, tokens: ChatTokens, servers: Mapping[Side, PolicyClient]) -> list[TurnSpan]:
    """The turns of a game of real servers, one for each side."""
    preset, turns = get_preset(task.preset, task.rules), list[TurnSpan]()

    def seat_player(seat: int, role: Role, name: str) -> PolicyPlayer:
        model = TokenExactChatModel(servers[role.side], tokens, task.limits, f"{task.sampling_seed}/{seat}")
        return PolicyPlayer(seat, model, system_prompt(preset, seat, role))

    await play_game(task, 0, seat_player, lambda turn, *at: turns.append(turn))
    return turns
