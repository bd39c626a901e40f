"""Run folders on the pages: odd names, values and labels break nothing."""

import json
import math
from types import SimpleNamespace

import pytest

from runners.werewolf.web.folders import RunFolders
from runners.werewolf.web.run_numbers import RunNumbers
from runners.werewolf.web.token_rows import TokenRows
from runners.werewolf.web.views import ShownGame
from tests.support.werewolf.web_server import WebServer


@pytest.fixture
def runs(tmp_path):
    """A folder with one run."""
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.yaml").write_text("{}")
    return tmp_path / "runs"


async def test_the_home_page_leaves_out_folders_with_odd_names_and_names_a_file_that_is_gone(tmp_path, runs):
    for name in ("first (copy)", "demo@2/seed-1", "demo/seed 1"):
        (runs / name).mkdir(parents=True)
        (runs / name / "config.yaml").write_text("{}")
        (runs / name).with_name("recipe.json").write_text("{}")
    game = tmp_path / "game.json"
    game.write_text("{}")
    async with WebServer(tmp_path, [game], runs=runs) as server:
        await server.get("/api/config")
        game.unlink()
        status, lobby = await server.get("/api/config")
    assert status == 200 and [run["name"] for run in lobby["runs"]] == ["first"]
    assert [game["file"] for game in lobby["games"]] == ["game.json"]
    assert RunFolders(runs).checkpoint_of("/a/model") is None  # asked at the start


async def test_the_home_page_shows_the_other_games_where_a_run_has_odd_evaluations(tmp_path, runs):
    header = {"label": "step 1", "digest": "d", "model": "", "conditions": {}, "policy_version": 1}
    odd = [
        {"evaluation": {"label": "of another version"}},
        ["a list"],
        {"evaluation": header},
        {"of": "step 1|d|", "row": {"task_id": "g", "seats": [{}], "sample": {"events": []}}},
        {"of": "step 1|d|", "end": {"figures": {"nan": math.nan}}},
    ]
    lines = [json.dumps(entry).encode() + b"\n" for entry in odd]
    (runs / "first" / "evaluations.jsonl").write_bytes(b"\xff\n".join(lines))
    async with WebServer(tmp_path, runs=runs) as server:
        status, lobby = await server.get("/api/config")
        assert status == 200 and [run["name"] for run in lobby["runs"]] == ["first"]
        assert (await server.get("/api/run", name="first"))[0] == 200


def test_runs_of_several_folders_and_a_teams_checkpoint_are_found(tmp_path, runs):
    model = tmp_path / "more" / "team" / "checkpoints" / "step-000003" / "policies" / "wolves" / "huggingface"
    model.mkdir(parents=True)
    (tmp_path / "more" / "team" / "config.yaml").write_text("{run: {name: team}}")
    (model.parents[2] / "state.json").write_text('{"policy_version": 3}')
    folders = RunFolders(runs, tmp_path / "more")
    assert sorted(folders.names()) == ["first", "team"] and folders.run("team") == tmp_path / "more" / "team"
    assert folders.checkpoint_of(str(model)) == ({"policy_version": 3}, {"run": {"name": "team"}})


def test_a_card_shows_the_first_metric_that_has_a_value(runs):
    data = {"imitation/held_out_loss": math.nan, "imitation/loss": 0.5}
    (runs / "first" / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": data}) + "\n")
    card = RunNumbers(RunFolders(runs)).card("first")
    assert (card["metric"], card["curve"]) == ("imitation/loss", [[1, 0.5, None, None]])


def test_a_card_of_a_long_log_begins_with_its_first_value(runs, monkeypatch):
    monkeypatch.setattr("runners.werewolf.web.run_numbers._MOST_AT_ONCE", 1000)
    lines = [json.dumps({"step": step, "data": {"evaluation/win_rate": step / 100}}) for step in range(100)]
    (runs / "first" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    curve = RunNumbers(RunFolders(runs)).card("first")["curve"]
    assert (curve[0][:2], curve[-1][:2]) == ([0, 0.0], [99, 0.99]) and curve[1][0] > 50


def test_a_long_log_is_read_in_parts(runs, monkeypatch):
    monkeypatch.setattr("runners.werewolf.web.run_numbers._MOST_AT_ONCE", 1000)
    log, numbers = runs / "first" / "metrics.jsonl", RunNumbers(RunFolders(runs))
    lines = [json.dumps({"step": step, "data": {"reward/good": 0.5}}) + "\n" for step in range(40)]
    log.write_text("".join(lines) + lines[0][:20])  # the last line is being written
    steps, position, more = [], 0, True
    while more:
        part = numbers.of("first", position)
        steps, position, more = steps + part["steps"], part["position"], part["more"]
    assert [one["step"] for one in steps] == [*range(40)] and position == len("".join(lines))


def test_a_log_that_a_resumed_run_wrote_anew_is_read_from_its_beginning(runs):
    log, numbers = runs / "first" / "metrics.jsonl", RunNumbers(RunFolders(runs))
    log.write_text("".join(json.dumps({"step": step, "data": {"reward/good": 0.5}}) + "\n" for step in range(1, 4)))
    first = numbers.of("first", 0)
    assert not first["restarted"] and len(first["steps"]) == 3
    anew = "".join(json.dumps({"step": step, "data": {"reward/good": -0.25}}) + "\n" for step in range(1, 5))
    for text, restarted, steps in ((anew, True, 4), (anew[:30], True, 0)):
        log.write_text(text)
        read = numbers.of("first", first["position"])
        assert (read["restarted"], len(read["steps"])) == (restarted, steps)


def test_no_more_sample_games_are_read_than_are_shown(runs, monkeypatch):
    folders, read = RunFolders(runs), []
    rows = {f"task-{number}": {} for number in range(5)}
    evaluation = {"name": "e", "label": "e", "step": 1, "samples": rows}
    monkeypatch.setattr(folders, "evaluations", lambda name: [evaluation, evaluation])
    (runs / "first" / "evaluations.jsonl").touch()
    monkeypatch.setattr("runners.werewolf.web.folders._sample_game", lambda *told: read.append(told))
    monkeypatch.setattr("runners.werewolf.web.folders.card_of", lambda game: {})
    assert len(folders.samples("first", 7)) == len(read) == 7


def test_a_batch_that_cannot_be_read_does_not_hide_the_run(runs):
    (runs / "first" / "batches").mkdir(exist_ok=True)
    (runs / "first" / "batches" / "step-9999.jsonl").write_text("damaged\n")
    assert RunNumbers(RunFolders(runs)).of("first", 0)["batches"][-1]["problem"] == "cannot be read"


def test_tokenizers_of_many_folders_do_not_fill_the_memory(tmp_path, tiny_model):
    rows = TokenRows(SimpleNamespace(evaluation_of=lambda game: ("", game), run_of=lambda _: None), None)
    for number in range(6):
        (tmp_path / str(number)).symlink_to(tiny_model)
        game = SimpleNamespace(about={}, folder=tmp_path / str(number))
        rows._runs.evaluation_of = lambda game: ("", game.folder)
        assert rows._tokenizer_for(game) is not None
    assert len(rows._loaded) == 4


def test_a_game_belongs_to_the_evaluation_of_its_whole_label(runs):
    for label in ("step 1", "step 1-b"):
        in_names = label.replace(" ", "-")
        (runs / "first" / "evaluated" / in_names).mkdir(parents=True)
        about = {"label": label, "games": f"first-evaluation-{in_names}-"}
        (runs / "first" / "evaluated" / in_names / "evaluated.json").write_text(json.dumps(about))
    for in_names, label in (("step-1", "step 1"), ("step-1-b", "step 1-b")):
        about = {"run": "first-evaluation", "game": f"first-evaluation-{in_names}-0123abcd-deal000-wolf"}
        found = RunFolders(runs).evaluation_of(ShownGame(events=[], about=about))
        assert found == (label, runs / "first" / "evaluated" / in_names)


@pytest.mark.parametrize(
    ("about", "read"),
    [
        ({"step": "step-0002"}, ["step-0002"]),  # its batch lacks it, so no other one has it
        ({"step": "step-0003"}, []),  # a step without an update has no batch
        ({"game": "r-step0002-deal01-0"}, ["step-0002", "step-0010"]),  # of a hub: trained later than it was queued
        ({"game": "another"}, ["step-0001", "step-0002", "step-0010"]),
    ],
)
def test_a_game_is_looked_for_in_no_batch_that_cannot_hold_it(tmp_path, monkeypatch, about, read):
    (tmp_path / "batches").mkdir()
    for step in (1, 2, 10):
        (tmp_path / "batches" / f"step-{step:04d}.jsonl").touch()
    rows, found = TokenRows(SimpleNamespace(run_of=lambda _: tmp_path), None), []
    monkeypatch.setattr(rows, "_read_batch", lambda run, path: found.append(path.stem))
    assert rows._places(SimpleNamespace(about={"run": "r"} | about)) == {} and found == read


def test_a_batch_that_a_resumed_run_writes_anew_is_read_anew(tmp_path):
    batch = tmp_path / "batches" / "step-0006.jsonl"
    batch.parent.mkdir()
    rows = TokenRows(SimpleNamespace(run_of=lambda _: tmp_path), None)
    game = SimpleNamespace(about={"run": "r", "game": "g"})

    def write(*seats):
        lines = [json.dumps({"task_id": "g", "actor": f"seat {seat:02d}", "segment": 0}) + "\n" for seat in seats]
        batch.write_text("damaged\n" + "".join(lines) + '{"task_id": "cut')

    for seats in ((1, 2), (3, 4, 5), (6,)):  # longer and shorter than before
        write(*seats)
        assert {seat for seat, _ in rows._places(game)} == set(seats)
