"""A recipe in miniature with every real part: killed in its imitation and twice in its training, resumed, reported.

Kills in a build and in an evaluation by itself: tests/algo/recipes, with stand-ins.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from algo.evaluation.games import GameRow
from algo.evaluation.record import EVALUATIONS_FILE, Record
from algo.recipes.runner import INTERRUPTED_FOLDER, read_recipe_folder
from tests.support.processes import marked_environment, processes_marked, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

RECIPE = """
extends: {demo}
name: small
stages:
  - {{do: build, command: "{{python}} -m algo.tiny_model {{model}}"}}
  - {{do: imitate}}
  - {{do: evaluate, name: place, panel: cross, players: [random, policy], config: {{evaluation: {{deals: 2}}}}}}
  - {{do: train}}
config:
  run: {{steps: 2}}
  rollout: {{groups_per_step: 2, rollouts_per_group: 4}}
  warm_start: {{games: 6, held_out_games: 2}}
  evaluation: {{deals: 3}}
"""


def test_a_recipe_that_is_killed_three_times_goes_on_to_its_report(tmp_path, request):
    file, out, output = tmp_path / "small.yaml", tmp_path / "out", tmp_path / "output.txt"
    file.write_text(RECIPE.format(demo=request.config.rootpath / "configs/recipes/demo.yaml"))

    def start(*options):
        command = [sys.executable, "-m", "algo.recipe", *options, "--directory", str(out)]
        with output.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=marked_environment(tmp_path)
            )

    def killed_once(reached, what, *options):
        recipe = start(*options)
        wait_until(lambda: reached() or recipe.poll() is not None, 400, what)
        assert recipe.poll() is None, output.read_text()[-5000:]
        os.kill(recipe.pid, signal.SIGKILL)
        recipe.wait()
        wait_until(lambda: not processes_marked(tmp_path), 60, "the end of every process")

    def rows(folder):
        path = out / folder / EVALUATIONS_FILE
        return path.read_text().count('"row": ') if path.exists() else 0

    killed_once((out / "seed-1-imitate-warm-start" / "logs").exists, "the imitation", str(file))
    killed_once(lambda: rows("seed-1-place-evaluation") > 2, "games of the evaluation of panel cross", "--resume")
    killed_once((out / "seed-1" / "checkpoints").exists, "the first step", "--resume")
    recipe = start("--resume")
    assert recipe.wait(timeout=600) == 0, output.read_text()[-5000:]
    opened = read_recipe_folder(out)
    assert opened.done() == {step.title for step in opened.steps()} and len(opened.commands) == 4
    assert len(list((out / INTERRUPTED_FOLDER).iterdir())) == 1
    (place,), (before, after) = (Record(out / f, GameRow).read() for f in ("seed-1-place-evaluation", "seed-1"))
    for evaluation, games in ((place, 2 + 2 * 2 + 2), (before, 6), (after, 6)):
        assert [row.number for row in evaluation.rows] == list(range(games)) and evaluation.ended
    assert (before.header.step, after.header.step) == (0, 2)
    summary = json.loads((out / "seed-1" / "summary.json").read_text())
    assert summary["rollouts"] == {"finished": 16, "failed": 0}
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Before and after" in report and "Win table" in report
