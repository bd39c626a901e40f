"""The figures are those that the code before this one found, from the same recorded games of two checkpoints.

``frozen.json.gz`` holds tasks, outcomes and notes of real games (the tiny model after imitation and after two steps),
and what the older commands (``evaluate``, ``--protocol v1``, ``cross_table``, ``exploit``) counted over them.
Panel v2 gives single sides Wilson's interval, where v1 resampled deals, and leaves persuasion out.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from algo.evaluation.actions import OF_VOTES
from algo.evaluation.figures import AMONG, by_game, differences, figures_of, metrics_of
from algo.evaluation.games import row_of
from algo.evaluation.panel import PANELS
from algo.evaluation.record import Evaluation, Header
from algo.evaluation.statistics import wilson_interval
from algo.rollouts.triplets import FinishedRollout
from configs.sections.rewards import RewardConfig
from store.werewolf import GameTask, ResultSpan
from store.werewolf_study import StudySpan

FROZEN = json.loads(gzip.decompress((Path(__file__).parent / "frozen.json.gz").read_bytes()))
LABELS = ("imitated", "trained")


def evaluation_of(name, panel, opponents, label=""):
    rows = []
    for number, game in enumerate(FROZEN[name]["games"]):
        turns = [
            SimpleNamespace(seat=seat, turn=turn, facts={"identity_leak": 1.0})
            for turn, seat in enumerate(game["leaks"])
        ]
        notes = (StudySpan.model_validate(game["note"]),) if game["note"] else ()
        outcome = ResultSpan.model_validate(game["outcome"])
        rollout = FinishedRollout("r", "a", outcome, tuple(turns), (), Counter(), (), notes)
        rows.append(row_of(number, GameTask.decode(game["task"]), rollout, RewardConfig(), whole=False))
    planned = dict.fromkeys(opponents, len(rows) // len(opponents))
    header = Header(label=label, player="policy", policy_version=0, panel=panel, terms={"opponents": list(opponents)},
                    digest="d", seed=1, planned=planned, initial="i")  # fmt: skip
    return Evaluation(header=header, rows=tuple(rows))


def same(found, expected, where=""):
    """Equal to 1e-9, numbers within mappings and lists included; what is new is None."""
    if isinstance(expected, dict):
        assert {name for name in found if found[name] is not None or name in expected} == expected.keys(), where
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


SHARES_OF_VOTES = ("on_wolf", "odds", "expert", "chance", "as_expert", "pivotal_on_wolf")


def as_before(actions):
    """Actions in the form that they had, without the roles that are claimed, which came later."""
    shares, counts = actions["shares"], actions["counts"]
    votes = counts.get("votes", {})

    def by_role(start, end, among):
        return {
            name.removeprefix(start).removesuffix(end): found
            for name, found in among.items()
            if name.startswith(start) and name.endswith(end)
        }

    return {
        **{name: actions[name] for name in ("player", "side", "games")},
        "votes": {
            "cast": sum(votes.values()),
            "abstained": votes.get("abstained", 0),
            "pivotal": votes.get("pivotal", 0),
            **{before: shares.get(name) for before, name in zip(SHARES_OF_VOTES, OF_VOTES, strict=True)},
        },
        "kills": counts.get("kills", {}),
        "checks": counts.get("checks", {}),
        "claims": by_role("claims of the ", "", counts),
        "reports": by_role("checks told by the ", "", counts),
        "survival": by_role("", " alive at the end", shares),
    }


@pytest.mark.parametrize("label", LABELS)
def test_win_rates_conduct_and_the_log_are_those_of_before(label):
    evaluation = evaluation_of(f"evaluate-{label}", "run", ("scripted", "random"))
    found, expected = figures_of(evaluation), FROZEN[f"evaluate-{label}"]["statistics"]
    dumped = json.loads(found.model_dump_json())
    same(dumped["all_games"], expected["all_games"])
    same(dumped["conduct"], {"both": expected["conduct"], **expected["conduct_by_side"]})
    for opponent, before in expected["by_opponent"].items():
        by_role = before.pop("by_role")  # of a role it was that of its side, since every deal has all roles
        assert by_role["seer"] == by_role["villager"] == before["by_side"]["good"]
        same(dumped["opponents"][opponent], before, opponent)
    before = {name: value for name, value in FROZEN[f"evaluate-{label}"]["metrics"].items() if "/role/" not in name}
    metrics = metrics_of(evaluation, found)
    same({name: metrics[name] for name in before}, before)


@pytest.mark.parametrize("among", AMONG)
@pytest.mark.parametrize("label", LABELS)
def test_strengths_deeds_beliefs_and_differences_are_those_of_the_protocol(label, among):
    panel = PANELS["v2"]
    evaluation = evaluation_of(f"protocol-{label}", "v2", panel.opponents)
    found, expected = figures_of(evaluation, among), FROZEN[f"protocol-{label}"]["figures"][among]
    dumped = json.loads(found.model_dump_json())
    assert found.games == expected["games"] > 30
    same(dumped["strengths"], expected["strengths"])
    same([as_before(actions) for actions in dumped["actions"]], expected["deeds"])
    same(by_game(evaluation, among), expected["by_game"])
    for player, report in expected["beliefs"].items():
        assert found.beliefs[player].listened == pytest.approx(report.pop("listened"), abs=1e-9)
        renamed = {"exact": report.pop("ceiling"), "deck": report.pop("floor"), **report}
        same(dumped["beliefs"][player], renamed, player)
    rates = [(rate, found.opponents[rate["against"]].by_side[rate["side"]]) for rate in expected["sides"]]
    rates += [(rate, found.single_seats[rate["side"]]) for rate in expected["seats"]]
    compared = 0
    for before, score in rates:
        assert (score.games, score.draws) == (before["games"], before["draws"])
        assert (score.win_rate is None) == (before["rate"] is None)
        if score.win_rate is not None:
            assert score.win_rate.value == pytest.approx(before["rate"]["value"], abs=1e-9)
            assert score.win_rate == wilson_interval(score.wins, score.games)
        assert (score.difference is None) == (before["difference"] is None)
        if score.difference is not None:
            compared += not is_degenerate(score.difference)
            check_difference(score.difference, before["difference"])
    assert compared > 2 or among != "all"


def is_degenerate(difference):
    """Equal on every deal: there the interval of a share was taken before, and now one that allows for both signs."""
    return difference.high - difference.value == pytest.approx(difference.value - difference.low, abs=1e-12)


def check_difference(found, before):
    assert found.value == pytest.approx(before["value"], abs=1e-9)
    if not is_degenerate(found):
        same(json.loads(found.model_dump_json()), before)


def test_two_checkpoints_differ_as_before():
    before, after = (evaluation_of(f"protocol-{label}", "v2", PANELS["v2"].opponents, label) for label in LABELS)
    for among in AMONG:
        found = list(differences(after, before, among))
        assert [[each.what, each.deals, each.share] for each in found] == [
            [what, deals, share] for what, deals, _, share in FROZEN["differences"][among]
        ]
        for each, (_, _, value, _) in zip(found, FROZEN["differences"][among], strict=True):
            check_difference(each.value, value)


def test_what_a_best_response_gained_is_a_difference_of_two_evaluations():
    before, after = (evaluation_of(f"evaluate-{label}", "run", ("scripted", "random")) for label in LABELS)
    found = {each.what: each for each in differences(after, before)}
    for side, expected in FROZEN["exploitability"].items():
        gain = found[f"games won, side {side} against scripted"]
        assert gain.deals == expected["deals"] == 20
        check_difference(gain.value, expected["gain"])
        for name, evaluation in (("before", before), ("after", after)):
            score = figures_of(evaluation).opponents["scripted"].by_side[side]
            same(json.loads(score.win_rate.model_dump_json()), expected[name])


def test_the_cross_table_is_the_one_of_before():
    found = figures_of(evaluation_of("cross", "cross", ("random", "scripted", "policy"))).cells
    cells = {(cell.wolf, cell.good): cell for cell in found}
    for expected in FROZEN["cross"]["cells"]:
        expected.pop("not_finished")
        same(json.loads(cells[expected["wolf"], expected["good"]].model_dump_json()), expected)
