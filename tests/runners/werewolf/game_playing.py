"""Shared by the game's tests: presets beyond the shipped one, and ways to play a game through."""

import random
from collections.abc import Callable, Iterator, Mapping

from runners.werewolf.brains import RandomBrain, ScriptedBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    GameState,
    Preset,
    Request,
    Role,
    WinRule,
    apply,
    choices,
    new_game,
    observe,
    pending,
    winner,
)

TINY = PRESETS["5p_tiny"]

SEVEN = Preset(
    name="7p_test",
    deck=(Role.WOLF, Role.WOLF, Role.SEER, Role.VILLAGER, Role.VILLAGER, Role.VILLAGER, Role.VILLAGER),
    win_rule=WinRule.WIPE_A_KIND,
    round_limit=3,
    wolf_talk_rounds=2,
    wolves_may_pass=True,
    wolves_may_hit_wolves=True,
    may_abstain=True,
)
"""Two wolves that talk, may pass and may hit their own: every rule that 5p_tiny leaves out."""

STRICT = Preset(
    name="6p_strict",
    deck=(Role.WOLF, Role.WOLF, Role.SEER, Role.VILLAGER, Role.VILLAGER, Role.VILLAGER),
    win_rule=WinRule.PARITY,
    round_limit=2,
    wolf_talk_rounds=0,
    wolves_may_pass=False,
    wolves_may_hit_wolves=False,
    may_abstain=False,
)
"""Nobody may pass, and the wolves do not talk."""

TEST_PRESETS = (TINY, SEVEN, STRICT)

Chooser = Callable[[Request], Action]


def random_action(request: Request, rng: random.Random) -> Action:
    return Action(rng.choice(choices(request)), rng.choice(("", "我是好人", "我怀疑2号")) if request.speaks else "")


def answer_all(state: GameState, choose: Chooser) -> dict[int, Action]:
    return {request.seat: choose(request) for request in pending(state)}


def steps(state: GameState, choose: Chooser) -> Iterator[tuple[GameState, Mapping[int, Action], GameState]]:
    """(state, the actions taken, next state) until the game ends."""
    while winner(state) is None:
        actions = answer_all(state, choose)
        following = apply(state, actions)
        yield state, actions, following
        state = following


def play_random(preset: Preset, seed: int, play_seed: int) -> GameState:
    rng = random.Random(play_seed)
    state = new_game(preset, seed)
    for _, _, following in steps(state, lambda request: random_action(request, rng)):
        state = following
    return state


def play_brains(preset: Preset, seed: int, brain: type[RandomBrain] | type[ScriptedBrain]) -> GameState:
    brains = {seat: brain(random.Random(f"{seed}/{seat}")) for seat in preset.seats}
    state = new_game(preset, seed)
    while winner(state) is None:
        state = apply(state, {r.seat: brains[r.seat].act(observe(state, r.seat)) for r in pending(state)})
    return state
