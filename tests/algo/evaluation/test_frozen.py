"""The figures over recorded games of two checkpoints are those that were frozen, to 1e-9.

``frozen.json.gz`` holds tasks, outcomes and notes of real games (the tiny model after imitation and after two steps),
and what was counted over them. What is counted otherwise on purpose gets a new version of the panel.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from algo.evaluation.figures import SUBSETS, by_game, differences, figures_of, metrics_of
from algo.evaluation.games import row_of
from algo.evaluation.record import Evaluation, Header
from algo.rollouts.triplets import FinishedRollout
from configs.sections.rewards import RewardConfig
from store.werewolf import GameTask, ResultSpan
from store.werewolf_study import StudySpan

FROZEN = json.loads(gzip.decompress((Path(__file__).parent / "frozen.json.gz").read_bytes()))
NAMES = ("evaluate-imitated", "evaluate-trained", "protocol-imitated", "protocol-trained", "cross")


def evaluation_of(name):
    rows, frozen = [], FROZEN[name]
    for number, game in enumerate(frozen["games"]):
        turns = [
            SimpleNamespace(seat=seat, turn=turn, facts={"identity_leak": 1.0})
            for turn, seat in enumerate(game["leaks"])
        ]
        notes = (StudySpan.model_validate(game["note"]),) if game["note"] else ()
        outcome = ResultSpan.model_validate(game["outcome"])
        rollout = FinishedRollout("r", "a", outcome, tuple(turns), (), Counter(), (), notes)
        rows.append(row_of(number, GameTask.decode(game["task"]), rollout, RewardConfig(), whole=False))
    planned = dict.fromkeys(frozen["opponents"], len(rows) // len(frozen["opponents"]))
    header = Header(label=name, player="policy", policy_version=0, panel=frozen["panel"], planned=planned, initial="i",
                    conditions={"opponents": frozen["opponents"]}, digest="d", seed=1)  # fmt: skip
    return Evaluation(header=header, rows=tuple(rows))


@pytest.fixture(scope="module")
def evaluations():
    return {name: evaluation_of(name) for name in NAMES}


def same(found, expected, where=""):
    """Equal to 1e-9, numbers within mappings and lists included."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            same(found[name], value, f"{where}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            same(one, other, f"{where}/{number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-9), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("among", SUBSETS)
@pytest.mark.parametrize("name", NAMES)
def test_figures_and_the_log_are_those_of_before(evaluations, name, among):
    found = figures_of(evaluations[name], among)
    counted = {
        "figures": json.loads(found.model_dump_json()),
        "metrics": metrics_of(evaluations[name], found),
        "by_game": by_game(evaluations[name], among),
    }
    same(counted, FROZEN[name][among])


@pytest.mark.parametrize("kind", ["protocol", "evaluate"])
def test_two_checkpoints_differ_as_before(evaluations, kind):
    for among in SUBSETS:
        found = differences(evaluations[f"{kind}-trained"], evaluations[f"{kind}-imitated"], among)
        told = [[each.what, each.deals, each.value.model_dump(), each.share] for each in found]
        same(told, FROZEN["differences"][kind][among])


def test_evaluations_of_other_terms_are_not_compared(evaluations):
    one = evaluations["protocol-imitated"]
    other = one.model_copy(update={"header": one.header.model_copy(update={"digest": "e"})})
    with pytest.raises(ValueError, match="cannot be compared"):
        list(differences(one, other))
