"""Figures by hand on made-up games; that they are those of before on real ones is ``test_frozen``."""

import random

import numpy as np
import pytest

from algo.evaluation.actions import ODDS_OF_VOTES, VOTES_FOR_WOLVES, actions_of, truth_of
from algo.evaluation.figures import by_game, differences, figures_of, metrics_of
from algo.evaluation.statistics import wilson_interval
from algo.evaluation.strengths import fit_strengths
from store.werewolf_study import ChoiceRecord, SpeechRecord, VoteRecord
from tests.support.algo.made_games import made_evaluation, made_row


def vote(seat, target, odds=0.5, best=0.8, pivotal=False, at=9):
    return VoteRecord(at=at, day=1, seat=seat, target=target, odds=odds, best=best, chance=0.25, pivotal=pivotal)


def test_win_rates_are_of_games_and_a_draw_is_nobodys_win():
    results = [("good", 1), ("wolf", 2), ("draw", 3)]
    rows = [made_row("scripted", "policy", result, deal) for result, deal in results]
    rows += [made_row("policy", "scripted", result, deal) for result, deal in results]
    found = figures_of(made_evaluation(rows, planned={"scripted": 8}))
    against = found.opponents["scripted"]
    assert against.by_side["good"].win_rate == against.by_side["wolf"].win_rate == wilson_interval(1, 3)
    assert (against.both_sides.games, against.both_sides.wins, against.both_sides.draws) == (6, 2, 2)
    assert against.not_finished == 2
    assert found.all_games == against.both_sides
    assert [(cell.wolf, cell.good, cell.wolf_wins, cell.good_wins, cell.draws) for cell in found.cells] == [
        ("scripted", "policy", 1, 1, 1), ("policy", "scripted", 1, 1, 1)
    ]  # fmt: skip
    metrics = metrics_of(made_evaluation(rows, planned={"scripted": 8}), found)
    assert metrics["evaluation/win_rate"] == pytest.approx(1 / 3) and metrics["evaluation/games/not_finished"] == 2
    assert metrics["evaluation/win_rate/good/vs/scripted/low"] == wilson_interval(1, 3).low


def test_actions_are_counted_by_player_and_side():
    row = made_row(
        votes=(vote(2, 1, 0.8, pivotal=True), vote(3, 4, 0.2), vote(4, None, None), vote(1, 2)),
        speeches=(
            SpeechRecord(at=1, day=1, seat=2, claimed="seer", reports=((1, "wolf"),)),
            SpeechRecord(at=2, day=1, seat=1, claimed="seer", reports=((3, "wolf"),)),
            SpeechRecord(at=3, day=1, seat=5),
        ),
        kills=(ChoiceRecord(day=1, target=2), ChoiceRecord(day=2)),
        checks=(ChoiceRecord(day=1, seat=2, target=1),),
        deaths={2: 1, 1: 2},
    )
    good = actions_of([row], "scripted", "good", seed=1)
    assert good.games == 1
    assert {name: share.value for name, share in good.shares.items()} == {
        VOTES_FOR_WOLVES: 0.5,
        ODDS_OF_VOTES: 0.5,
        "best odds of any seat": 0.8,
        "odds of a random vote": 0.25,
        "votes for a seat with the best odds": 0.5,
        "pivotal votes for a wolf": 1.0,
        "seer alive at the end": 0.0,
        "villager alive at the end": 1.0,
    }
    assert good.counts == {
        "votes": {"abstained": 1, "not pivotal": 1, "pivotal": 1},
        "checks": {"wolf": 1},
        "roles that the seer claims": {"seer": 1},
        "roles that the villager claims": {"none": 1},
        "claims of the seer": {"true": 1},
        "claims of the villager": {"none": 1},
        "checks reported by the seer": {"true": 1},
    }
    wolves = actions_of([row], "policy", "wolf", seed=1)
    assert wolves.counts["kills"] == {"nobody": 1, "seer": 1}
    assert wolves.counts["checks reported by the wolf"] == {"false": 1}
    assert actions_of([row], "policy", "good", seed=1).games == 0


@pytest.mark.parametrize(
    ("said", "truth"),
    [
        (dict(), "none"),
        (dict(claimed="seer", reports=((1, "wolf"),)), "true"),
        (dict(claimed="seer", reports=((1, "wolf"), (3, "wolf"))), "false"),
        (dict(claimed="villager"), "false"),
        (dict(claimed="seer", reports=((9, "good"),)), "false"),
    ],
)
def test_a_speech_is_true_if_all_of_its_claims_are(said, truth):
    assert truth_of(SpeechRecord(at=0, day=1, seat=2, **said), made_row()) == truth


def test_v2_reports_each_subset_and_the_reference_on_the_same_deals():
    rows = [made_row("policy", "scripted", "wolf", deal, errors=deal % 2) for deal in range(4)]
    # The reference in the policy's place won one of the same deals, and one that the policy did not play.
    rows += [made_row("scripted", "scripted", "wolf" if deal in (3, 9) else "good", deal) for deal in (2, 3, 9)]
    for deal, own, others in ((1, "good", "wolf"), (2, "good", "good"), (3, "good", "wolf"), (4, "wolf", "wolf")):
        rows += [
            made_row("random", "random", result, deal, single=(2, player))
            for player, result in (("policy", own), ("scripted", others))
        ]
    evaluation = made_evaluation(rows, panel="v3", opponents=("scripted", "initial"))
    figures = {among: figures_of(evaluation, among) for among in ("all", "without_errors")}
    assert (figures["all"].games, figures["without_errors"].games) == (15, 13)
    wolves = figures["all"].opponents["scripted"].by_side["wolf"]
    assert (wolves.games, wolves.win_rate.value, wolves.reference.value) == (4, 1.0, pytest.approx(2 / 3))
    assert wolves.difference.value == pytest.approx(0.5)  # of deals 2 and 3
    good = figures["all"].opponents["scripted"].by_side["good"]
    assert good.win_rate is None and good.difference is None
    single = figures["all"].single_seats
    assert (single["good"].games, single["good"].win_rate.value, single["good"].difference.value) == (4, 0.75, 0.5)
    assert single["wolf"].games == 0 and single["wolf"].difference is None
    assert figures["without_errors"].opponents["scripted"].by_side["wolf"].games == 2


def test_what_is_pooled_is_of_games_with_the_players_that_every_model_meets():
    cast = (vote(2, 1, 0.8), vote(3, 4, 0.2))
    others = ("scripted", "expert", "initial", "strong")
    rows = [made_row(wolf, "policy", "good", deal, votes=cast) for deal, wolf in enumerate(others)]
    evaluation = made_evaluation(rows, panel="v3", opponents=others)
    figures = figures_of(evaluation)
    places = ("0: scripted against policy", "1: expert against policy")
    (own,) = [actions for actions in figures.actions if (actions.player, actions.side) == ("policy", "good")]
    assert (figures.games, own.games, sum(own.counts["votes"].values())) == (4, 2, 4)
    assert by_game(evaluation, "all") == {
        VOTES_FOR_WOLVES: dict.fromkeys(places, 0.5), ODDS_OF_VOTES: dict.fromkeys(places, 0.5)
    }  # fmt: skip


def test_two_evaluations_of_the_same_terms_are_compared_deal_by_deal():
    def played(*results, errors=0):
        return [
            made_row("scripted", "policy", result, deal, errors, votes=(vote(2, 1 if result == "good" else 3),))
            for deal, result in results
        ]

    before = made_evaluation(played((1, "wolf"), (2, "wolf"), (3, "good")))
    after = made_evaluation(played((1, "good"), (2, "wolf"), (4, "wolf")) + played((3, "good"), errors=1), "step 5")
    found = {each.what: each for each in differences(after, before)}
    won = found["games won, side good against scripted"]
    assert (won.deals, won.value.value, won.share) == (3, pytest.approx(1 / 3), True)
    assert found[VOTES_FOR_WOLVES].value.value == pytest.approx(1 / 3)
    assert not any("single seat" in what or "side wolf" in what for what in found)
    (without,) = [each for each in differences(after, before, "without_errors") if each.what.startswith("games won")]
    assert (without.deals, without.value.value) == (2, 0.5)
    # Against weights of another beginning there is nothing to compare.
    ours, theirs = (
        made_evaluation([made_row("initial", "policy")], opponents=("initial",), initial=name) for name in "ij"
    )
    assert list(differences(ours, ours)) and not list(differences(ours, theirs))
    other = before.model_copy(update={"header": before.header.model_copy(update={"digest": "e"})})
    with pytest.raises(ValueError, match="cannot be compared"):
        list(differences(after, other))


# --- strengths --------------------------------------------------------------------------------------------------------


def drawn_games(strengths, advantage, deals, seed=3):
    """Of every ordered pair of different players one game a deal, by the model itself."""
    chance = random.Random(seed)
    rows = []
    for deal in range(deals):
        for wolf in strengths:
            for good in strengths:
                if wolf != good:
                    odds = advantage + strengths[good] - strengths[wolf]
                    won = chance.random() < 1 / (1 + np.exp(-odds))
                    rows.append(made_row(wolf, good, "good" if won else "wolf", deal))
    return rows


def test_the_fit_finds_what_games_were_drawn_from():
    drawn = {"scripted": 0.0, "strong": 1.2, "weak": -0.8}
    fit = fit_strengths(drawn_games(drawn, advantage=-0.7, deals=400), "scripted", seed=1)
    assert fit.advantage.low < -0.7 < fit.advantage.high and "scripted" not in fit.players
    for name in ("strong", "weak"):
        for found in (fit.players, fit.as_wolf, fit.as_good):
            assert found[name].low < drawn[name] < found[name].high
    assert list(fit.players) == ["strong", "weak"]


def test_what_is_easy_to_win_with_is_no_strength():
    pairs = [("policy", "scripted"), ("scripted", "policy"), ("scripted", "scripted")]
    rows = [
        made_row(wolf, good, "good" if (deal + 5 * number) % 17 == 0 else "wolf", deal)
        for deal in range(68)
        for number, (wolf, good) in enumerate(pairs)
    ]
    fit = fit_strengths(rows, "scripted", seed=1)
    assert fit.advantage.high < -1.5 and abs(fit.players["policy"].value) < 1e-3


def test_who_always_wins_has_a_finite_strength_and_nobody_none():
    rows = [made_row("policy", "random", "wolf", deal) for deal in range(30)]
    rows += [made_row("random", "policy", "good", deal) for deal in range(30)]
    fit = fit_strengths(rows, "random", seed=1)
    assert 1 < fit.players["policy"].value < 10
    assert fit_strengths([], "random", seed=1) is None


def test_single_seats_separate_a_role_from_its_side():
    """The policy wins with the seer's seat alone, and loses in a villager's."""
    rows = [
        made_row("scripted", "scripted", result, deal, single=(seat, "policy"))
        for deal in range(200)
        for seat, result in ((2, "good"), (3, "wolf"))
    ]
    fit = fit_strengths(rows, "scripted", seed=1)
    assert fit.roles["seer"].low > 0 > fit.roles["villager"].high
