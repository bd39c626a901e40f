"""The default game of tests, and how to play one."""

from runners.addresses import Addresses
from runners.werewolf.agent import WerewolfGames
from store.schema import PolicyResources
from store.werewolf import GameTask

HERE = Addresses("http://127.0.0.1")
"""Endpoints of models on this machine."""


def game_task(game_id: str = "game-1", *, context_tokens: int = 4000, reply_tokens: int = 40, **changes) -> GameTask:
    """Five seats, both sides the policy, the wolf's trained; changes: of the task's fields."""
    fields = dict(
        game_id=game_id, group_id="deal-1", seed=3, sampling_seed=8, preset="5p_tiny",
        seating={"wolf": "policy", "good": "policy"}, trainable=["wolf"],
        limits={"context_tokens": context_tokens, "reply_tokens": reply_tokens},
    )  # fmt: skip
    return GameTask(**(fields | changes))


async def play_task(task: GameTask, resources: PolicyResources, **settings):
    """(the result, the turns) of a game without a hub; settings: of ``WerewolfGames``."""
    games, turns = WerewolfGames(HERE, **settings), []
    try:
        result = await games.play(task, resources, lambda turn, *times: turns.append(turn))
    finally:
        await games.close()
    return result, turns
