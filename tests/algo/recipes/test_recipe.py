"""Recipes: what files say, what a run of one does, and that one that is killed in any stage goes on with it.

Hub, runner and the programs of the stages are small stand-ins; with real ones: tests/end_to_end/test_recipe.py.
"""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from base64 import b64encode
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from algo.agents.evaluate import AttemptRow
from algo.evaluation.games import GameRow
from algo.evaluation.panel import PANELS, matches_of
from algo.evaluation.record import EVALUATIONS_FILE, Record
from algo.loop.startup import check_settings
from algo.machine.disk import DiskFull
from algo.recipe import main
from algo.recipes import runner
from algo.recipes.comparison import comparison_tables
from algo.recipes.recipe import read_recipe, stage_config
from algo.recipes.report import _against_each, _by_opponent, change_of, report_of, write_report
from algo.recipes.results import read_run
from algo.recipes.runner import begin, command_of, newest, read_recipe_folder, resume
from algo.run.checkpoints import lock_run
from configs.loading import load_config
from configs.section import ConfigError
from tests.support.algo.made_games import made_evaluation, made_row
from tests.support.processes import exit_status

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs/recipes").glob("*.yaml"))
SMALL = {
    "name": "small",
    "title": "What it learned",
    "config": {
        "run": {"steps": 3},
        "game": {"preset": "5p_tiny", "train_sides": ["good"], "opponent": "scripted"},
        "evaluation": {"deals": 3, "opponents": ["scripted"]},
    },
    "stages": [
        {"do": "build", "command": "{python} -c pass {model}"},
        {"do": "imitate"},
        {"do": "evaluate", "name": "place", "panel": "cross", "players": ["random", "policy"]},
        {"do": "train", "config": {"training": {"learning_rate": 0.5}}},
    ],
    "success": {"gain": 0.2, "or_beats_opponent": True},
}


def with_placement(**changes):
    """What changes its evaluation before training."""
    return {"stages": [stage | changes if stage["do"] == "evaluate" else stage for stage in SMALL["stages"]]}


def with_service(command):
    """What makes it a recipe of an agent that is an HTTP service."""
    local = {"service": command, "runner": "--service http://127.0.0.1:{port} {model}"}
    config = {"evaluation": {"tasks": 2}, "local": local}
    return {"workload": "agents", "config": config, "stages": [{"do": "train"}]}


def recipe_file(tmp_path, **changes):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def begun(tmp_path, seeds=None, **changes):
    return begin(recipe_file(tmp_path, **changes), [], seeds, tmp_path / "out", tmp_path, "command")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_can_be_run(path):
    found, below = read_recipe(path)
    overrides = ["frozen.target.path=somewhere"] if path.stem == "exploit" else []
    for stage in found.stages:
        config = stage_config(found, below, stage, overrides)
        if stage.do == "train":
            assert config.evaluation.enabled and config.evaluation.at_start and config.evaluation.at_end
            check_settings(config)
    assert found.stages[0].do == "build" or (ROOT / found.model / "config.json").is_file()
    assert [stage.do for stage in found.stages if stage.do != "speech"][-1] == "train"


def test_a_recipe_extends_another_key_by_key(tmp_path):
    recipe_file(tmp_path)
    (tmp_path / "more.yaml").write_text(
        yaml.safe_dump({"extends": "small.yaml", "name": "more", "config": {"game": {"train_sides": ["wolf"]}}})
    )
    more, below = read_recipe(tmp_path / "more.yaml")
    config = stage_config(more, below, more.stages[-1], ["run.steps=9"])
    assert (more.name, more.title, config.game.train_sides, config.run.steps) == (
        "more", "What it learned", ("wolf",), 9
    )  # fmt: skip
    assert (config.game.preset, config.training.learning_rate) == ("5p_tiny", 0.5)
    (tmp_path / "p.txt").write_text("{guidance}")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.yaml").write_text("game: {prompts: {wolf: w.txt}}")
    (tmp_path / "below" / "w.txt").write_text("狼")
    recipe_file(tmp_path, config={"game": {"prompts": {"system": "p.txt"}}}, config_file="below/c.yaml")
    with_files, below = read_recipe(tmp_path / "small.yaml")
    prompts = stage_config(with_files, below, with_files.stages[0], []).game.prompts
    assert prompts == {"wolf": tmp_path / "below/w.txt", "system": tmp_path / "p.txt"}
    (tmp_path / "below" / "child.yaml").write_text("extends: ../small.yaml\nconfig: {game: {prompts: {wolf: w.txt}}}")
    child, below = read_recipe(tmp_path / "below" / "child.yaml")
    assert stage_config(child, below, child.stages[0], []).game.prompts == prompts  # each relative to its own file
    (tmp_path / "more.yaml").write_text("extends: learn_good.yaml\nname: mine")  # a shipped one
    assert read_recipe(tmp_path / "more.yaml")[0].stages == read_recipe(Path("learn_good"))[0].stages
    (tmp_path / "more.yaml").write_text("extends: more.yaml")
    with pytest.raises(ConfigError, match="extends itself"):
        read_recipe(tmp_path / "more.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": [{"do": "imitate"}, {"do": "imitate"}]}, "names must be unique"),
        ({"config": {"evaluation": {"deals": 3, "at_end": False}}}, "compares before with after"),
        (
            {"config": {"evaluation": {"deals": 3}, "advantage": {"estimator": "rloo"}}},
            "estimator 'rloo' cannot be used",
        ),
        *(
            ({"config": {"evaluation": {"deals": 3}} | settings}, message)
            for settings, message in (
                ({"rollout": {"rollouts_per_group": 1}}, "rollouts_per_group must be at least 2"),
                ({"training": {"policy_loss": "nope"}}, "training.policy_loss 'nope' is not one of verl's"),
                ({"advantage": {"credit": "turn", "estimator": "gdpo"}}, "credit=turn does not work with .*gdpo"),
                ({"log": {"backends": ["clearml"]}}, r"log.backends \['clearml'\] cannot be used"),
                (
                    {"training": {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": "abc"}}},
                    "training.rollout_correction: ",
                ),
            )
        ),
        ({"config": {"run": {"stps": 3}}}, r"stage build of recipe small.*did you mean 'steps'"),
        ({"stages": [{"do": "build", "command": "{pyhton} x"}]}, "placeholders: {python}, {model}"),
        ({"name": "../else where"}, "name: String should match pattern"),
        ({"concurent_games": 8}, "unknown key 'concurent_games': did you mean 'concurrent_games'"),
        ({"stages": [{"do": "train"}, {"do": "train", "name": "more"}]}, "at most one stage train"),
        ({"stages": [{"do": "train"}, {"do": "evaluate", "name": "after"}]}, "after .evaluate. stands after train"),
        ({"stages": [{"do": "speech"}, {"do": "train"}]}, "stage speech needs a stage train before it"),
        ({"workload": "agents", "stages": SMALL["stages"][:1]}, "of agents has one stage train"),
        (with_service("x {nope}"), "local.service 'x {nope}' is no valid"),
        ({"stages": [{"do": "evaluate", "players": ["random"]}]}, "players needs panel: cross"),
        (with_placement(players=["randm"]), "stage place: unknown player 'randm': did you mean 'random'"),
        (with_placement(players=["random", "random"]), "stage place: names must be distinct, not random random"),
        (with_placement(config={"evaluation": {"deals": 0}}), "evaluation.deals is 0"),
        (with_placement(name="-x"), "name: String should match pattern"),
        ({"stages": SMALL["stages"][1:], "model": "nowhere"}, "its model nowhere does not exist"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        begun(tmp_path, **changes)
    assert not (tmp_path / "out").exists()


def test_settings_that_a_recipe_makes_itself_are_refused(tmp_path):
    refused = {"run.seed=5": "--seeds", "run={seed: 5}": "--seeds", "model.path=x": "model", "run.dir=x": "--directory"}
    for setting, remedy in refused.items():
        with pytest.raises(ConfigError, match=f"--set {setting}: .*{remedy}"):
            begin(recipe_file(tmp_path), [setting], None, tmp_path / "out", tmp_path, "command")


@pytest.mark.parametrize("folder", ["try #2", "[x]: y", "狼😀"])
def test_a_recipe_runs_in_any_folder_once_at_a_time(tmp_path, folder, monkeypatch, capsys):
    opened = begin(recipe_file(tmp_path), [], None, tmp_path / folder, tmp_path, "command")
    command = command_of(opened, opened.steps()[-1], "http://hub")
    settings = [text for name, text in pairwise(command) if name == "--set"]
    config = load_config(opened.directory / "train.yaml", settings)
    assert (config.run.dir, config.run.name) == (opened.directory, "seed-1")
    monkeypatch.setattr(runner, "_run_steps", lambda *given: 7)
    assert runner.run(opened) == 7
    told, copied = capsys.readouterr().err, shlex.quote(os.path.relpath(opened.directory))
    assert f"logs: {opened.directory / 'logs'}; " in told and told.endswith(f"--directory {copied}\n")
    with lock_run(opened.directory), pytest.raises(ConfigError, match="another process"):
        runner.run(opened)


def test_a_model_is_that_of_the_folder_in_which_the_recipe_began(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    config = {**SMALL["config"], "frozen": {"old": {"path": "mine"}}}
    opened = begun(tmp_path, model="mine", stages=SMALL["stages"][1:], config=config)
    monkeypatch.chdir("/")
    assert read_recipe_folder(opened.directory).steps()[0].model == tmp_path / "mine"
    assert load_config(opened.directory / "train.yaml").frozen["old"].path == tmp_path / "mine"


def test_each_stage_begins_with_what_the_one_before_has_learned(tmp_path):
    opened = begun(tmp_path, seeds=[1, 2])
    out = opened.directory
    steps = {step.title: step for step in opened.steps()}
    names = [f"{name} of seed {seed}" for seed in (1, 2) for name in ("imitate", "place", "train")]
    assert list(steps) == ["build", *names]
    learned = out / "seed-2-imitate-warm-start" / "huggingface"
    assert steps["imitate of seed 2"].model == out / "model"
    assert steps["place of seed 2"].model == steps["train of seed 2"].model == learned
    command = command_of(opened, steps["train of seed 2"], "http://hub")
    assert command[1:3] == ["-m", "algo.werewolf_verl"] and command[-4:].count("--set") == 2
    assert {'run.name="seed-2"', "run.seed=2", f'model.path="{learned}"', 'store.url="http://hub"'} <= set(command)
    assert "--resume" in command and str(out / "train.yaml") in command
    place = command_of(opened, steps["place of seed 1"], "http://hub")
    assert "algo.evaluate" in place and "cross" in place and place.count("random") == 1
    (tmp_path / "more").mkdir()
    more = begun(tmp_path / "more", stages=[*SMALL["stages"], {"do": "speech"}])
    speech = more.steps()[-1]
    command = ["-m", "algo.speech", str(more.directory / "seed-1"), "--model", str(more.directory / "model")]
    assert command_of(more, speech, "http://hub")[1:] == command
    assert speech.results == (more.directory / "seed-1/speech.json",)
    # As they were when it began, whatever becomes of the recipe's file.
    (tmp_path / "small.yaml").unlink()
    assert read_recipe_folder(out).config(opened.recipe.stages[-1]).training.learning_rate == 0.5


@pytest.mark.parametrize(("added", "seeds"), [([7, 7, 1], (1, 7)), ([7, -1], None)])
def test_seeds_that_are_added_are_valid_and_each_counts_once(tmp_path, added, seeds):
    folder = begun(tmp_path).directory
    if seeds is None:
        with pytest.raises(ConfigError, match="--seeds 7 -1: seeds must not be negative"):
            resume(folder, added, "command")
    else:
        with lock_run(folder), pytest.raises(ConfigError, match="another process"):
            resume(folder, added, "command")
        assert read_recipe_folder(folder).recipe.seeds == (1,)  # the recipe that runs is judged by its own
        assert resume(folder, added, "command").recipe.seeds == seeds
    assert read_recipe_folder(folder).recipe.seeds == (seeds or (1,))


def test_the_newest_run_of_a_recipe_is_none_of_another_whose_name_begins_alike(tmp_path):
    for number, (name, folder) in enumerate((("small", "small-lag"), ("small", "other"), ("small-more", "small-more"))):
        begin(recipe_file(tmp_path, name=name), [], None, tmp_path / folder, tmp_path, "command")
        os.utime(tmp_path / folder / "recipe.json", (number, number))
    assert newest(tmp_path, "small").name == "other"
    with pytest.raises(ConfigError, match="no run of the recipe 'sma'"):
        newest(tmp_path, "sma")


def test_a_recipe_that_cannot_be_begun_leaves_an_empty_folder(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("algo.recipes.runner._write", full)
    (tmp_path / "mine").mkdir()
    with pytest.raises(DiskFull, match="mine could not be written"):
        begin(recipe_file(tmp_path), [], None, tmp_path / "mine", tmp_path, "command")
    assert not any((tmp_path / "mine").iterdir())
    (tmp_path / "mine" / "recipe.json").write_text("[]")
    with pytest.raises(ConfigError, match="holds no recipe"):
        read_recipe_folder(tmp_path / "mine")


# --- killed in each stage ---------------------------------------------------------------------------------------------

STAND_IN = """
import json, sys, time
from pathlib import Path
given = dict(part.split("=", 1) for part in sys.argv if "=" in part)
name, directory = json.loads(given["run.name"]), Path(json.loads(given["run.dir"]))
imitates = "algo.werewolf_sft" in sys.argv
folder = directory / (name + ("-warm-start" if imitates else "-evaluation" if "algo.evaluate" in sys.argv else ""))
assert not (imitates and folder.exists()), "an imitation begins from its beginning"
folder.mkdir(exist_ok=True)
with (folder / "tries").open("a") as file:
    file.write("x")
if name == Path("stop-at").read_text() and (folder / "tries").read_text() == "x":
    Path("stopped").touch()
    time.sleep(600)
if imitates:
    (folder / "huggingface").mkdir()
    (folder / "huggingface" / "config.json").write_text("{}")
    (folder / "summary.json").write_text(json.dumps({"held_out_loss": [2.0, 1.0]}))
"""
RUN = """
import sys
from pathlib import Path
from algo.recipes import runner
runner.start_hub = lambda processes, logs: "http://hub"
runner.start_runner = lambda *given: None
def program(module, config, settings, *options):
    return (sys.executable, "stand_in.py", module, *settings)
runner.program = program
sys.exit(runner.run(runner.resume(Path("out"), None, "again")))
"""
BUILD_STAND_IN = """
import sys, time
from pathlib import Path
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
if Path("stop-at").read_text() == "build":
    Path("stopped").touch()
    time.sleep(600)
(folder / "config.json").write_text("{}")
"""


@pytest.mark.parametrize("stage", ["build", "seed-1-imitate", "seed-1"])
def test_a_run_that_is_killed_in_a_stage_goes_on_with_it(tmp_path, stage):
    stages = [{"do": "build", "command": "{python} build.py {model}"}, *SMALL["stages"][1:]]
    (tmp_path / "build.py").write_text(BUILD_STAND_IN)
    opened = begun(tmp_path, stages=stages)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "stop-at").write_text(stage)

    def started():
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-c", RUN], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)

    first = started()
    while not (tmp_path / "stopped").exists():
        assert first.poll() is None, first.stderr.read().decode()
        time.sleep(0.02)  # the file is another program's
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stderr.close()
    before = opened.done()
    (tmp_path / "stop-at").write_text("nothing")
    (opened.directory / "interrupted/seed-1-imitate-warm-start-2/kept").mkdir(parents=True)  # the user deleted -1
    again = started()
    told = again.communicate(timeout=100)[1].decode()
    assert again.returncode == 0, told
    assert opened.done() == {step.title for step in opened.steps()}
    for title in before:
        assert f"{title}: done before" in told
    tries = {path.parent.name: len(path.read_text()) for path in opened.directory.glob("seed-1*/tries")}
    assert tries == {
        "seed-1-imitate-warm-start": 1,  # what was interrupted lies aside
        "seed-1-place-evaluation": 1,
        "seed-1": 1 + (stage == "seed-1"),
    }
    assert len(list((opened.directory / "interrupted").glob("*"))) == 1 + (stage == "seed-1-imitate")


@pytest.mark.parametrize(("code", "why"), [(7, "exit code 7"), (0, "{}/model/config.json was not written")])
def test_a_stage_that_fails_ends_the_run_with_its_status(tmp_path, capsys, code, why):
    stages = [{"do": "build", "command": f"{{python}} -c 'import sys; sys.exit({code})' {{model}}"}, *SMALL["stages"]]
    file = recipe_file(tmp_path, stages=[stages[0], *stages[2:]])
    opened = begin(file, [], None, tmp_path / "[" / "x]", tmp_path, "command")
    assert runner.run(opened) == (code or 1)
    assert f"the stage build failed: {why.format(opened.directory)}\n" in capsys.readouterr().err
    assert [(one["step"], one["status"]) for one in opened.tries()] == [("build", code)] and opened.done() == set()


def test_a_model_that_an_earlier_recipe_built_is_left_to_its_builder(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/config.json").write_text("{}")
    stages = [{"do": "build", "command": "{python} -c 'import sys; sys.exit(7)' {model}"}, *SMALL["stages"][1:]]
    assert runner.run(begun(tmp_path, stages=stages, model=str(tmp_path / "shared"))) == 7


def test_a_folder_whose_stages_are_not_all_copied_is_not_resumed(tmp_path, monkeypatch):
    """As after a kill, which removes nothing."""
    first = finished(begun(tmp_path))
    monkeypatch.setattr("shutil.copytree", lambda *given: (tmp_path / "other/begun").touch() or 1 / 0)
    monkeypatch.setattr("shutil.rmtree", lambda *given: None)
    with pytest.raises(ZeroDivisionError):
        begin(recipe_file(tmp_path), [], None, tmp_path / "other", tmp_path, "c", other=first.directory)
    with pytest.raises(ConfigError, match="holds no recipe"):
        resume(tmp_path / "other", None, "c")


def test_a_service_that_never_listens_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "SERVICE_SECONDS", 0.0)
    monkeypatch.setattr(runner, "start_hub", lambda *given: "http://hub")
    with pytest.raises(ConfigError, match=r"local.service 'sleep 600' does not listen .*service.log"):
        runner.run(begun(tmp_path, **with_service("sleep 600")))


# --- the report -------------------------------------------------------------------------------------------------------


def rows(good_wins, wolf="scripted", good="policy"):
    """40 games, one a deal."""
    results = ["good"] * good_wins + ["wolf"] * (40 - good_wins)
    return [made_row(wolf, good, result, deal, number=deal) for deal, result in enumerate(results)]


def keep(folder, row, *evaluations):
    """Write evaluations down as a stage does."""
    record = Record(folder, row)
    for evaluation in evaluations:
        record.begin(evaluation.header)
        record.add(evaluation.header, evaluation.rows)
        record.end(evaluation.header, evaluation.failures, evaluation.retried, {})


def finished(opened, before=8, after=30, in_place=10):
    """What the stages of a run leave, with so many wins of 40."""
    for step in opened.steps():
        step.folder.mkdir(parents=True, exist_ok=True)
        for result in step.results:
            result.parent.mkdir(parents=True, exist_ok=True)
            result.write_text(json.dumps({"held_out_loss": [2.0, 1.0]}))
        found = []
        if step.stage.do == "evaluate":
            table, chosen = rows(in_place, good="scripted"), (PANELS["cross"], "", "", step.stage.players)
            digest = matches_of(opened.config(step.stage), *chosen).digest
            found = [made_evaluation(table, "place", "cross", ["scripted"], digest=digest)]
        elif step.stage.do == "train":
            found = [made_evaluation(rows(before), "step 0"), made_evaluation(rows(after), "step 3", step=3)]
            metrics = [{"step": n, "data": {"policy/good/games": 8.0, "policy/good/wins": n, "turns/valid_share": 1.0}}
                       for n in (1, 2, 3)]  # fmt: skip
            (step.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
        keep(step.folder, GameRow, *found)
        with (opened.directory / "stages.jsonl").open("a") as file:
            file.write(json.dumps({"step": step.title, "began": "now", "seconds": 60.0, "status": 0}) + "\n")
    return opened


@pytest.mark.parametrize(
    ("seating", "players"),
    [
        ([], {"scripted"}),
        ([{"seat": 1, "players": {"timid": 1.0}}], {"timid", "scripted"}),
        ([{"side": "wolf", "players": {"timid": 1.0}}], {"timid"}),
        ([{"side": "wolf", "players": {"past": 1.0}}], {"past", "initial"}),
    ],
)
def test_opponents_of_training_are_those_that_are_seated_and_else_the_default_one(tmp_path, seating, players):
    config = {**SMALL["config"], "game": {**SMALL["config"]["game"], "seating": seating}}
    config |= {"league": {"every_steps": 1}} if "past" in players else {}
    assert read_run(finished(begun(tmp_path, config=config)).directory).trained_against("good") == players


def test_the_report_begins_with_the_gain_and_fits_on_one_page(tmp_path):
    config = {**SMALL["config"], "evaluation": {"deals": 3, "opponents": ["scripted", "expert", "poser"]}}
    run = read_run(finished(begun(tmp_path, seeds=[1, 2], config=config)).directory)
    path, page = write_report(run)
    assert page.met and re.search(
        r"\+55\.0 points .*, from 20\.0 % before training to 75\.0 % after it; scripted wins 25\.0 %", page.verdict
    )
    assert "Against expert, poser, which no training game has, all seeds" in page.verdict
    assert change_of(run.seeds, "good", "scripted", "expert") == change_of(run.seeds, "good", "scripted")
    (wins, each, losses) = page.sections[0].tables
    assert [row[0] for row in each.rows] == [
        "good against scripted, all seeds",
        "good against expert (not met), all seeds",
        "good against poser (not met), all seeds",
    ]
    assert each.rows[0][1].startswith("20.0 %") and each.rows[0][3].startswith("+55.0")
    assert {row[0].split(",")[0] for row in wins.rows} == {"good"}  # no games were played as the wolves
    together = next(row for row in wins.rows if row[0] == "good, all seeds")
    assert together[1].startswith("20.0 %") and together[2].startswith("75.0 %") and together[3].startswith("+55.0")
    assert together[4].startswith("25.0 %") and losses.rows[0][1:] == ("2.000", "1.000")
    text = path.read_text(encoding="utf-8")
    assert "Win table" in text and "learning_rate: 0.5" in text
    assert b64encode(path.with_suffix(".png").read_bytes()).decode() in text
    chart = _against_each(_by_opponent(run, "good"))
    shown = {when: [(round(place), rate.value) for place, rate in points] for when, points in chart.points.items()}
    assert shown == {"before training": [(0, 0.2)], "after training": [(0, 0.75)]}  # no games against expert
    assert chart.names == ["scripted", "expert\n(not met)", "poser\n(not met)"]


@pytest.mark.parametrize(
    ("wins", "problem"),
    [
        (
            dict(before=20, after=24, in_place=24),
            "the win rate changed by \\+10.0 points, the criterion is \\+20.0 points",
        ),
        (dict(before=20, after=22), "interval \\+0.0 to .*, which includes 0"),
        (dict(before=20, after=24), "the intervals before and after overlap"),
        (dict(before=30, after=8), "changed by -55.0"),
        (dict(before=39, after=24, in_place=4), "changed by -37.5"),
    ],
)
def test_a_criterion_that_is_not_met_is_named(tmp_path, wins, problem):
    page = report_of(read_run(finished(begun(tmp_path), **wins).directory))
    assert not page.met and re.search(problem, page.verdict)


def test_a_run_begins_with_the_stages_of_another_and_is_compared_with_it(tmp_path):
    first = finished(begun(tmp_path))
    given = (recipe_file(tmp_path), ["run.steps=4"], None, tmp_path / "other", tmp_path, "command")
    other = begin(*given, other=first.directory)
    assert other.done() == {"build", "imitate of seed 1", "place of seed 1"}
    trained = next(step.folder for step in other.steps() if step.stage.do == "train")
    keep(trained, GameRow, made_evaluation(rows(8), "step 0"), made_evaluation(rows(38), "step 4", step=4))
    runs = [read_run(folder) for folder in (first.directory, other.directory, first.directory)]
    (plain, changed, equal) = comparison_tables(runs)[0].rows
    assert plain[3] == "" and changed[3].startswith("+20.0 (") and changed[5] == "run.steps=4"
    assert equal[3] == "+0.0 (-8.8 to +8.8)"  # no difference in 40 deals
    empty = begin(recipe_file(tmp_path), [], None, tmp_path / "empty", tmp_path, "command")

    def full(*given):
        raise OSError("disk full")

    with pytest.MonkeyPatch.context() as patched:
        taken = ["--from", str(empty.directory)]
        patched.setattr(sys, "argv", ["x", str(tmp_path / "small.yaml"), "--directory", str(tmp_path / "no"), *taken])
        assert exit_status(main) == 2 and not (tmp_path / "no").exists()
        patched.setattr("algo.recipes.runner._copy_stages", full)
        assert exit_status(main) == 2 and not (tmp_path / "no").exists()
    with pytest.raises(ConfigError, match="it has no stage 'imitate of seed 2'"):
        begin(recipe_file(tmp_path), [], [1, 2], tmp_path / "third", tmp_path, "c", other=first.directory)
    with pytest.raises(ConfigError, match="stage 'imitate of seed 1' is not done"):
        begin(recipe_file(tmp_path), [], None, tmp_path / "third", tmp_path, "c", other=empty.directory)
    more = recipe_file(tmp_path, stages=[{"do": "imitate", "name": "lesson"}, *SMALL["stages"]])
    with pytest.raises(ConfigError, match="its recipe has no stage 'lesson'; leave out --from"):
        begin(more, [], None, tmp_path / "third", tmp_path, "c", other=first.directory)


@pytest.mark.parametrize(
    ("setting", "played_again"),
    [
        ("evaluation.deals=7", True),
        ("game.preset=7p", True),
        ("game.rules.win_rule=parity", True),
        ("game.opponent=timid", False),  # of training
        ("warm_start.games=9", False),
    ],
)
def test_of_another_run_only_evaluations_under_the_same_conditions_are_copied(tmp_path, setting, played_again):
    first = finished(begun(tmp_path))
    other = begin(recipe_file(tmp_path), [setting], None, tmp_path / "other", tmp_path, "c", other=first.directory)
    assert ("place of seed 1" not in other.done()) == played_again
    learned, played = ((first.directory / name).read_text() for name in ("imitate.yaml", "place.yaml"))
    assert (other.directory / "imitate.yaml").read_text() == learned  # what the copied model was made with
    assert ((other.directory / "place.yaml").read_text() != played) == played_again


@pytest.mark.parametrize(
    ("overrides", "stages", "settings"),
    [
        (["training.learning_rate=0.1"], {}, "training.learning_rate=0.1"),  # of all stages, named once
        ([], {"imitate": {"config": {"warm_start": {"games": 9}}}}, "imitate: warm_start.games=9"),
        ([], {"build": {"command": "{python} -c 1"}}, "build: command={python} -c 1"),
        (
            ["game.preset=7p"],
            {name: {"config": {"training": {"epochs": 7}}} for name in ("imitate", "evaluate")},
            "game.preset=7p, imitate/place: training.epochs=7",
        ),
        ([], {"imitate": {"name": "lesson"}}, "stages=build/lesson/place/train"),
    ],
)
def test_a_comparison_names_the_settings_of_every_stage_that_differ(tmp_path, overrides, stages, settings):
    first = finished(begun(tmp_path))
    file = recipe_file(tmp_path, stages=[stage | stages.get(stage["do"], {}) for stage in SMALL["stages"]])
    other = finished(begin(file, overrides, None, tmp_path / "other", tmp_path, "c"))
    (same, changed) = comparison_tables([read_run(each.directory) for each in (first, other)])[0].rows
    assert (same[5], changed[5]) == ("", settings)


def test_what_cannot_be_compared_is_named(tmp_path, monkeypatch, capsys):
    game = finished(begun(tmp_path)).directory
    agents = begin(Path("agents"), [], None, tmp_path / "agents", tmp_path, "command").directory
    monkeypatch.setattr(sys, "argv", ["recipe", "--compare", str(agents), str(game)])
    assert exit_status(main) == 2
    assert "compare runs of one workload: agents is agents, out is werewolf" in capsys.readouterr().err
    for name, text, problem in ((EVALUATIONS_FILE, "[]\n", ", line 1, is"), ("metrics.jsonl", '{"st\n', ", line 1:")):
        damaged = game / "seed-1" / name
        whole = damaged.read_text()
        damaged.write_text(text)
        assert exit_status(main) == 2 and f"error: {damaged}{problem} invalid" in capsys.readouterr().err
        damaged.write_text(whole)


def test_games_of_all_seeds_that_are_not_finished_are_those_of_their_opponent(tmp_path):
    opened = begun(tmp_path, seeds=[1, 2])
    for seed, lost in ((1, 3), (2, 0)):
        for step in (0, 3):
            found = made_evaluation(
                [*rows(20), *rows(20, wolf="expert")], f"step {step}", opponents=("scripted", "expert"), step=step,
                planned={"scripted": 40, "expert": 40},
            )  # fmt: skip
            played = found.model_copy(
                update={
                    "rows": found.rows[lost:],
                    "failures": {"no reply": lost} if lost else {},
                    "retried": {"no reply": 2},
                }
            )
            keep(opened.directory / f"seed-{seed}", GameRow, played)
    page = report_of(read_run(opened.directory))
    (outcomes, *_, failures) = next(section.tables for section in page.sections if section.title == "All seeds, before")
    assert [row[-1] for row in outcomes.rows if row[0].startswith("both sides")] == ["3", "0"]
    assert failures.rows == [("no reply", "3", "4")]


def test_a_game_that_a_seed_lacks_is_not_replaced_by_another_seeds(tmp_path):
    """One seed always wins and one always loses, before and after; games of the latter are missing before."""
    opened = begun(tmp_path, seeds=[1, 2])
    for seed, wins, lost in ((1, 40, 0), (2, 0, 20)):
        for step in (0, 3):
            found = made_evaluation(rows(wins)[0 if step else lost :], f"step {step}", step=step)
            keep(opened.directory / f"seed-{seed}", GameRow, found)
    assert "all seeds: +0.0 points" in report_of(read_run(opened.directory)).verdict


def test_a_training_that_goes_on_has_no_result_and_other_seeds_are_no_failure(tmp_path):
    settings = {name: value for name, value in SMALL.items() if name != "success"}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(settings))
    opened = begin(tmp_path / "small.yaml", [], [1, 2], tmp_path / "out", tmp_path, "c")
    for seed, last in ((1, 3), (2, 2)):  # of three steps
        found = made_evaluation(rows(8), "step 0"), made_evaluation(rows(30), f"step {last}", step=last)
        keep(opened.directory / f"seed-{seed}", GameRow, *found)
    page = report_of(read_run(opened.directory))
    assert not page.met and "Criterion" not in page.verdict
    assert page.verdict.endswith("Incomplete: no evaluation before or none after the training of seed 2.")
    assert "seed 1: +55.0" in page.verdict


def test_without_a_result_no_opponent_has_one(tmp_path):
    config = {**SMALL["config"], "evaluation": {"deals": 3, "opponents": ["scripted", "expert"]}}
    page = report_of(read_run(begun(tmp_path, config=config).directory))
    assert page.verdict.startswith("No result yet") and not page.sections[0].tables[1].rows


def test_versions_are_those_of_the_run_and_win_tables_those_of_each_policy(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    again = {"do": "evaluate", "name": "again", "panel": "cross", "players": ["random", "policy"]}
    *before, train = SMALL["stages"]
    opened = finished(begun(tmp_path, stages=[*before, again, train]))
    evaluations = [step for step in opened.steps() if step.stage.do == "evaluate"]
    keep(evaluations[1].folder, GameRow, made_evaluation(rows(40), "again", "cross", ["scripted"]))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2")
    page = report_of(read_run(opened.directory))
    assert page.facts["versions"] == "agentlightning 1, torch 1, verl 1"
    assert [one.title for one in page.sections if one.title.startswith("Win table")] == [
        "Win table of the stage place", "Win table of the stage again"
    ]  # fmt: skip
    resume(opened.directory, None, "c")
    assert report_of(read_run(opened.directory)).facts["versions"].endswith("verl 1; agentlightning 2, torch 2, verl 2")


def test_an_evaluation_that_has_not_ended_is_no_result(tmp_path):
    opened = finished(begun(tmp_path, seeds=[1]))
    record = Record(opened.directory / "seed-1", GameRow)
    (before, after), begun_later = read_run(opened.directory).seeds[0].ends, made_evaluation(rows(40), "step 9", step=9)
    record.begin(begun_later.header)
    record.add(begun_later.header, begun_later.rows[:3])
    assert read_run(opened.directory).seeds[0].ends == (before, after)


def test_games_under_other_conditions_are_not_compared(tmp_path):
    opened = begun(tmp_path, seeds=[1])
    ends = [made_evaluation(rows(20), "step 0"), made_evaluation(rows(30), "step 3", step=3)]
    other = ends[1].header.model_copy(update={"digest": "other"})
    keep(opened.directory / "seed-1", GameRow, ends[0], ends[1].model_copy(update={"header": other}))
    run = read_run(opened.directory)
    assert change_of(run.seeds, "good", "scripted").gain is None
    sections = {section.title: section.tables for section in report_of(run).sections}
    assert sections["Change, deal by deal"] == []


def test_agents_are_judged_by_the_reward_of_the_same_tasks(tmp_path):
    def trained(name, *correct):
        """Before and after: how many of 40 tasks are done right."""
        opened = begin(Path("agents"), [], None, tmp_path / name, tmp_path, "command")
        for step, right in zip((0, read_run(opened.directory).config.run.steps), correct, strict=True):
            rows = [
                AttemptRow(
                    number=n, task_id=f"t{n}", cluster=n, rewards={"answered": float(n < right)}, calls=2, invalid=0
                )
                for n in range(40)
            ]
            found = made_evaluation(rows, f"step {step}", step=step, planned={"held-out tasks": 40})
            keep(opened.directory / "seed-1", AttemptRow, found)
        return read_run(opened.directory)

    good, poor = trained("good", 4, 30), trained("poor", 4, 6)
    page = report_of(good)
    assert page.met and page.sections[0].tables[0].rows[1][2].startswith("+0.650")
    told = report_of(poor).verdict
    assert told.startswith("Mean reward on held-out tasks, seed 1: +0.050 (95 % interval ")
    assert "the mean reward changed by +0.050, the criterion is +0.150" in told and "before and after overlap" in told
    assert [row[1][:5] for row in comparison_tables([good, poor])[0].rows] == ["0.750", "0.150"]
