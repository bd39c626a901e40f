"""Actions and strengths by hand on made-up games; figures are held to those of recorded games by ``test_frozen``."""

import random

import numpy as np
import pytest

from algo.evaluation.actions import ODDS_OF_VOTES, VOTES_FOR_WOLVES, actions_of, truth_of
from algo.evaluation.strengths import fit_strengths
from store.werewolf_study import ChoiceRecord, SpeechRecord, VoteRecord
from tests.support.algo.made_games import made_row


def vote(seat, target, odds=0.5, best=0.8, pivotal=False, at=9):
    return VoteRecord(at=at, day=1, seat=seat, target=target, odds=odds, best=best, chance=0.25, pivotal=pivotal)


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
