"""The shipped policies play as their cards state."""

import re
import subprocess
import sys
from math import sqrt

import pytest
import yaml

from algo.evaluation.games import GameRow
from algo.evaluation.record import Record
from tests.support.processes import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

DEALS = 40
MODELS = sorted((ROOT / "models").glob("*/config.yaml"))


@pytest.mark.parametrize("config", MODELS, ids=lambda path: path.parent.name)
def test_a_shipped_policy_wins_as_often_as_its_card_states(config, tmp_path):
    card = (config.parent / "README.md").read_text(encoding="utf-8")
    stated = float(re.search(r"^\| `scripted` \|.*\*\*(\d+\.\d) %\*\*", card, re.M)[1]) / 100
    (model,) = config.parent.glob("checkpoints/*/huggingface")
    settings = (f"run.dir={tmp_path}", f"evaluation.deals={DEALS}", "evaluation.opponents=[scripted]")
    command = [sys.executable, "-m", "algo.evaluate", "--config", str(config), "--model", str(model), "--local", "32"]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (evaluation,) = Record(tmp_path / f"{config.parent.name}-evaluation", GameRow).read()
    (side,) = yaml.safe_load(config.read_text(encoding="utf-8"))["game"]["train_sides"]
    won = [
        seats[0].won for row in evaluation.rows if (seats := [seat for seat in row.seats if seat.is_of("policy", side)])
    ]
    assert len(won) == DEALS
    assert abs(sum(won) / DEALS - stated) < 3.3 * sqrt(stated * (1 - stated) / DEALS)
