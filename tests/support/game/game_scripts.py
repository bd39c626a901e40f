"""Games as short scripts: a script has the relevant actions, everybody else takes the declared default.

One line for one phase, ``phase: seat=choice ...``, and blanks or more lines between the answers; a semicolon ends a
line, too::

    night_actions:  4=5  9,10,11=5      seat 4 guards 5, three wolves hit 5
    witch_action:   2=save
    campaign:       1=「我是预言家」  9=withdraw「过」
    shot:           3=12  12=pass

A choice is a seat, the value of an ``Option``, or ``pass``. Seats that are not named, and phases without a line,
take the default (nobody, and silence). A line answers everything that is asked until its phase is left, so the
rounds of the wolves' talk or a chain of shots are one line; ``9=5/6`` answers 5 first and 6 from then on.
"""

import re
from collections.abc import Iterator, Mapping

from runners.werewolf.game import (
    Action,
    Event,
    EventKind,
    GameState,
    Option,
    Phase,
    Request,
    apply,
    new_game,
    pending,
)
from tests.support.game.game_playing import TWELVE, deck

TWELVE_DEAL = deck(seer=1, witch=1, hunter=1, guard=1, villager=4, wolf=3, wolf_king=1)
"""1 seer, 2 witch, 3 hunter, 4 guard, 5 to 8 villagers, 9 to 11 wolves, 12 wolf king."""

Answers = Mapping[int, tuple[Action, ...]]
"""seat -> its answers, one after the other; the last of them again and again."""

_ANSWER = re.compile(r"(?P<seats>\d+(?:,\d+)*)=(?P<choices>[\w/]*)(?:「(?P<text>[^」]*)」)?")


def read_script(script: str) -> Iterator[tuple[Phase, Answers]]:
    """The lines of a script. ValueError for one that says nothing sensible."""
    for line in re.split(r"[\n;]\s*(?=\w+:)", f"\n{script.strip()}")[1:]:
        name, _, words = line.partition(":")
        if (rest := _ANSWER.sub("", words).strip()) != "":
            raise ValueError(f"cannot read {rest!r} in {line!r}")
        answers = {}
        for match in _ANSWER.finditer(words):
            told = tuple(Action(_choice(word), match["text"] or "") for word in match["choices"].split("/"))
            answers.update(dict.fromkeys(map(int, match["seats"].split(",")), told))
        yield Phase(name), answers


def _choice(word: str) -> int | Option | None:
    if word in ("", "pass"):
        return None
    return int(word) if word.isdigit() else Option(word)


def play(state: GameState, script: str) -> GameState:
    """The game after the last line of ``script``.

    ValueError for a line whose phase does not come, or that answers for a seat that is not asked: such a script
    would not tell what it says.
    """
    for phase, answers in read_script(script):
        while state.phase is not phase:
            if state.result is not None:
                raise ValueError(f"the game ended ({state.result}) before {phase}")
            state = step(state)
        given: dict[int, int] = dict.fromkeys(answers, 0)
        day = state.day
        while (state.phase, state.day) == (phase, day) and (requests := pending(state)):
            actions = {}
            for request in requests:
                actions[request.seat] = request.default
                if told := answers.get(request.seat):
                    actions[request.seat] = told[min(given[request.seat], len(told) - 1)]
                    given[request.seat] += 1
            state = apply(state, actions)
        unasked = [seat for seat, times in given.items() if not times]
        if unasked:
            raise ValueError(f"{phase} of day {day}: seats {unasked} were not asked")
    return state


def twelve(script: str, seed: int = 0) -> GameState:
    """``script`` played in 12p_sheriff with TWELVE_DEAL."""
    return play(new_game(TWELVE, seed, TWELVE_DEAL), script)


def step(state: GameState) -> GameState:
    """The game after everybody that is asked now took the default."""
    return apply(state, {request.seat: request.default for request in pending(state)})


def until(state: GameState, phase: Phase) -> GameState:
    """The game at ``phase``, defaults taken until then."""
    while state.phase is not phase:
        state = step(state)
    return state


def question(state: GameState, seat: int) -> Request:
    """What ``seat`` is asked now."""
    return next(request for request in pending(state) if request.seat == seat)


def all_of(state: GameState, kind: EventKind) -> list[Event]:
    """Every event of a kind."""
    return [event for event in state.events if event.kind is kind]


def last(state: GameState, kind: EventKind) -> Event:
    """The latest event of a kind."""
    return all_of(state, kind)[-1]
