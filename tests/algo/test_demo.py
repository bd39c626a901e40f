"""The demo's command lines, and what it shows at its end."""

import json

import pytest
from rich.console import Console

from algo import werewolf_sft, werewolf_verl
from algo.demo import (
    DEMO_CONFIG,
    parse_arguments,
    training_command,
    warm_start_command,
)
from algo.evaluation.before_after import shortest_game, show_before_and_after
from configs.loading import load_config
from tests.support.algo.evaluations import make_evaluation, make_game

HUB = "http://127.0.0.1:4747"


def test_its_commands_are_those_of_the_terminals(tmp_path):
    model = tmp_path / "tiny_model"
    options = parse_arguments(["--runs-dir", str(tmp_path), "--steps", "2", "--set", "evaluation.deals=7"])
    for module, command in (
        (werewolf_sft, warm_start_command(options, "demo-1", HUB, model)),
        (werewolf_verl, training_command(options, "demo-1", HUB, model)),
    ):
        assert command[1:3] == ["-m", module.__name__]
        parsed = module.parse_arguments(command[3:])
        config = load_config(parsed.config, parsed.overrides)
        assert (config.run_dir, config.store.url, config.model.path) == (tmp_path / "demo-1", HUB, model)
        assert config.evaluation.deals == 7 and parsed.config == DEMO_CONFIG
        assert (config.run.steps == 2) == (module is werewolf_verl)
    steps = load_config(DEMO_CONFIG).run.steps
    parsed = werewolf_verl.parse_arguments(training_command(parse_arguments([]), "demo-1", HUB, model)[3:])
    assert load_config(parsed.config, parsed.overrides).run.steps == steps != 2


@pytest.fixture
def folders(tmp_path):
    run_dir, warm_start_dir = tmp_path / "demo-1", tmp_path / "demo-1-warm-start"
    for step, results, invalid in ((0, ("good", "good"), 2), (2, ("wolf", "good"), 1)):
        games = [
            make_game(results[0], "policy", "scripted", 1, invalid=invalid),
            make_game(results[1], "policy", "scripted", 3),
            make_game("good", "scripted", "policy", 1),
            make_game("good", "scripted", "policy", 3),
        ]
        evaluation = make_evaluation(f"step {step}", step, games=tuple(games))
        evaluation.write(run_dir / "evaluations" / f"step-{step:06d}.json")
    for name, text in {
        "step-0001/a": "短",
        "step-0002/b": "第一夜，狼人杀了[red]3号[/]",
        "step-0002/c": "第二天" * 9,
    }.items():
        path = run_dir / "transcripts" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    warm_start_dir.mkdir()
    (warm_start_dir / "summary.json").write_text(json.dumps({"held_out_loss": [7.271, 1.62, 0.398]}))
    return run_dir, warm_start_dir


def test_the_end_shows_before_and_after_and_a_short_game_of_the_last_step(folders, capsys):
    run_dir, warm_start_dir = folders
    show_before_and_after(run_dir, warm_start_dir, Console(width=120))
    shown = capsys.readouterr().out
    rows = {cells[1].strip(): (cells[2].strip(), cells[3].strip()) for line in shown.splitlines()
            if len(cells := line.replace("┃", "│").split("│")) == 5}  # fmt: skip
    assert rows["imitation: held-out loss, nats a token"] == ("7.27", "0.40")
    before, after = rows["training: games won as wolf against scripted"]
    assert before.startswith("0 % (0–") and after.startswith("50 % (9–91)")
    assert rows["training: games won as good against scripted"][0].startswith("100 %")
    # 16 turns of the policy: 2 a seat, of the wolf in two games and of three others in two.
    valid = rows["training: valid replies"]
    assert [cell.split(" ")[0] for cell in valid] == ["88", "94"]
    low, high = valid[0].split("(")[1].rstrip(")").split("–")
    assert int(low) < 88 <= int(high) <= 100
    assert "狼人杀了[red]3号[/]" in shown and "第二天" not in shown and "短" not in shown
    assert shortest_game(run_dir).name == "b.txt"


def test_a_pretrained_model_has_a_column_of_its_own(folders, tmp_path, capsys):
    pretrained = make_evaluation("pretrained", 0, games=(make_game("wolf", "scripted", "policy", 1, invalid=2),))
    pretrained.write(tmp_path / "demo-1-evaluation" / "evaluations" / "0000-pretrained.json")
    show_before_and_after(*folders, Console(width=140), tmp_path / "demo-1-evaluation")
    rows = {cells[1].strip(): [cell.strip().split(" ")[0] for cell in cells[2:5]] for line in
            capsys.readouterr().out.splitlines() if len(cells := line.replace("┃", "│").split("│")) == 6}  # fmt: skip
    assert rows[""] == ["pretrained", "imitated", "trained"]
    assert rows["imitation: held-out loss, nats a token"] == ["7.27", "0.40", ""]
    assert rows["evaluation: valid replies"] == ["67", "88", "94"]
    assert rows["evaluation: games won as good against scripted"] == ["0", "100", "100"]
    assert rows["evaluation: games won as wolf against scripted"] == ["–", "0", "50"]


def test_without_imitation_and_evaluation_there_is_still_a_game(tmp_path, folders, capsys):
    run_dir, _ = folders
    for file in (run_dir / "evaluations").iterdir():
        file.unlink()
    show_before_and_after(run_dir, None, Console(width=120))
    shown = capsys.readouterr().out
    assert "What came of it" not in shown and "held-out" not in shown and "第一夜" in shown
    assert shortest_game(tmp_path / "nothing") is None
