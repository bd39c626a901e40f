"""Branches of real games: which decisions are chosen, and what their continuations tell."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from algo.advantages.branching import branch_credit
from algo.rollouts.triplets import FinishedRollout, triplets_of
from algo.sequences.trajectories import build_trajectories
from algo.werewolf.branching import branch_points
from algo.werewolf.rewards import game_rewards
from algo.werewolf.tasks import step_tasks
from configs.sections.rewards import RewardConfig
from configs.sections.training import BranchingConfig
from store.schema import PolicyResources
from tests.runners.werewolf.test_table import legal_answer
from tests.support.fakes import FakeVllm
from tests.support.settings import werewolf_config
from tests.support.tasks import play_task


def config(**settings):
    return werewolf_config(
        groups_per_step=4, rollouts_per_group=2, opponent="scripted", context_tokens=8000,
        training={"max_sequence_tokens": 8192},
        advantage={"credit": "branch", "branching": {"continuations": 2} | settings},
    )  # fmt: skip


def rewards_of(game):
    return game_rewards(game, RewardConfig())


@pytest.fixture
async def played(tiny_tokenizer, tiny_model):
    """A function that plays tasks, with a policy that answers at random."""

    async def play(task):
        resources = PolicyResources(run_name="run", version=3, endpoints=(vllm.endpoint,), model="policy")
        outcome, turns = await play_task(task, resources)
        turns.sort(key=lambda turn: (turn.actor, turn.turn))
        return FinishedRollout(task.task_id, "a", outcome, tuple(turns), tuple(triplets_of(turns)), Counter(), (), ())

    async with FakeVllm(tiny_tokenizer, legal_answer(random.Random(1)), str(tiny_model)) as vllm:
        yield play


def test_sides_alternate_over_the_steps():
    tasks = [task for step in (1, 2) for task in step_tasks(config(share=0.25), step)]
    assert Counter(task.trainable for task in tasks) == {frozenset({"wolf"}): 6, frozenset({"good"}): 6}


async def test_a_decision_is_made_anew_in_each_of_its_branches_and_valued_by_them(played):
    settings = config()
    tasks = step_tasks(settings, 1)
    assert len(tasks) == 4  # two of four groups are branches
    games = [await played(task) for task in tasks]
    points = branch_points(settings.advantage.branching, tasks, games, 4)
    assert points == branch_points(settings.advantage.branching, tasks, games, 4)
    branches = {}
    for point in points:
        for task in point.tasks:
            branches[task.task_id] = await played(task)
    assert len(points) == 2 and len(branches) == 4
    decisions = [point.decision(branches, rewards_of) for point in points]
    credit = branch_credit(decisions)
    assert credit.branches == set(branches)
    found = build_trajectories([*games, *branches.values()], rewards_of, 8192)
    trained = {(one.task_id, one.actor, number) for one in found.trajectories for number in one.turn_numbers}
    for point, decision in zip(points, decisions, strict=True):
        call = point.calls[0]
        outcomes = [game.outcome.result for game in (point.game, *(branches[task.task_id] for task in point.tasks))]
        wins = [1.0 if result == call.side else -1.0 if result != "draw" else 0.0 for result in outcomes]
        assert [one.outcomes[call.actor] for one in decision.continuations] == wins
        worth = credit.worths[point.game.outcome.task, call.actor, call.turn]
        assert (worth.before, worth.games) == (pytest.approx(sum(wins) / 3), 3)
        # Of a branch exactly the turns from the decision on are trained on, all by branches.
        for task in point.tasks:
            game = branches[task.task_id]
            later = [turn for turn in game.turns if turn.side == call.side and (
                turn.moment > call.moment or (turn.moment == call.moment and turn.seat == call.seat)
            )]  # fmt: skip
            mine = {(task.task_id, turn.actor, turn.turn) for turn in later}
            assert {one for one in trained if one[0] == task.task_id} == mine
            assert all(credit.advantage(*one) is not None for one in mine)


async def test_decisions_are_chosen_by_kind_and_by_how_undecided_others_were(played):
    settings = config()
    tasks = step_tasks(settings, 1)
    games = [await played(task) for task in tasks]

    def chosen(games, most=100, **settings):
        return branch_points(BranchingConfig(continuations=1, **settings), tasks, games, most)

    def keys(points):
        return {(point.game.outcome.task, point.calls[0].moment) for point in points}

    votes = chosen(games, decisions=("vote",))
    assert {point.calls[0].question for point in votes} <= {"exile_vote", "pk_vote"} and votes
    speeches = chosen(games, decisions=("speech",))
    assert {point.calls[0].question for point in speeches} <= {"speech", "pk_speech", "last_words"} and speeches
    seers = branch_points(BranchingConfig(continuations=1), tasks, games, 100, roles=["seer"])
    assert {point.calls[0].role for point in seers} == {"seer"}
    # The wolves' talk at night is free text.
    renamed = [[turn.model_copy(update={"decision": "wolf_talk"}) for turn in game.turns] for game in games]
    talks = [replace(game, turns=tuple(turns)) for game, turns in zip(games, renamed, strict=True)]
    assert not chosen(talks) and chosen(talks, decisions=("speech",))
    # Seats asked at once: one of them.
    assert len(keys(votes)) == len(votes)
    assert len(chosen(games, most=3)) == 3

    def with_surprise(game, nats):
        """The game with votes of so much surprise."""
        of_votes = [
            turn.model_copy(update={"logprobs": (-nats,) * len(turn.logprobs)}) if is_vote(turn) else turn
            for turn in game.turns
        ]
        return replace(game, turns=tuple(of_votes))

    def is_vote(turn):
        return turn.question == "exile_vote"

    def branched_votes(games):
        return {point.game.outcome.task for point in chosen(games) if is_vote(point.calls[0])}

    # A question that nobody is undecided at is not branched at; a game's own replies do not count for it.
    certain = [with_surprise(game, 0.0) for game in games]
    assert branched_votes(certain) == set()
    others = {game.outcome.task for game in games[1:] if any(is_vote(turn) and turn.trainable for turn in game.turns)}
    assert branched_votes([with_surprise(games[0], 1.0), *certain[1:]]) == others and others
    # Where continuations came apart in earlier steps is branched at more often.
    weights = {"exile_vote": [1.0] * 50, "wolf_kill": [0.0] * 50, "seer_check": [0.0] * 50, "witch": [0.0] * 50}
    equal = {"exile_vote": [0.0], "seer_check": [0.0]}  # all branches of an earlier step ended alike
    assert branch_points(BranchingConfig(continuations=1), tasks, games, 4, equal)
    few = [chosen(games, most=4), branch_points(BranchingConfig(continuations=1), tasks, games, 4, weights)]
    plain, apart = (sum(is_vote(point.calls[0]) for point in points) for points in few)
    assert plain < apart
    # A game whose tokens cannot be joined cannot be repeated.
    broken = [replace(games[0], triplets=games[0].triplets[1:]), *games[1:]]
    assert games[0].outcome.task not in {point.game.outcome.task for point in chosen(broken)}
