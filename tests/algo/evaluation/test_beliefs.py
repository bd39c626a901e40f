"""Scores of beliefs beside those of the deaf and of exact odds, in real and made-up games."""

import asyncio
import math
import random
from statistics import fmean

import pytest

from algo.evaluation.beliefs import (
    area_under_curve,
    belief_report,
    calibration,
    deck_chances,
    probed_answers,
    wolf_chance,
)
from configs.roles_and_decks import DECKS, Role
from runners.werewolf.brains import BRAINS
from runners.werewolf.game import get_preset
from runners.werewolf.players import Believed, BrainPlayer
from runners.werewolf.table import play_game
from store.werewolf import GameTask
from store.werewolf_study import BeliefRecord, Study, StudySpan

PRESET = "7p"


class Deaf(BrainPlayer):
    """Plays as an expert; believes what it counts itself: the wolf is one of the living, each as likely as the next.

    That is exact in 5p_tiny to a seat that knows of no check: its one wolf lives as long as the game goes on.
    """

    async def believe(self, question):
        dead = {seat for event in question.events if event.kind == "deaths_announced" for seat in event.seats}
        dead |= {event.target for event in question.events if event.kind == "exiled"}
        living = set(range(1, len(question.deck) + 1)) - dead - {self.seat}
        wolf = 1 / len(living)
        of_good = {Role.SEER: 1 / 4, Role.VILLAGER: 3 / 4}
        return Believed(
            {seat: {Role.WOLF: wolf, **{role: (1 - wolf) * of for role, of in of_good.items()}} for seat in living}
        )


def play_one(seed, deaf, preset_name=PRESET):
    """(study, seats) of a game of experts, of whom the seats ``deaf`` listen to nobody."""
    task = GameTask(
        game_id=f"g{seed}", group_id="g", seed=seed, sampling_seed=1, preset=preset_name,
        seating={"wolf": "expert", "good": "expert"}, trainable=[],
        limits={"context_tokens": 100, "reply_tokens": 10}, study=Study(probes=frozenset({"speech", "vote"})),
    )  # fmt: skip
    notes, roles, preset = [], {}, get_preset(preset_name)

    def seat_player(seat, role, name):
        roles[seat] = role
        brain = BRAINS["expert"](random.Random(f"{seed}/{seat}"))
        return Deaf(seat, brain) if seat in deaf else BrainPlayer(seat, brain)

    asyncio.run(play_game(task, 0, seat_player, lambda note, *times: notes.append(note)))
    (study,) = notes
    return study, {seat: (roles[seat], "deaf" if seat in deaf else "expert") for seat in preset.seats}


@pytest.fixture(scope="module")
def played():
    return [(seed, *play_one(seed, deaf={1, 2, 3})) for seed in range(8)]


def answers_of(played, player, preset=PRESET, roles=None):
    """(deal, answer) of a player's good seats. roles: those that count; None: all of the good side."""
    return [
        (deal, answer)
        for deal, study, seats in played
        for answer in probed_answers(study, preset, {seat: role for seat, (role, _) in seats.items()})
        if seats[answer.seat][1] == player and seats[answer.seat][0].side == "good"
        if roles is None or seats[answer.seat][0] in roles
    ]


def test_who_believes_the_experts_odds_has_the_ceilings_scores(played):
    report = belief_report(answers_of(played, "expert"), seed=1)
    assert report.own == report.exact and report.deaf != report.exact and report.listened == pytest.approx(1.0)
    assert report.exact.brier.high < report.deck.brier.low and report.exact.auc.low > 0.5
    assert report.exact.log_loss.value < report.deck.log_loss.value


def test_who_listens_to_nobody_but_counts_the_dead_has_not_listened():
    played = [(seed, *play_one(seed, {1, 2, 3, 4, 5}, "5p_tiny")) for seed in range(12)]
    answers = answers_of(played, "deaf", "5p_tiny", [Role.VILLAGER])
    report = belief_report(answers, seed=1)
    assert len(answers) > 20 and report.listened == pytest.approx(0.0, abs=1e-4)
    assert report.own.brier.value == pytest.approx(report.deaf.brier.value, abs=1e-5)
    assert report.own.auc.value == pytest.approx(0.5) and report.exact.brier.value < report.deaf.brier.value
    # Its Brier score is better than the deck's, which says nothing of who died: no sign of listening.
    assert report.deaf.brier.value < report.deck.brier.value - 1e-3


def test_the_deaf_bound_knows_cards_private_information_and_deaths(played):
    for _, study, _ in played:
        first = [belief for belief in study.beliefs if not any(speech.at < belief.at for speech in study.speeches)]
        assert first and all(belief.deaf == belief.ceiling for belief in first)


def test_the_decks_odds_are_a_share_of_the_cards_that_are_left():
    roles = dict(enumerate(DECKS["7p"], start=1))
    seer = next(seat for seat, role in roles.items() if role is Role.SEER)
    wolves = [seat for seat, role in roles.items() if role is Role.WOLF]
    others = [seat for seat in roles if seat != seer]
    for chances in deck_chances(DECKS["7p"], seer, roles, others).values():
        assert chances == {"wolf": 2 / 6, "villager": 3 / 6, "witch": 1 / 6, "seer": 0.0}
    of_wolf = deck_chances(DECKS["7p"], wolves[0], roles, [wolves[1], seer])
    assert wolf_chance(of_wolf[wolves[1]]) == 1.0
    assert of_wolf[seer] == {"wolf": 0.0, "villager": 3 / 5, "witch": 1 / 5, "seer": 1 / 5}


def test_brier_score_log_loss_and_calibration_by_hand():
    roles = {1: Role.WOLF, 2: Role.SEER, 3: Role.VILLAGER}
    chances = {1: {"wolf": 0.8, "seer": 0.2}, 2: {"wolf": 0.3, "seer": 0.7}}
    belief = BeliefRecord(at=5, day=1, moment="vote", seat=3, beliefs=chances, mass=0.5, ceiling=chances, deaf=chances)
    study = StudySpan(game_id="g", beliefs=(belief,))
    report = belief_report([(7, answer) for answer in probed_answers(study, "5p_tiny", roles)], seed=1)
    assert report.own.brier.value == pytest.approx((0.2**2 + 0.3**2) / 2) and report.mass == 0.5
    assert report.own.log_loss.value == pytest.approx(-fmean([math.log(0.8), math.log(0.7)]))
    assert report.own.auc.value == 1.0 and report.own.calibration_error == pytest.approx((0.2 + 0.3) / 2)
    assert belief_report([], seed=1) is None


def test_the_area_under_the_curve_counts_pairs():
    assert area_under_curve([(0.9, True), (0.1, False), (0.9, False)]) == 0.75
    assert area_under_curve([(0.9, True)]) is None
    (low, high) = calibration([(0.05, False), (0.0, True), (1.0, True)])
    assert (low.seats, low.predicted, low.observed) == (2, 0.025, 0.5) and (
        high.seats,
        high.predicted,
        high.observed,
    ) == (1, 1.0, 1.0)
