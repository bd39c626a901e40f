"""A learning run's folder, its stages' command lines, what is skipped, what is put aside, and how it ends.

The stages that run here are tiny stand-in commands; the real ones run in tests/end_to_end/test_learn.py.
"""

import os
import signal
import sys

import pytest

from algo import cross_table, werewolf_sft, werewolf_verl
from algo.learn import Stage, begin, check_configurations, main, parse_arguments, run_stages, stages_of
from algo.learning.record import LearningRecord
from algo.machine.processes import local_processes
from algo.werewolf.file_names import MODEL_FOLDER, SUMMARY_FILE
from configs.loading import CONFIG_DIR, load_config
from configs.section import ConfigError

HUB = "http://127.0.0.1:4747"


def begun(folder, *arguments):
    return begin(parse_arguments([*arguments, "--runs-dir", str(folder)]), [*arguments])


# --- its folder and its record ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["good", "both", "wolf"])
def test_a_learning_run_begins_with_what_was_asked_written_down(side, tmp_path):
    options = ["--side", side, "--seeds", "3", "1", "--set", "run.steps=7", "--set", "evaluation.deals=9"]
    directory = begun(tmp_path, *options, "--cross-table-deals", "5")
    assert directory.parent == tmp_path and directory.name.startswith(f"learn-{side}-")
    record = LearningRecord.read(directory)
    assert (record.side, record.seeds, record.steps, record.deals, record.cross_table_deals) == (side, (3, 1), 7, 9, 5)
    assert record.configuration.endswith(f"configs/learn_{side}.yaml") and record.overrides == tuple(options[-3::2])
    (command,) = record.commands
    assert command == f"python -m algo.learn {' '.join(options)} --cross-table-deals 5"
    assert {"python", "verl", "agentlightning"} < set(record.versions)
    config = load_config(directory / "config.yaml")
    assert config == load_config(CONFIG_DIR / f"learn_{side}.yaml", ["run.steps=7", "evaluation.deals=9"])
    last, *earlier = {"good": ["good"], "both": [""], "wolf": ["wolf", "bold"]}[side]
    written = {"warm_start.yaml": last, **{f"lesson-{n}.yaml": name for n, name in enumerate(earlier, 1)}}
    assert set(written) | {"config.yaml", "learn.json"} == {path.name for path in directory.iterdir()}
    for name, kind in written.items():
        given = f"learn_warm_start{kind and '_' + kind}.yaml"
        assert load_config(directory / name) == load_config(CONFIG_DIR / given, ["run.steps=7", "evaluation.deals=9"])


@pytest.mark.parametrize(
    ("options", "imitation"), [((), "_good"), (("--config", str(CONFIG_DIR / "learn_vote.yaml")), "")]
)
def test_which_imitation_comes_first_where_none_is_named(options, imitation, tmp_path):
    record = LearningRecord.read(begun(tmp_path, *options))
    assert (record.side, record.lesson_configurations) == ("good", ())
    assert record.warm_start_configuration.endswith(f"configs/learn_warm_start{imitation}.yaml")


def test_one_that_was_begun_is_gone_on_with_as_it_was_and_may_be_given_further_seeds(tmp_path):
    directory = begun(tmp_path, "--side", "good", "--set", "run.steps=7")
    assert begun(tmp_path, "--directory", str(directory), "--seeds", "2", "1") == directory
    record = LearningRecord.read(directory)
    assert (record.seeds, record.steps, len(record.commands)) == ((1, 2), 7, 2)
    assert begun(tmp_path, "--directory", str(directory), "--side", "good") == directory
    others = (
        ["--side", "both"],
        ["--set", "run.steps=8"],
        ["--config", str(CONFIG_DIR / "learn_good.yaml")],
        ["--warm-start", str(CONFIG_DIR / "learn_warm_start.yaml")],
        ["--cross-table-deals", "100"],
        ["--warm-starts-of", str(directory)],
    )
    for options in others:
        with pytest.raises(ConfigError, match="goes on with the settings that it began with"):
            begun(tmp_path, "--directory", str(directory), *options)
    assert LearningRecord.read(directory).seeds == (1, 2)


def test_the_warm_starts_of_another_run_are_taken_over(tmp_path):
    other = begun(tmp_path, "--seeds", "1", "2", "--set", "warm_start.games=77")
    for stage in stages_of(other, LearningRecord.read(other), HUB):
        if stage.seed != 2:
            for path in stage.results:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("made")
    options = ["--warm-starts-of", str(other), "--set", "rollout.max_policy_lag=2", "--directory"]
    with pytest.raises(ConfigError, match="its warm start of seed 2 is not finished"):
        begun(tmp_path, *options, str(tmp_path / "both"), "--seeds", "1", "2")
    with pytest.raises(ConfigError, match="is no learning run"):
        begun(tmp_path, "--warm-starts-of", str(tmp_path))
    assert not (tmp_path / "both").exists()
    directory = begun(tmp_path, *options, str(tmp_path / "one"))
    assert load_config(directory / "warm_start.yaml") == load_config(other / "warm_start.yaml")
    assert load_config(directory / "config.yaml").rollout.max_policy_lag == 2
    stages = stages_of(directory, LearningRecord.read(directory), HUB)
    assert [stage.kind for stage in stages if not stage.is_done()] == ["training", "report"]


def test_the_curriculum_before_a_warm_start_is_taken_over_with_it(tmp_path):
    other = begun(tmp_path, "--side", "wolf")
    with pytest.raises(ConfigError, match="its tiny model is not finished"):
        begun(tmp_path, "--side", "wolf", "--warm-starts-of", str(other))
    for stage in stages_of(other, LearningRecord.read(other), HUB):
        for path in stage.results:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("made")
    options = ["--side", "wolf", "--warm-starts-of", str(other), "--directory", str(tmp_path / "one")]
    directory = begun(tmp_path, *options)
    for name in ("lesson-1.yaml", "warm_start.yaml"):
        assert load_config(directory / name) == load_config(other / name)
    stages = stages_of(directory, LearningRecord.read(directory), HUB)
    assert [stage.kind for stage in stages if not stage.is_done()] == ["training", "report"]


def test_a_model_that_is_there_is_learned_from_instead_of_a_tiny_one(tiny_model, tmp_path):
    file = tmp_path / "long.yaml"
    file.write_text((CONFIG_DIR / "learn_good.yaml").read_text().replace("runs/tiny_model", str(tiny_model)))
    imitation = tmp_path / "imitation.yaml"
    imitation.write_text(
        (CONFIG_DIR / "learn_warm_start_good.yaml").read_text().replace("runs/tiny_model", str(tiny_model))
    )
    directory = begun(tmp_path, "--config", str(file), "--warm-start", str(imitation))
    stages = stages_of(directory, LearningRecord.read(directory), HUB)
    assert [stage.kind for stage in stages] == ["warm start", "cross table", "training", "report"]
    assert f"model.path={tiny_model}" in stages[0].command
    imitation.write_text(imitation.read_text().replace(str(tiny_model), str(tmp_path)))
    with pytest.raises(ConfigError, match=r"model\.path .* lacks config\.json"):
        begun(tmp_path / "other", "--config", str(file), "--warm-start", str(imitation))
    assert not (tmp_path / "other").exists()


def test_resume_finds_the_newest(tmp_path):
    directory = begun(tmp_path)
    names = ("learn-wolf-20260101-000000", "learn-good-20260102-000000", "learn-wolf-20260103-000000")
    for name in names:
        (tmp_path / name).mkdir()
        for file in directory.iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "learn-wolf-20991231-000000").mkdir()  # of which nothing is known
    directory.rename(tmp_path / "elsewhere")
    assert begun(tmp_path, "--resume").name == names[2]
    LearningRecord.read(tmp_path / names[1]).model_copy(update={"side": "good"}).write(tmp_path / names[1])
    assert begun(tmp_path, "--resume", "--side", "good").name == names[1]
    with pytest.raises(ConfigError, match="no learning run to go on with"):
        begun(tmp_path / "nowhere", "--resume")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "1", "1"], "seeds are different numbers"),
        (["--seeds", "-1"], "none below 0"),
        (["--set", "evaluation.deals=0"], "compares before with after"),
        (["--set", "evaluation.at_start=false"], "compares before with after"),
        (["--config", "not-there.yaml"], "cannot read configuration not-there.yaml"),
        (["--set", "game.opponent=nobody"], "unknown player 'nobody'"),
    ],
)
def test_what_cannot_be_learned_is_refused_before_a_folder_is_made(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["learn", "--runs-dir", str(tmp_path), *options])
    assert main() == 2
    assert message in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="holds something that is no learning run"):
        begun(tmp_path, "--directory", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("option", ["--directory", "--warm-starts-of"])
def test_a_damaged_record_is_named(option, tmp_path, capsys, monkeypatch):
    (tmp_path / "learn.json").write_text("{}")
    (tmp_path / "warm_start.yaml").touch()
    monkeypatch.setattr("sys.argv", ["learn", option, str(tmp_path)])
    assert main() == 2 and f"{tmp_path / 'learn.json'} is damaged" in capsys.readouterr().err


def test_what_is_imitated_must_be_what_is_played():
    config, warm_start = (load_config(CONFIG_DIR / f"learn_{name}.yaml") for name in ("good", "warm_start_good"))
    check_configurations(config, warm_start)
    for setting, message in (
        ("rollout.reply_tokens=30", r"rollout.reply_tokens is 30 in the warm start and \d+ after it"),
        ("game.preset=9p", "game.preset is '9p'"),
        ("model.dtype=bfloat16", "sections model"),
        ("model.tiny_layers=2", "sections model"),
    ):
        other = load_config(CONFIG_DIR / "learn_warm_start_good.yaml", [setting])
        with pytest.raises(ConfigError, match=message):
            check_configurations(config, other)
    check_configurations(
        config, warm_start, [load_config(CONFIG_DIR / "learn_warm_start_good.yaml", ["game.preset=9p"])]
    )
    with pytest.raises(ConfigError, match="one model goes through all"):
        lesson = load_config(CONFIG_DIR / "learn_warm_start_good.yaml", ["model.dtype=bfloat16"])
        check_configurations(config, warm_start, [lesson])


# --- command lines ----------------------------------------------------------------------------------------------------


def test_every_stage_is_told_where_to_write_what_to_start_from_and_its_seed(tmp_path):
    directory = begun(tmp_path, "--side", "good", "--seeds", "4", "2", "--cross-table-deals", "6")
    stages = stages_of(directory, LearningRecord.read(directory), HUB)
    of_a_seed = ["warm start", "cross table", "training"]
    assert [(stage.kind, stage.seed) for stage in stages] == [
        ("tiny model", None), *((kind, seed) for seed in (4, 2) for kind in of_a_seed), ("report", None),
    ]  # fmt: skip
    assert stages[0].command[-3:] == (str(directory / "tiny_model"), "--layers", "3")
    assert stages[-1].command[-2:] == ("algo.learning.report", str(directory))
    warm, crossed, training = stages[4:7]
    for stage, module, folder, suffix, model in (
        (warm, werewolf_sft, "seed-2-warm-start", "-warm-start", "tiny_model"),
        (crossed, cross_table, "seed-2-cross-table", "-cross-table", "seed-2-warm-start/huggingface"),
        (training, werewolf_verl, "seed-2", "", "seed-2-warm-start/huggingface"),
    ):
        assert stage.command[:3] == (sys.executable, "-m", module.__name__)
        options = module.parse_arguments(list(stage.full_command()[3:]))
        config = load_config(options.config, options.overrides)
        assert config.run_dir.with_name(config.run.name + suffix) == directory / folder
        assert (config.run.seed, config.store.url, config.model.path) == (2, HUB, directory / model)
        assert stage.logs == directory / folder / "logs"
        expected = "warm_start.yaml" if stage is warm else "config.yaml"
        assert options.config == directory / expected
        # Each vLLM gets a port of its own, chosen when it starts.
        assert (stage.full_command() != stage.full_command()) == (stage is not warm)
    assert cross_table.parse_arguments(list(crossed.command[3:])).deals == 6
    assert werewolf_verl.parse_arguments(list(training.command[3:])).resume == "auto"
    assert warm.results[0] == warm.folder / SUMMARY_FILE
    assert warm.results[1].parent == warm.folder / MODEL_FOLDER
    assert training.results == () and training.folder is None  # it knows itself how far it is


def test_each_lesson_of_a_curriculum_begins_with_what_the_one_before_has_learned(tmp_path):
    files = [CONFIG_DIR / f"learn_warm_start{name}.yaml" for name in ("", "_bold", "_wolf")]
    directory = begun(tmp_path, "--side", "wolf", "--seeds", "5", "--warm-start", *map(str, files))
    record = LearningRecord.read(directory)
    assert [*record.lesson_configurations, record.warm_start_configuration] == list(map(os.path.relpath, files))
    imitations = stages_of(directory, record, HUB)[1:4]
    assert [stage.kind for stage in imitations] == ["lesson 1", "lesson 2", "warm start"]
    model = directory / "tiny_model"
    for stage, file, name in zip(imitations, files, ("seed-5-lesson-1", "seed-5-lesson-2", "seed-5"), strict=True):
        options = werewolf_sft.parse_arguments(list(stage.full_command()[3:]))
        config = load_config(options.config, options.overrides)
        assert (config.run.name, config.run.seed, config.model.path) == (name, 5, model)
        assert config.game == load_config(file).game
        assert stage.folder == directory / f"{name}-warm-start" and stage.results[0] == stage.folder / SUMMARY_FILE
        model = stage.folder / MODEL_FOLDER


# --- stages, played by stand-ins --------------------------------------------------------------------------------------


def stand_in(kind, where, code="", status=0, writes=True, **changes):
    """A stage that notes in ``ran`` that it ran, writes its result and ends with a status."""
    result = where / f"{kind}-run" / "result"
    script = f"""
import os, sys, time
open({str(where / "ran")!r}, "a").write("{kind} ")
os.makedirs({str(result.parent)!r}, exist_ok=True)
{code}
if {writes}: open({str(result)!r}, "w").close()
sys.exit({status})
"""
    fields = dict(logs=result.parent / "logs", results=(result,), folder=result.parent)
    return Stage(kind, 1, (sys.executable, "-c", script), **(fields | changes))


@pytest.fixture
def directory(tmp_path):
    return begun(tmp_path)


def run(stages, directory):
    with local_processes() as processes:
        return run_stages(processes, stages, directory)


def tries(directory):
    return [(each.stage, each.seed, each.exit_status) for each in LearningRecord.read(directory).stages]


def test_stages_run_in_order_and_say_what_comes_next(directory, capsys):
    assert run([stand_in("first", directory), stand_in("second", directory)], directory) == 0
    assert (directory / "ran").read_text() == "first second "
    assert tries(directory) == [("first", 1, 0), ("second", 1, 0)]
    record = LearningRecord.read(directory)
    assert record.minutes * 60 == pytest.approx(sum(stage.seconds for stage in record.stages))
    told = capsys.readouterr().err
    assert "stage 1 of 2: first of seed 1 (0.0 minutes so far; then second of seed 1)" in told
    assert "stage 2 of 2: second of seed 1 (0.0 minutes so far; the last one)" in told


def test_a_stage_that_fails_is_named_with_its_log_and_nothing_follows(directory, capsys):
    stages = [stand_in("first", directory, status=3), stand_in("second", directory)]
    assert run(stages, directory) == 3
    assert (directory / "ran").read_text() == "first " and tries(directory) == [("first", 1, 3)]
    told = capsys.readouterr().err
    assert f"the first of seed 1 failed: exit code 3; its log: {stages[0].logs}" in told
    assert str(directory / "logs") in told


def test_a_stage_that_leaves_no_result_has_failed(directory, capsys):
    stages = [stand_in("first", directory, writes=False), stand_in("second", directory)]
    assert run(stages, directory) == 1
    assert f"{stages[0].results[0]} was not written" in capsys.readouterr().err
    assert (directory / "ran").read_text() == "first "


def test_what_is_done_is_skipped_and_what_was_interrupted_begins_anew(directory, capsys):
    first, second = stand_in("first", directory), stand_in("second", directory, status=1, writes=False)
    assert run([first, second], directory) == 1
    (second.folder / "half").write_text("of the first try")
    second = stand_in("second", directory, code=f"assert not os.path.exists({str(second.folder / 'half')!r})")
    third = stand_in("third", directory, results=(), folder=None)
    assert run([first, second, third], directory) == 0
    assert (directory / "ran").read_text() == "first second second third "
    assert "stage 1 of 3: first of seed 1: done before" in capsys.readouterr().err
    assert (directory / "interrupted" / "second-run-1" / "half").read_text() == "of the first try"
    # One without results finds out by itself, and goes on with its folder.
    (directory / "third-run" / "half").write_text("x")
    assert run([first, second, third], directory) == 0
    assert (directory / "ran").read_text() == "first second second third third "
    assert (directory / "third-run" / "half").exists()
    assert [stage for stage, _, _ in tries(directory)] == ["first", "second", "second", "third", "third"]


def test_the_end_of_the_hub_ends_the_learning_run(directory, capsys):
    with local_processes() as processes:
        processes.start("hub", [sys.executable, "-c", "raise SystemExit(4)"], None)
        assert run_stages(processes, [stand_in("first", directory, code="time.sleep(600)")], directory) == 4
    assert "the hub ended with exit code 4" in capsys.readouterr().err


@pytest.mark.parametrize(("ending", "status"), [("fail", 5), ("ctrl-c", 130)])
def test_the_command_ends_with_the_status_and_says_how_to_go_on(ending, status, tmp_path, capsys, monkeypatch):
    def stages(directory, record, hub):
        assert hub == HUB and record.seeds == (1,)
        code = f"os.kill({os.getpid()}, {int(signal.SIGTERM)}); time.sleep(600)" if ending == "ctrl-c" else ""
        return [stand_in("first", directory, code=code, status=5)]

    monkeypatch.setattr("algo.learn.start_hub_and_runner", lambda processes, games, logs: HUB)
    monkeypatch.setattr("algo.learn.stages_of", stages)
    directory = tmp_path / "mine"
    monkeypatch.setattr("sys.argv", ["learn", "--directory", str(directory)])
    assert main() == status
    told = capsys.readouterr().err
    assert f"python -m algo.learn --directory {os.path.relpath(directory)}" in told
    assert ("interrupted; stopping everything" in told) == (ending == "ctrl-c")
