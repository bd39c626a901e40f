"""Very many games, every step of each held against every invariant, in as many processes as there are cores.

    python -m pytest -m endurance -s tests/runners/werewolf/game/test_endurance.py

plays ENDURANCE_GAMES games (100,000 unless the environment says otherwise) of random players over all presets, a fifth
as many of scripted and a twentieth of expert players over the shipped ones. A default run plays two hundred: as many as
reach everything.
"""

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor

import pytest

from runners.werewolf.brains import BRAINS
from runners.werewolf.game import (
    PRESETS,
    BadgeLost,
    Decision,
    EventKind,
    Option,
    Phase,
    Preset,
    Result,
    new_game,
    pending,
    winner,
)
from tests.support.game.game_invariants import check_invariants, check_start
from tests.support.game.game_playing import TEST_PRESETS, Step, brain_steps, herd_steps, random_steps, steps
from tests.support.game.game_record import check_record

GAMES = int(os.environ.get("ENDURANCE_GAMES", "100000"))
SHORT_RUN = 5
"""Games of a preset and kind of random players in a default run."""
CHUNK = 20
"""Games that a process plays before it reports."""
PLAYERS: Mapping[str, Callable[[Preset, int, int], Iterator[Step]]] = {
    "random": random_steps,
    "herd": herd_steps,
    "silent": lambda preset, seed, play_seed: steps(new_game(preset, seed), lambda request: request.default),
    "scripted": lambda preset, seed, play_seed: brain_steps(preset, seed, BRAINS["scripted"]),
    "expert": lambda preset, seed, play_seed: brain_steps(preset, seed, BRAINS["expert"]),
}
OF_ALL_GAMES = {"random": 0.5, "herd": 0.5, "scripted": 0.2, "expert": 0.05}
"""Share of the games that each kind of players plays, divided among the presets."""
ALL = [
    *((preset, players) for preset in TEST_PRESETS for players in ("random", "herd")),
    *((preset, players) for preset in PRESETS.values() for players in ("scripted", "expert")),
]


def play_games(preset: Preset, players: str, seeds: range) -> Counter[str]:
    """Play and check one game for each seed. Returns how often each result, event, question and option occurred."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            state = new_game(preset, seed)
            check_start(state)
            for before, actions, after in PLAYERS[players](preset, seed, seed):
                check_invariants(before, actions, after)
                seen[repr(before.phase)] += 1
                seen.update(repr(request.decision) for request in pending(before))
                seen.update(repr(action.choice) for action in actions.values() if isinstance(action.choice, Option))
                state = after
            check_record(state)
        except AssertionError as error:
            error.add_note(f"preset {preset.name}, {players} players, seed {seed}")
            raise
        seen[repr(winner(state))] += 1
        seen.update(repr(event.kind) for event in state.events)
        seen.update(repr(BadgeLost(e.data["reason"])) for e in state.events if e.kind is EventKind.BADGE_LOST)
    return seen


@pytest.fixture(scope="module")
def pool():
    # Spawned, so that the workers share nothing with a test process that has threads.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def test_two_hundred_games_are_in_order_and_reach_everything():
    games = {"random": SHORT_RUN, "herd": SHORT_RUN, "silent": 1}
    played = (play_games(preset, how, range(count)) for preset in TEST_PRESETS for how, count in games.items())
    seen = sum(played, start=Counter())
    asking = set(Phase) - {Phase.NIGHTFALL, Phase.DAWN, Phase.ANNOUNCEMENT, Phase.AFTERMATH, Phase.GAME_OVER}
    everything = {repr(value) for kind in (EventKind, Decision, Option, BadgeLost, Result, asking) for value in kind}
    assert everything - set(seen) == set()


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("preset", "players"), ALL, ids=lambda one: getattr(one, "name", one))
def test_very_many_games(pool, preset, players):
    games = round(GAMES * OF_ALL_GAMES[players] / len(PRESETS if players in ("scripted", "expert") else TEST_PRESETS))
    chunks = [range(first, min(first + CHUNK, games)) for first in range(0, games, CHUNK)]
    for _ in pool.map(play_games, [preset] * len(chunks), [players] * len(chunks), chunks):
        pass
