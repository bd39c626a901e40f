"""Which games an evaluation keeps whole, and what is kept of their seats."""

from collections import Counter

from algo.rollouts.triplets import CallTriplets, FinishedRollout
from algo.werewolf.matches import match_tasks
from algo.werewolf.samples import SampleTurn, sample_games
from configs.sections.rewards import RewardConfig
from store.token_spans import context_digest, to_span
from store.werewolf import GAME
from tests.support.fakes import make_result, make_turn
from tests.support.settings import werewolf_config

WEIGHTS = RewardConfig(invalid=-0.5, wolf={"win": 2.0})


def finished(task):
    """A game that the wolf won, who said one thing that could be used and one that could not."""
    (wolf,) = make_result().seats
    good = wolf.model_copy(update={"seat": 2, "role": "seer", "side": "good", "outcome": -1.0, "turns": 0})
    names = {rule.side: next(iter(rule.players)) for rule in task.seating}
    seats = tuple(seat.model_copy(update={"policy": names[seat.side]}) for seat in (wolf, good))
    result = make_result("wolf").model_copy(
        update={"game_id": task.game_id, "seed": task.seed, "seats": seats, "transcript": f"of {task.game_id}"}
    )
    fresh = dict(game_id=task.game_id, seat=1, context_tokens=0, context_digest=context_digest([]))
    turns = [
        make_turn(
            turn=0,
            segment=0,
            valid=False,
            facts={"invalid": 1.0},
            error="negated",
            reply="不",
            decision="wolf_kill",
            **fresh,
        ),
        make_turn(turn=1, segment=1, reply="决定：2号", thought="想", decision="wolf_kill", target=2, **fresh),
    ]
    spans = [
        to_span(turn, rollout_id="r", attempt_id="a", sequence_id=n, start_time=1.0, end_time=2.0)
        for n, turn in enumerate(turns)
    ]
    triplets = tuple(CallTriplets(GAME).adapt(spans))
    return FinishedRollout("r", "a", result, tuple(turns), triplets, Counter())


def test_of_each_opponent_and_side_the_first_two_deals_that_finished_are_kept():
    matches = [match_tasks("policy", name, [11, 13, 15, 17], werewolf_config(), "m") for name in ("scripted", "random")]
    lost = matches[0][0]  # the policy as the wolves against scripted players, on the first deal
    games = [finished(task) for tasks in matches for task in tasks if task is not lost]
    samples = sample_games(matches, reversed(games), WEIGHTS)
    assert [(game.players["wolf"], game.players["good"], game.deal) for game in samples] == [
        ("policy", "scripted", 13), ("policy", "scripted", 15), ("scripted", "policy", 11), ("scripted", "policy", 13),
        ("policy", "random", 11), ("policy", "random", 13), ("random", "policy", 11), ("random", "policy", 13),
    ]  # fmt: skip
    assert all(game.transcript == f"of {game.game_id}" and (game.result, game.days) == ("wolf", 2) for game in samples)
    assert sample_games(matches, [], WEIGHTS) == ()


def test_a_seat_has_its_turns_and_what_it_earns_by_the_runs_weights():
    tasks = match_tasks("policy", "scripted", [11], werewolf_config(), "m")
    wolf, seer = sample_games([tasks], [finished(tasks[0])], WEIGHTS)[0].seats
    assert (wolf.seat, wolf.role, wolf.side, wolf.policy, wolf.reward) == (1, "wolf", "wolf", "policy", 2.0 - 0.25)
    assert wolf.turns == (
        SampleTurn(day=1, decision="wolf_kill", thought="", reply="不", error="negated", target=None),
        SampleTurn(day=1, decision="wolf_kill", thought="想", reply="决定：2号", error=None, target=2),
    )
    assert (seer.role, seer.policy, seer.reward, seer.turns) == ("seer", "scripted", None, ())
