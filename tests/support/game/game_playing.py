"""Shared by the game's tests: presets beyond the shipped ones, and ways to play a game through."""

import random
from collections.abc import Callable, Iterator, Mapping

from runners.werewolf.brains import NewBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    GameState,
    Option,
    Preset,
    Request,
    Role,
    Side,
    WinRule,
    apply,
    choices,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.local import play_locally, seeded_brains

TINY = PRESETS["5p_tiny"]
NINE = PRESETS["9p"]
TWELVE = PRESETS["12p_sheriff"]


def deck(**counts: int) -> tuple[Role, ...]:
    """``deck(wolf=2, seer=1)``: the roles, in the order named."""
    return tuple(Role(name) for name, count in counts.items() for _ in range(count))


SEVEN = Preset(name="7p_test", deck=deck(wolf=2, seer=1, villager=4), round_limit=3)
"""Two wolves that talk, may pass and may hit their own; no other night role than the seer."""

STRICT_ELECTION = Preset(
    name="8p_strict_election",
    deck=deck(wolf=2, wolf_king=1, witch=1, guard=1, hunter=1, villager=2),
    win_rule=WinRule.PARITY,
    round_limit=3,
    sheriff=True,
    wolf_talk_rounds=0,
    wolves_may_pass=False,
    wolves_may_hit_wolves=False,
    wolves_may_explode=True,
    may_abstain=False,
)
"""Nobody may pass, the wolves do not talk, and a sheriff must be voted for."""

EVERYTHING = Preset(
    name="10p_everything",
    deck=deck(wolf=2, wolf_king=1, seer=1, witch=1, hunter=1, guard=1, villager=3),
    speech_chars=30,
    sheriff=True,
    wolf_talk_rounds=3,
    wolves_may_explode=True,
    wolf_king_may_explode=True,
    witch_self_save=True,
)
"""Every option on."""

GUNS = Preset(
    name="9p_guns",
    deck=deck(wolf=1, wolf_king=2, witch=1, hunter=3, villager=2),
    sheriff=True,
    wolves_may_explode=True,
)
"""Long chains of shots."""

VILLAGERS = Preset(
    name="6p_villagers", deck=deck(wolf=2, villager=4), round_limit=3, sheriff=True, wolves_may_explode=True
)
"""Nobody has a gift; a sheriff at a small table."""

GODS = Preset(
    name="6p_gods", deck=deck(wolf_king=2, seer=1, witch=1, hunter=1, guard=1), round_limit=4, witch_self_save=True
)
"""No villagers."""

ONE_DAY = Preset(
    name="7p_one_day",
    deck=deck(wolf=2, wolf_king=1, seer=1, hunter=1, villager=2),
    round_limit=1,
    sheriff=True,
    wolves_may_explode=True,
)
"""The round limit is reached at once, also by an explosion."""

IDIOTS = Preset(
    name="8p_idiots",
    deck=deck(wolf=1, white_wolf_king=2, idiot=3, knight=1, hunter=1),
    round_limit=6,
    sheriff=True,
    wolves_may_explode=True,
    may_abstain=False,
)
"""Votes that exile nobody, until nobody is left to vote for; explosions that take one along."""

TEST_PRESETS = (*PRESETS.values(), SEVEN, STRICT_ELECTION, EVERYTHING, GUNS, VILLAGERS, GODS, ONE_DAY, IDIOTS)

RIDING = (Option.EXPLODE, Option.WITHDRAW)
RIDING_RATE = 0.05
"""How often a random player takes an option that rides on a question: each one cuts a day or an election short."""

FOLLOWING_RATE = 0.7
"""How often a seat of a herd chooses as the others of its herd do."""

Chooser = Callable[[Request], Action]
Step = tuple[GameState, Mapping[int, Action], GameState]
"""A state, the actions taken in it, and the next state."""


def random_action(request: Request, rng: random.Random) -> Action:
    """A legal answer: any choice, those that ride along seldom."""
    riding = [option for option in request.options if option in RIDING]
    if riding and rng.random() < RIDING_RATE:
        choice = rng.choice(riding)
    else:
        choice = rng.choice([choice for choice in choices(request) if choice not in riding])
    return Action(choice, rng.choice(("", "我是好人", "我怀疑2号")) if request.speaks else "")


def herd_action(request: Request, rng: random.Random, play_seed: int) -> Action:
    """As ``random_action``, but most seats choose alike, so that votes are clear and riding options come in pairs."""
    leader = random.Random(f"{play_seed}/{request.day}/{request.phase}")
    favourite = leader.choice((Option.EXPLODE, Option.WITHDRAW, Option.RUN, Option.SAVE, *range(1, 13), *range(1, 13)))
    if favourite in choices(request) and rng.random() < FOLLOWING_RATE:
        return Action(favourite)
    return random_action(request, rng)


def answer_all(state: GameState, choose: Chooser) -> dict[int, Action]:
    """The answer of ``choose`` to every question that is put now."""
    return {request.seat: choose(request) for request in pending(state)}


def steps(state: GameState, choose: Chooser) -> Iterator[Step]:
    """The steps of a game until it ends."""
    while winner(state) is None:
        actions = answer_all(state, choose)
        following = apply(state, actions)
        yield state, actions, following
        state = following


def random_steps(preset: Preset, seed: int, play_seed: int) -> Iterator[Step]:
    """A game of random players."""
    rng = random.Random(play_seed)
    return steps(new_game(preset, seed), lambda request: random_action(request, rng))


def herd_steps(preset: Preset, seed: int, play_seed: int) -> Iterator[Step]:
    """A game of random players that mostly choose alike."""
    rng = random.Random(play_seed)
    return steps(new_game(preset, seed), lambda request: herd_action(request, rng, play_seed))


def brain_steps(preset: Preset, seed: int, brain: NewBrain) -> Iterator[Step]:
    """A game in which every seat is played by ``brain`` from what it sees."""
    brains = {seat: brain(random.Random(f"{seed}/{seat}")) for seat in preset.seats}
    state = new_game(preset, seed)
    while winner(state) is None:
        actions = {r.seat: brains[r.seat].act(observe(state, r.seat)) for r in pending(state)}
        following = apply(state, actions)
        yield state, actions, following
        state = following


def play_brains(preset: Preset, seed: int, brain: str | NewBrain = "scripted") -> GameState:
    """The end of a game in which every seat is played by ``brain``."""
    return play_locally(preset, seed, seeded_brains(preset, seed, dict.fromkeys(Side, brain)))
