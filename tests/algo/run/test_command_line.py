"""The algorithm's command line: what is refused before anything starts."""

import asyncio
import logging
from functools import partial
from unittest.mock import Mock

import aiohttp
import pytest

from algo import werewolf_sft, werewolf_verl
from algo.loop.agreement import LogProbMismatch
from algo.machine.ports import free_port
from algo.rollouts.hub_rollouts import ResumePoint
from algo.rollouts.played import NoFinishedRollouts
from algo.run.command_line import begin_run, run_to_completion
from algo.run.folder import open_run
from algo.run.names import resume_options
from algo.run.watch import Collapsed
from configs.loading import load_config
from configs.schema import Config
from configs.section import ConfigError
from store.client import StoreUnreachable
from tests.support.processes import exit_status


def test_the_configuration_can_be_printed_and_read_again(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["werewolf_verl", "--set", "run.steps=9", "--print-config"])
    assert exit_status(werewolf_verl.main) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert load_config(tmp_path / "printed.yaml") == load_config(None, ["run.steps=9"])


@pytest.mark.parametrize("program", [werewolf_verl, werewolf_sft])
def test_a_hub_that_is_not_there_ends_a_program_by_its_name(program, monkeypatch, caplog, tiny_model, tmp_path):
    address = f"http://127.0.0.1:{free_port()}"
    settings = [f"model.path={tiny_model}", f"run.dir={tmp_path}", f"store.url={address}", "store.retry_seconds=0.1"]
    monkeypatch.setattr("sys.argv", ["program", *(part for each in settings for part in ("--set", each))])
    monkeypatch.setattr("algo.run.command_line.log_to", lambda level, file: None)
    assert exit_status(program.main) == 1 and f"no hub answers at {address}" in caplog.text


def test_an_earlier_run_is_never_overwritten(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine"])
    runs = [open_run(config, resume=False) for _ in range(3)]
    assert [run.config.run.name for run in runs] == ["mine", "mine-2", "mine-3"]
    assert len({run.state.run_id for run in runs}) == 3 and not any(run.is_resumed for run in runs)


def test_a_numbered_run_is_resumed_by_the_name_that_messages_give(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine"])
    for name in ("mine-evaluation", "mine-evaluation-2"):
        begun = open_run(config, resume=False, suffix="-evaluation")
        begun.lock.close()
        assert begun.config.run.name == name
    assert resume_options(config, "mine-evaluation", "-evaluation") == "--resume auto"
    *_, override = resume_options(config, name, "-evaluation").split()
    again = open_run(load_config(None, [f"run.dir={tmp_path}", override]), resume=True, suffix="-evaluation")
    assert (again.state.run_id, again.is_resumed) == (begun.state.run_id, True)
    again.lock.close()
    named = load_config(None, [f"run.dir={tmp_path}", "run.name=final-evaluation"])  # a name of the user's
    for resume in (False, True):
        with open_run(named, resume, suffix="-evaluation").lock:
            assert {path.name for path in tmp_path.glob("final*")} == {"final-evaluation-evaluation"}


def test_what_may_pass_has_another_status_than_a_configuration_that_cannot_be_used(tmp_path, monkeypatch, capsys):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine"])
    begin = partial(begin_run, config, "INFO", suffix="", log="x.log", resume=True)
    with open_run(config, resume=True).lock:
        assert exit_status(begin) == 1
    with monkeypatch.context() as broken:
        broken.setattr("algo.run.command_line.open_run", Mock(side_effect=OSError(28, "No space left on device")))
        assert exit_status(begin) == 1
    (config.run_dir / "run.json").write_text("")
    assert exit_status(begin) == 2 and "run.json is damaged" in capsys.readouterr().err


def test_a_run_is_taken_up_where_it_stands(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine", "run.steps=9"])
    begun = open_run(config, resume=True)
    with pytest.raises(ConfigError, match="another process has locked"):
        open_run(config, resume=True)
    begun.lock.close()
    again = open_run(config, resume=True)
    resumed_once = begun.state.model_copy(update={"resumes": 1, "resumed_at": [0]})
    assert (again.config.run.name, again.state, again.is_resumed) == ("mine", resumed_once, True)
    assert (begun.resumption, again.resumption) == (None, ResumePoint(policy_version=0, number=1))
    assert (config.run_dir / "config-before-resume-1.yaml").exists()
    again.lock.close()
    checkpoint = config.run_dir / "checkpoints" / "step-000004"
    checkpoint.mkdir(parents=True)
    state = begun.state.model_copy(update={"step": 4, "policy_version": 3})
    (checkpoint / "state.json").write_text(state.model_dump_json())
    resumed = open_run(config, resume=True)
    assert (resumed.checkpoint, resumed.state) == (
        checkpoint,
        state.model_copy(update={"resumes": 2, "resumed_at": [0, 3]}),
    )
    assert resumed.resumption == ResumePoint(policy_version=3, number=2, before=(0,))
    resumed.lock.close()
    with pytest.raises(ConfigError, match=r"run\.seed"):
        open_run(load_config(None, [f"run.dir={tmp_path}", "run.name=mine", "run.seed=2"]), resume=True)


class OwnError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (asyncio.CancelledError(), 130, "it was interrupted"),
        (StoreUnreachable("no hub answers"), 1, "no hub answers"),
        (ConfigError("a GPU needs 81 GiB"), 2, "needs 81 GiB"),
        (Collapsed("watch.entropy: 0 in the last 3 steps"), 2, "collapsed: watch.entropy"),
        (aiohttp.ClientConnectionError("gone"), 1, "stopped responding"),
        (OwnError("rank 0"), 1, "workers failed: rank 0. Resume"),
        (ZeroDivisionError("oops"), 1, "Traceback"),
    ],
)
def test_every_end_has_its_status_and_its_line(caplog, error, status, said):
    async def work():
        if error is not None:
            raise error
        return "done"

    told = {OwnError: "workers failed: {}. Resume", Collapsed: "collapsed: {}"}
    run = partial(run_to_completion, work(), Config(), logging.getLogger("test"), "it was interrupted", told)
    assert exit_status(run) == ("done" if error is None else status)
    assert said in caplog.text and (error is not None or not caplog.text)


def test_a_finished_run_keeps_the_configuration_that_trained_it(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine", "run.steps=3"])
    run = open_run(config, resume=True)
    checkpoint = tmp_path / "mine" / "checkpoints" / "step-000003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text(run.state.model_copy(update={"step": 3}).model_dump_json())
    run.lock.close()
    before = (tmp_path / "mine" / "config.yaml").read_text()
    for steps, kept in ((3, True), (4, False)):
        options = [f"run.steps={steps}", "training.learning_rate=0.01"]
        again = open_run(load_config(None, [f"run.dir={tmp_path}", "run.name=mine", *options]), resume=True)
        again.lock.close()
        assert again.state.step == 3 and ((tmp_path / "mine" / "config.yaml").read_text() == before) == kept


@pytest.mark.parametrize("error", [NoFinishedRollouts, LogProbMismatch])
def test_a_resumed_run_does_not_read_the_same_unusable_games_again(tmp_path, error):
    run = open_run(load_config(None, [f"run.dir={tmp_path}", "run.name=mine"]), resume=True)

    async def work():
        raise error("none of 4 games is usable")

    assert exit_status(run_to_completion, work(), run.config, logging.getLogger("test"), "", {}) == 1
    run.lock.close()
    resumed = open_run(run.config, resume=True)
    assert resumed.resumption.newest_version_of(0) < resumed.state.policy_version
    resumed.lock.close()


def test_others_on_the_machine_do_not_look_into_a_run(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path / 'runs'}", "run.name=mine"])
    run = open_run(config, resume=False)
    assert config.run_dir.stat().st_mode & 0o777 == 0o700
    run.lock.close()
    config.run_dir.chmod(0o750)  # as somebody may want it
    open_run(config, resume=True).lock.close()
    assert config.run_dir.stat().st_mode & 0o777 == 0o750
