"""Counts nonsensical speeches and actions in games of scripted players."""

import re
from collections import Counter

from runners.werewolf.game import SPEECHES, EventKind, GameState, Role
from runners.werewolf.language.lexicon import seats_in
from runners.werewolf.language.speech import understand

_JUDGES_A_SPEECH = re.compile(
    "发言(?!再|看|再定)(?:像|有|不|太)|划水|聊了|逻辑|视角|心态|带节奏|踩人|打人|站边太|抗推|听着|自己的判断|像在躲"
)
_JUMPS = re.compile("我起?跳")
KINDS = (
    "judges what was not said",
    "checks whom it wants exiled",
    "jumps again",
    "follows whom it accuses",
    "votes against its own call",
)


def nonsense(state: GameState) -> tuple[Counter[str], Counter[str]]:
    """(occurrences, occasions) of each of ``KINDS`` in a game."""
    found, of = Counter(dict.fromkeys(KINDS, 0)), Counter(dict.fromkeys(KINDS, 0))
    spoken, seers, dead, calls = set(), set(), set(), {}

    def count(kind: str, occurs: bool) -> None:
        of[kind] += 1
        found[kind] += occurs

    for event in state.events:
        dead.update(event.dead)
        if event.kind in SPEECHES:
            heard = understand(event.text)
            for sentence in re.split("(?<=。)", event.text):
                for seat in seats_in(sentence) if _JUDGES_A_SPEECH.search(sentence) else ():
                    count(KINDS[0], seat not in spoken)
            if heard.next_checks:
                count(KINDS[1], not heard.accused.isdisjoint(heard.next_checks))
            if heard.claimed is Role.SEER and event.seat in seers:
                count(KINDS[2], _JUMPS.search(event.text) is not None)
            if heard.followed is not None and heard.accused:
                count(KINDS[3], heard.followed in heard.accused)
            spoken.add(event.seat)
            seers |= {event.seat} if heard.claimed is Role.SEER else set()
        if event.kind is EventKind.CLOSING_SPEECH and event.target is not None:
            calls[event.seat, event.day] = event.target
        elif event.kind is EventKind.VOTE and (event.seat, event.day) in calls:  # but for a PK
            called = calls.pop((event.seat, event.day))
            if called not in dead:  # in a duel since the call
                count(KINDS[4], event.target != called)
    return found, of
