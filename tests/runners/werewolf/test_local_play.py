"""``python -m runners.werewolf play``: games without a hub, from the command line."""

import io
import json
import subprocess
import sys

import pytest

from runners.werewolf.__main__ import parse_arguments
from runners.werewolf.game import PRESETS, Side, new_game, pending
from runners.werewolf.local import Person, play_locally, seeded_brains


def run_play(capsys, *arguments):
    options = parse_arguments(["play", *arguments])
    status = options.run(options)
    return status, *capsys.readouterr()


def test_the_documented_command_prints_a_whole_game_without_heavy_imports():
    """As a new user types it; neither hub, nor model, nor the frameworks that take seconds to load."""
    arguments = ["play", "--preset", "12p_sheriff", "--seed", "7", "--players", "scripted"]
    code = (
        "import runpy, sys\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    runpy.run_module('runners.werewolf', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        "loaded = {'agentlightning', 'agentscope', 'transformers', 'torch'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("# 12p_sheriff，种子7，上帝视角") and "## 结果：" in finished.stdout


def test_json_and_a_seats_view_of_a_game_by_other_rules(capsys, tmp_path):
    path = tmp_path / "game.json"
    written = ("--format", "json", "--output", str(path), "--rule", "win_rule=parity", "--rule", "round_limit=4")
    status, printed, told = run_play(capsys, "--preset", "9p", "--view", "3", *written)
    assert (status, printed) == (0, "") and str(path) in told
    data = json.loads(path.read_text())
    assert data["viewer"] == 3 and set(data["roles"]) == {"3"} and data["result"]
    assert (data["rules"]["win_rule"], data["rules"]["round_limit"]) == ("parity", 4)


def test_a_person_plays_a_seat_with_the_prompts_of_a_model():
    preset, seed = PRESETS["5p_tiny"], 2
    state = new_game(preset, seed)
    seat = next(request.seat for request in pending(state))
    shown, typed = [], iter(["什么", "弃票吧", *["不查验", "空刀", "我是好人", "弃票", "2号", "过"] * 50])
    brains = seeded_brains(preset, seed, dict.fromkeys(Side, "scripted"))
    brains[seat] = Person(preset, lambda prompt: next(typed), shown.append)
    play_locally(preset, seed, brains)
    assert f"你是{seat}号" in shown[0]
    assert any("无效" in words for words in shown)  # it is told what was wrong and asked again


def test_a_person_may_leave(capsys, monkeypatch, tmp_path):
    (tmp_path / "earlier").touch()
    for name in ("new", "earlier"):
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        output = ("--output", str(tmp_path / name))
        status, _, told = run_play(capsys, "--preset", "5p_tiny", "--human", "1", *output)
        assert status == 130 and "interrupted" in told
    assert [path.name for path in tmp_path.iterdir()] == ["earlier"]


def test_half_a_character_of_a_terminal_ends_no_game(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\304\343\n"), encoding="utf-8"))
    status, _, told = run_play(capsys, "--preset", "5p_tiny", "--human", "4", "--output", str(tmp_path / "new"))
    assert status == 130 and "interrupted" in told and not any(tmp_path.iterdir())


def test_what_cannot_be_written_or_listened_on_is_refused_at_once(capsys, tmp_path):
    assert "Is a directory" in run_play(capsys, "--seed", "5", "--output", str(tmp_path))[2]
    with pytest.raises(SystemExit):
        parse_arguments(["web", "--port", "99999"])
    assert "'99999' is not an integer from 0 to 65535" in capsys.readouterr().err
    for written in ("0", "nan", "9" * 400 + ".5", "9" * 5000):
        with pytest.raises(SystemExit):
            parse_arguments(["--n", written])
        assert "is not an integer of at least 1" in capsys.readouterr().err
    for written in ("inf", "nan", "-1"):
        with pytest.raises(SystemExit):
            parse_arguments(["--idle-exit", written])
        assert "is not a number of at least 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_arguments(["web", "--port", "9" * 400])  # larger than any float
    assert "is not an integer from 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_arguments(["--dry-run", "play"])
    assert "omit play and web" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_arguments(["--endpoint", "http://127.0.0.1:8000/v1", "--model", "policy"])
    assert "need --dry-run" in capsys.readouterr().err
