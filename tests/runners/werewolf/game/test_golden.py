"""Replays games and compares them with the playthroughs in tests/golden, which a person can read.

Seeded games of scripted players lock the deal, every draw, the players, who learns what, and the Chinese text.
Short games show the rules that seldom apply: their files begin with what to look for, the table, and every answer that
matters. After a change that is meant to show, write all anew and read the diff:

    UPDATE_GOLDEN=1 python -m pytest tests/runners/werewolf/game/test_golden.py
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import PRESETS, Event, Preset, new_game, pending, winner
from runners.werewolf.language.replies import render_reply
from runners.werewolf.prompts_zh.names import seat_name
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.record import render_event
from runners.werewolf.prompts_zh.system import rules_prompt
from runners.werewolf.transcript import game_text
from tests.support.game.game_playing import TINY, brain_steps, deck, play_brains
from tests.support.game.game_scripts import play

GOLDEN = Path(__file__).parents[3] / "golden"

SEEDED = {
    "5p_tiny": (20,),
    "7p": (66,),
    "9p": (33,),
    "10p": (87,),
    "12p_sheriff": (29, 325),
    "12p_idiot": (110,),
    "12p_white_wolf_king": (19,),
    "12p_guard": (103,),
    "12p_knight": (189,),
}
"""preset -> seeds, chosen for much that happens: potions, PKs, explosions, an election put off, shots, the badge."""


TABLES = {
    "nine": Preset(
        name="9p_golden",
        deck=deck(seer=1, witch=1, hunter=1, guard=1, villager=2, wolf=2, wolf_king=1),
        round_limit=1,
        sheriff=True,
        wolf_talk_rounds=0,
        wolves_may_explode=True,
    ),
    "cards": Preset(
        name="9p_cards",
        deck=deck(seer=1, witch=1, hunter=1, idiot=1, villager=2, wolf=2, white_wolf_king=1),
        wolf_talk_rounds=0,
        wolves_may_explode=True,
    ),
    "knight": Preset(name="7p_knight", deck=deck(knight=1, villager=4, wolf=2), wolf_talk_rounds=0),
    "five": Preset(name="5p_golden", deck=deck(hunter=1, villager=3, wolf=1), round_limit=2),
    "tiny": replace(TINY, deck=deck(wolf=1, seer=1, villager=3)),
}
"""Of the short games, dealt in the order of the deck; nine: 1 seer, 2 witch, 3 hunter, 4 guard, 5 and 6 villagers,
7 and 8 wolves, 9 wolf king."""


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


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("rule_*.txt")), ids=lambda path: path.stem)
def test_a_rule_that_seldom_applies(path: Path):
    shows, settings, _, rest = path.read_text(encoding="utf-8").split("\n", 3)
    script, given = rest.partition("\n\n")[0], dict(setting.split("=") for setting in settings.split())
    table = TABLES[given["table"]]
    sheriff = table.sheriff or "sheriff" in given
    preset = replace(table, round_limit=int(given.get("round_limit", table.round_limit)), sheriff=sheriff)
    state = play(new_game(preset, int(given.get("seed", 0)), table.deck), script)
    assert winner(state) is not None
    viewers = (None, *map(int, filter(None, given.get("views", "").split(","))))
    views = [game_text(state, viewer) for viewer in viewers]
    compare(path.stem, "\n".join([shows, settings, "", script, "", *views]))


def test_every_golden_file_is_replayed():
    names = {f"{preset}_seed{seed}" for preset, seeds in SEEDED.items() for seed in seeds}
    others = {path.stem for path in GOLDEN.iterdir() if not path.stem.startswith("rule_")}
    assert others == names | {f"questions_{TINY.name}"}
