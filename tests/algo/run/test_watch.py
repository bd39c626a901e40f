"""What is watched in a run's numbers: bounds that are left for several steps, warnings, and ends."""

import logging
from contextlib import nullcontext

import pytest

from algo.run.watch import Collapsed, watch
from algo.werewolf.metrics import variety_metrics
from configs.sections.watch import BoundConfig
from tests.support.fakes import make_result, make_turn


def steps(*values):
    """Steps without the number have None."""
    return [{} if value is None else {"share": value} for value in values]


@pytest.mark.parametrize(
    ("values", "collapsed"),
    [
        ((0.4,), False),
        ((0.4, 0.6), False),
        ((0.4, 0.5), False),
        ((0.6, 0.4, 0.95), True),
        # Steps that have not the number are passed over; the last one must have it.
        ((0.4, None, 0.3), True),
        ((0.4, 0.3, None), False),
    ],
)
def test_a_number_is_unsound_once_it_left_its_bounds_for_as_many_steps_as_they_say(caplog, values, collapsed):
    bound = BoundConfig(below=0.5, above=0.9, steps=2)
    with caplog.at_level(logging.WARNING):
        watch(steps(*values), {"share": bound})
    assert len(caplog.records) == collapsed
    with pytest.raises(Collapsed, match="share") if collapsed else nullcontext():
        watch(steps(*values), {"share": bound.model_copy(update={"stop": True})})


def test_a_metric_that_no_step_has_is_warned_of_once_with_the_nearest_name(caplog):
    for count in (1, 2, 3):
        bound = BoundConfig(below=0.5, steps=2)
        watch(steps(*[0.6] * count), {"shares": bound, "speech/wolf": bound}, ["speech/wolf"])
    (record,) = caplog.records
    assert record.getMessage() == "watch.shares: no step has logged this metric so far; did you mean 'share'?"


def test_how_replies_vary_over_games():
    def said(game, text, side="good", **facts):
        measured = {"speech_chars": float(len(text)), **facts}
        return make_turn().model_copy(
            update={"game_id": game, "reply": text, "side": side, "policy": "policy", "facts": measured}
        )

    class Game:
        outcome = make_result()

        def __init__(self, *turns):
            self.turns = turns

    games = [
        Game(said("a", "我是好人，过"), said("a", "五号是狼", cut=1.0), said("a", "投票", speech_chars=0.0)),
        Game(said("b", "我是好人，过"), said("b", "三号可疑")),
    ]
    found = variety_metrics(games)
    # Two of four speeches are one text, all of whose runs the other game has, too.
    assert found == {
        "replies/good/cut_share": pytest.approx(1 / 5),
        "speech/good/distinct_share": pytest.approx(3 / 4),
        "speech/good/similarity": pytest.approx(2 / 4),
    }
    # Said twice in one game it is alike in itself, and not across games.
    twice = variety_metrics([Game(said("a", "我是好人，过"), said("a", "我是好人，过"))])
    assert (twice["speech/good/similarity"], twice["speech/good/distinct_share"]) == (0.0, 0.5)
