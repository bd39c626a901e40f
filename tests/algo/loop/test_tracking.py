"""Numbers of a run, by verl's Tracking with the real loggers, without a network."""

import json
import struct

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from algo.loop.startup import check_log_backends, open_tracking
from algo.run.summary import RunSummary
from configs.loading import load_config
from configs.section import ConfigError


def make_config(tmp_path, backends):
    return load_config(None, [f"run.dir={tmp_path}", "run.name=mine", f"log.backends={backends}"])


def test_tensorboard_and_swanlab_keep_a_runs_numbers_in_its_folder(tmp_path, monkeypatch):
    config = make_config(tmp_path, "[file, tensorboard, swanlab]")
    check_log_backends(config)
    for name in ("VERL_FILE_LOGGER_PATH", "TENSORBOARD_DIR", "SWANLAB_LOG_DIR"):
        monkeypatch.setenv(name, "")  # so that what the run sets ends with the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    config.run_dir.mkdir()
    tracking = open_tracking(config, RunSummary(config.run_dir, {"steps": [{"reward/good": 0.25}]}))
    tracking.log({"reward/good": 0.5, "rollouts/finished": 16.0}, step=2)
    tracking.log({"reward/good": 0.6875}, step=3)
    tracking.finish()

    rows = [json.loads(line) for line in (config.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["data"]["reward/good"]) for row in rows] == [(1, 0.25), (2, 0.5), (3, 0.6875)]
    events = EventAccumulator(str(config.run_dir / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward/good")] == [(2, 0.5), (3, 0.6875)]
    assert [event.value for event in events.Scalars("rollouts/finished")] == [16.0]
    (record,) = (config.run_dir / "swanlab").rglob("*.swanlab")
    stored = record.read_bytes()
    assert b"reward/good" in stored and b"rollouts/finished" in stored
    assert all(struct.pack("<d", value) in stored for value in (0.5, 0.6875, 16.0))


@pytest.mark.parametrize(
    ("backends", "message"), [("[file, tensorbord]", "tensorbord.*known: "), ("[clearml]", "pip install clearml")]
)
def test_a_logger_that_is_not_there_is_refused_by_name(tmp_path, backends, message):
    with pytest.raises(ConfigError, match=message):
        check_log_backends(make_config(tmp_path, backends))
