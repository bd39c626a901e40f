"""What is watched in a run's numbers: bounds that are left for several steps, warnings, and ends."""

import logging

import pytest

from algo.run.watch import Collapsed, out_of_bounds, watch
from algo.werewolf.metrics import variety_metrics
from configs.sections.watch import BoundConfig
from tests.support.fakes import make_result, make_turn


def steps(*values):
    """Steps without the number have None."""
    return [{} if value is None else {"share": value} for value in values]


def test_a_number_is_unsound_once_it_left_its_bounds_for_as_many_steps_as_they_say():
    bound = {"share": BoundConfig(below=0.5, above=0.9, steps=2)}
    assert out_of_bounds(steps(0.4), bound) == {}
    assert out_of_bounds(steps(0.4, 0.6), bound) == {} == out_of_bounds(steps(0.4, 0.5), bound)
    assert out_of_bounds(steps(0.6, 0.4, 0.95), bound) == {"share": [0.4, 0.95]}
    # Steps that have not the number are passed over; the last one must have it.
    assert out_of_bounds(steps(0.4, None, 0.3), bound) == {"share": [0.4, 0.3]}
    assert out_of_bounds(steps(0.4, 0.3, None), bound) == {} == out_of_bounds([], bound)


def test_it_is_said_in_the_log_or_ends_the_run(caplog):
    watched = {"share": BoundConfig(below=0.5, steps=1)}
    with caplog.at_level(logging.WARNING):
        watch(steps(0.7), watched)
        assert not caplog.records
        watch(steps(0.25), watched)
    (record,) = caplog.records
    assert "watch.share: 0.25 in the last 1 steps, below 0.5" in record.getMessage()
    with pytest.raises(Collapsed, match="share: 0"):
        watch(steps(0.25), {"share": watched["share"].model_copy(update={"stop": True})})


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
