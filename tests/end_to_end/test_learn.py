"""A learning run in miniature with every real part: interrupted while it imitates, gone on with, its report written."""

import json
import signal
import subprocess
import sys

import pytest

from algo.evaluation.cross_table import CrossTable
from algo.evaluation.outcomes import read_evaluations
from algo.learn import INTERRUPTED_FOLDER
from algo.learning.record import LearningRecord
from tests.support.processes import marked_environment, processes_marked, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

SMALL = {
    "run.steps": 1,
    "rollout.groups_per_step": 2,
    "rollout.rollouts_per_group": 4,
    "warm_start.games": 6,
    "warm_start.held_out_games": 2,
    "warm_start.epochs": 1,
    "evaluation.deals": 2,
    "checkpoint.every_steps": 1,
}


def test_a_learning_run_that_is_interrupted_goes_on_to_its_report(tmp_path):
    directory, output = tmp_path / "learn", tmp_path / "output.txt"

    def start(*options):
        command = [sys.executable, "-m", "algo.learn", "--directory", str(directory), *options]
        with output.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=marked_environment(tmp_path)
            )

    def told():
        return output.read_text(errors="replace")

    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    learning = start("--side", "good", "--cross-table-deals", "1", *settings)
    try:
        wait_until(lambda: "starting the trainer" in told(), 300, "the imitation")
        learning.send_signal(signal.SIGINT)
        assert learning.wait(timeout=120) == 130, told()[-3000:]
        wait_until(lambda: not processes_marked(tmp_path), 20, "the end of every process")
        learning = start()
        assert learning.wait(timeout=600) == 0, told()[-3000:]
        wait_until(lambda: not processes_marked(tmp_path), 20, "the end of every process")
    finally:
        if learning.poll() is None:
            learning.kill()

    tries = [(stage.stage, stage.exit_status) for stage in LearningRecord.read(directory).stages]
    assert tries == [
        *(("tiny model", 0), ("warm start", 130)),
        *((stage, 0) for stage in ("warm start", "cross table", "training", "report")),
    ]
    assert (directory / INTERRUPTED_FOLDER / "seed-1-warm-start-1").is_dir()
    warm = json.loads((directory / "seed-1-warm-start" / "summary.json").read_text())
    assert warm["games"]["learned_from"] == 6 and warm["held_out_loss"][-1] < warm["held_out_loss"][0]
    table = CrossTable.read(directory / "seed-1-cross-table" / "cross_table.json")
    assert [cell.games for cell in table.cells] == [1] * 9 and table.model == warm["model"]
    before, after = read_evaluations(directory / "seed-1")
    assert (before.label, after.label) == ("step 0", "step 1")
    assert [game.deal for game in before.games] == [game.deal for game in after.games] and len(after.games) == 4
    assert (directory / "report.html").stat().st_size > 0
    assert f"{directory / 'report.html'}" in told()
