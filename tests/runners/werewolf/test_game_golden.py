"""Replays seeded games and compares them with the playthroughs in tests/golden, which a person can read.

They lock the deal, every draw, the scripted players, what is asked, who learns what, and the Chinese text.
After a change that is meant to show there, write them anew and read the diff:

    UPDATE_GOLDEN=1 python -m pytest tests/runners/werewolf/test_game_golden.py
"""

import os
import random
from pathlib import Path

import pytest
from game_playing import TINY

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import apply, choices, new_game, observe, pending, winner
from runners.werewolf.prompts_zh import render_event, rules_prompt
from runners.werewolf.replies import render_reply
from runners.werewolf.transcript import render_transcript

GOLDEN = Path(__file__).parents[2] / "golden"
SEEDS = (1, 2, 13)
"""A seer that falls in the first night; a wolf that poses as the seer; a PK that exiles nobody."""


def playthrough(seed: int) -> str:
    state = new_game(TINY, seed)
    brains = {seat: ScriptedBrain(random.Random(f"{seed}/{seat}")) for seat in TINY.seats}
    lines = [f"preset {TINY.name}, seed {seed}, scripted players", "", rules_prompt(TINY), ""]
    shown = 0
    while True:
        requests = pending(state)
        for event in state.events[shown:]:
            audience = "all" if event.audience is None else ",".join(map(str, sorted(event.audience)))
            lines.append(f"  {event.kind.value} -> {audience}: {render_event(event)}")
        shown = len(state.events)
        if not requests:
            break
        lines.append(f"[day {state.day}, {state.phase.value}, living {','.join(map(str, sorted(state.living)))}]")
        actions = {}
        for request in requests:
            actions[request.seat] = brains[request.seat].act(observe(state, request.seat))
            options = "speech" if request.speaks else "/".join(str(target or "none") for target in choices(request))
            reply = render_reply(actions[request.seat], request)
            lines.append(f"  ask {request.seat} {request.decision.value} ({options}) = {reply}")
        state = apply(state, actions)
    lines += [f"result: {winner(state).value}", "", render_transcript(TINY, seed, state.events, winner(state))]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", SEEDS)
def test_playthrough(seed):
    path = GOLDEN / f"{TINY.name}_seed{seed}.txt"
    played = playthrough(seed)
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(played, encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == played.splitlines()
