"""Replays games and compares them with the playthroughs in tests/golden, which a person can read.

Seeded games of scripted players lock the deal, every draw, the players, who learns what, and the Chinese text.
Short games with every answer written down (golden_scripts) show the rules that seldom apply. After a change that
is meant to show there, write them anew and read the diff:

    UPDATE_GOLDEN=1 python -m pytest tests/runners/werewolf/game/test_golden.py
"""

import os
from pathlib import Path

import pytest

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import PRESETS, Event, new_game, pending, winner
from runners.werewolf.language.replies import render_reply
from runners.werewolf.prompts_zh.names import seat_name
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.record import render_event
from runners.werewolf.prompts_zh.system import rules_prompt
from runners.werewolf.transcript import game_text
from tests.support.game.game_playing import TINY, brain_steps, play_brains
from tests.support.game.game_scripts import play
from tests.support.game.golden_scripts import RARE_RULES, Scripted

GOLDEN = Path(__file__).parents[3] / "golden"

SEEDED = {"5p_tiny": (20,), "7p": (66,), "9p": (33,), "12p_sheriff": (29, 325)}
"""preset -> seeds, chosen for much that happens: potions, PKs, explosions, an election put off, shots, the badge."""


def compare(name: str, text: str) -> None:
    """Hold ``text`` against the golden file, or write it there when asked to."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == text.splitlines()


@pytest.mark.parametrize(("preset", "seed"), [(name, seed) for name, seeds in SEEDED.items() for seed in seeds])
def test_a_seeded_game_of_scripted_players(preset, seed):
    state = play_brains(PRESETS[preset], seed, ScriptedBrain)
    text = game_text(state)
    compare(f"{preset}_seed{seed}", f"{rules_prompt(PRESETS[preset])}\n\n{text}")


def test_every_question_and_answer_of_a_seeded_game():
    """What was asked of whom in which words, and answered in which words, between the events and who heard them."""
    lines: list[str] = []
    shown = 0
    for before, actions, state in brain_steps(TINY, 0, ScriptedBrain):
        lines += map(told, before.events[shown:])
        shown = len(before.events)
        for request in pending(before):
            lines += [f"问　{render_question(request)}", f"答　{render_reply(actions[request.seat], request)}"]
        if winner(state) is not None:
            lines += map(told, state.events[shown:])
    compare(f"questions_{TINY.name}", "\n".join(lines) + "\n")


def told(event: Event) -> str:
    heard = "全场" if event.audience is None else f"仅{'、'.join(map(seat_name, sorted(event.audience)))}"
    return f"{heard}　{render_event(event)}"


@pytest.mark.parametrize(("name", "game"), RARE_RULES.items(), ids=RARE_RULES)
def test_a_rule_that_seldom_applies(name: str, game: Scripted):
    state = play(new_game(game.preset, game.seed, game.roles), game.script)
    assert winner(state) is not None
    script = "\n".join(line.strip() for line in game.script.strip().splitlines())
    views = [game_text(state, viewer) for viewer in (None, *game.views)]
    compare(f"rule_{name}", "\n".join([game.shows, "", script, "", *views]))


def test_every_golden_file_is_replayed():
    names = {f"{preset}_seed{seed}" for preset, seeds in SEEDED.items() for seed in seeds}
    names |= {f"rule_{name}" for name in RARE_RULES} | {f"questions_{TINY.name}"}
    assert {path.stem for path in GOLDEN.iterdir()} == names
