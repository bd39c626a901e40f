"""A recipe in miniature with every real part: it is interrupted, resumed, reported.

Kills of the recipe in every stage, and a stage that evaluates: tests/algo/recipes, with stand-ins. A killed vLLM:
tests/algo/serving/test_vllm_server.py.
"""

import json
import signal

import pytest

from algo.evaluation.games import GameRow
from algo.evaluation.record import Record
from algo.recipes.runner import read_recipe_folder
from tests.support.processes import end, processes_marked, start_module, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

RECIPE = """
extends: {demo}
name: small
stages:
  - {{do: build, command: "{{python}} -m algo.tiny_model {{model}}"}}
  - {{do: imitate}}
  - {{do: train}}
config:
  run: {{steps: 1}}
  rollout: {{groups_per_step: 2, rollouts_per_group: 2}}
  warm_start: {{games: 4, held_out_games: 1}}
  evaluation: {{deals: 2}}
"""


def test_a_recipe_that_is_interrupted_goes_on_to_its_report(tmp_path, request):
    file, out, output = tmp_path / "small.yaml", tmp_path / "out", tmp_path / "output.txt"
    file.write_text(RECIPE.format(demo=request.config.rootpath / "configs/recipes/demo.yaml"))

    def start(*options):
        return start_module(output, "algo.recipe", *options, "--directory", str(out), mark=tmp_path)

    def reach(reached, what):
        wait_until(lambda: reached() or recipe.poll() is not None, 400, what)
        assert recipe.poll() is None, output.read_text()[-5000:]

    def told(text):
        return text in output.read_text(errors="replace")

    recipe = start(str(file))
    try:
        reach(lambda: told("before: held-out loss"), "the imitation")
        recipe.send_signal(signal.SIGINT)
        assert recipe.wait(timeout=120) == 130, output.read_text()[-5000:]
        wait_until(lambda: not processes_marked(tmp_path), 20, "the end of every process")

        recipe = start("--resume")
        assert recipe.wait(timeout=600) == 0, output.read_text()[-5000:]
    finally:
        end(recipe)
    opened = read_recipe_folder(out)
    assert opened.done() == {step.title for step in opened.steps()} and len(opened.commands) == 2
    before, after = Record(out / "seed-1", GameRow).read()
    for evaluation in (before, after):
        assert [row.number for row in evaluation.rows] == list(range(4)) and evaluation.ended
    assert (before.header.step, after.header.step) == (0, 1)
    summary = json.loads((out / "seed-1" / "summary.json").read_text())
    assert summary["rollouts"] == {"finished": 4, "failed": 0}
    assert "Before and after" in (out / "report.html").read_text(encoding="utf-8")
