"""The algorithm's command line: what is refused before anything starts."""

import pytest

from algo import werewolf_verl


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["werewolf_verl", *arguments])
    code = werewolf_verl.main()
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.stepz=3", "did you mean 'steps'"),
        ("model.path=/nowhere", "/nowhere"),
        ("advantage.estimator=grpoo", "grpoo"),
        ("training.policy_loss=nonsense", "nonsense"),
        ("game.games_per_group=1", "at least 2"),
    ],
)
def test_what_cannot_work_is_refused_by_name(monkeypatch, capsys, tiny_model, tmp_path, override, message):
    settings = ["--set", f"model.path={tiny_model}", "--set", f"run.dir={tmp_path}", "--set", override]
    code, _, errors = run(monkeypatch, capsys, *settings)
    assert code == 2 and errors.startswith("error: ") and message in errors
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_can_be_printed_and_read_again(monkeypatch, capsys, tmp_path):
    from configs.loading import load_config

    code, printed, _ = run(monkeypatch, capsys, "--set", "run.steps=9", "--print-config")
    (tmp_path / "printed.yaml").write_text(printed)
    assert code == 0 and load_config(tmp_path / "printed.yaml") == load_config(None, ["run.steps=9"])


def test_an_earlier_run_is_never_overwritten(tmp_path):
    from configs.loading import load_config

    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine"])
    names = [werewolf_verl.new_run_folder(config).run.name for _ in range(3)]
    assert names == ["mine", "mine-2", "mine-3"]
