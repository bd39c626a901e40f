"""Games whose policy seats scripted players play, in the exact tokens that a policy would have seen and said."""

import random
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from runners.play import TurnSink
from runners.policy.chat_tokens import ChatTokens
from runners.policy.codecs import LocalCodec
from runners.policy.model import TokenExactChatModel
from runners.policy.server import Completion
from runners.werewolf.brains import Brain, ScriptedBrain
from runners.werewolf.game import Role, Side, get_preset
from runners.werewolf.language.replies import render_reply
from runners.werewolf.players import Decided, PolicyPlayer
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.schema import TRAINED_POLICY
from store.werewolf import GameTask, ResultSpan, TurnSpan

LIMITS = {"context_tokens": 16_384, "reply_tokens": 300}


class ScriptedServer:
    """A fake of ``PolicyServer`` that says what it is told to, and waits as long as it is told to."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, wait: Callable[[], Awaitable[None]] | None = None):
        self.model = "scripted"
        self._tokenizer = tokenizer
        self._wait = wait
        self.reply = ""

    async def complete(self, prompt_ids: object, max_tokens: int, seed: int) -> Completion:
        """The reply in token ids, with made-up log-probs."""
        if self._wait is not None:
            await self._wait()
        ids = (*self._tokenizer.encode(self.reply, add_special_tokens=False), self._tokenizer.eos_token_id)
        return Completion(ids, (-1.0,) * len(ids), "stop")


class ScriptedPolicyPlayer(PolicyPlayer):
    """A policy seat, prompts and tokens included, whose replies a scripted player decides."""

    def __init__(self, seat: int, model: TokenExactChatModel, server: ScriptedServer, system: str, brain: Brain):
        super().__init__(seat, model, system)
        self._server = server
        self._brain = brain

    async def decide(self, observation) -> Decided:
        """Say what the brain decides."""
        self._server.reply = render_reply(self._brain.act(observation), observation.request)
        return await super().decide(observation)


@cache
def _tokenizer(model_folder: Path) -> PreTrainedTokenizerBase:
    """One for all games, as in a runner."""
    return AutoTokenizer.from_pretrained(model_folder)


def scripted_task(preset_name: str, seed: int) -> GameTask:
    """A task for ``play_scripted``."""
    return GameTask(
        game_id=f"{preset_name}-{seed}",
        group_id=f"{preset_name}-{seed}",
        seed=seed,
        sampling_seed=seed,
        preset=preset_name,
        seating=dict.fromkeys(Side, TRAINED_POLICY),
        trainable=frozenset(Side),
        limits=LIMITS,
    )


async def record_game(
    preset_name: str, seed: int, model_folder: Path, wait: Callable[[], Awaitable[None]] | None = None
) -> tuple[ResultSpan, list[TurnSpan]]:
    """Play one game at the real table; returns its result and its turns in the order they were decided.

    wait: awaited at every model call, as a model would take its time.
    """
    turns: list[TurnSpan] = []
    result = await play_scripted(
        scripted_task(preset_name, seed), model_folder, lambda turn, *times: turns.append(turn), wait
    )
    return result, turns


async def play_scripted(
    task: GameTask, model_folder: Path, on_turn: TurnSink, wait: Callable[[], Awaitable[None]] | None = None
) -> ResultSpan:
    """Play a task as ``record_game`` does, all of its seats by scripted players in a policy's tokens."""
    preset, tokenizer = get_preset(task.preset), _tokenizer(model_folder)
    tokens = await ChatTokens.of(LocalCodec(tokenizer), tokenizer.get_added_vocab())

    def seat_player(seat: int, role: Role, name: str) -> ScriptedPolicyPlayer:
        key = f"{task.sampling_seed}/{seat}"
        server = ScriptedServer(tokenizer, wait)
        model = TokenExactChatModel(server, tokens, task.limits, key)
        brain = ScriptedBrain(random.Random(key))
        return ScriptedPolicyPlayer(seat, model, server, system_prompt(preset, seat, role), brain)

    return await play_game(task, 0, seat_player, on_turn)
