"""The result of one closed rollout: every turn that it cannot use is counted."""

from types import SimpleNamespace

from algo.rollouts.played import SUPERSEDED_ATTEMPT, UNREADABLE_ROLLOUT, read_rollout
from store.werewolf import GAME
from tests.support.fakes import make_turn, spans_of


def test_the_turns_of_a_rollout_that_cannot_be_read_are_counted():
    rollout = SimpleNamespace(rollout_id="ro-1", status="succeeded", attempt=SimpleNamespace(attempt_id="at-1"))
    unreadable = spans_of([make_turn(turn=0), make_turn(turn=1)])  # without an outcome
    read = read_rollout(GAME, rollout, [*spans_of([make_turn(turn=0)], attempt_id="at-0"), *unreadable])
    assert (read.finished, read.failures, read.turns_stored) == ((), {"IncompleteRollout": 1}, 3)
    assert read.left_out == {SUPERSEDED_ATTEMPT: 1, UNREADABLE_ROLLOUT: 2}
