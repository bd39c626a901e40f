"""Which policy learns from what: of several, each from its own trajectories alone; the models are fakes."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from algo.advantages.baseline import RoleBaselines
from algo.advantages.estimators import TokenAdvantages
from algo.loop import policy_update
from algo.loop.policy_update import Update, by_learner, update_policy, values_and_kl
from algo.rollouts.played import UnusableRollouts
from algo.run.records import write_batch
from algo.sequences.selection import Selection
from algo.sequences.targets import TargetRow
from algo.training.thread import TrainerThread
from tests.support.settings import werewolf_config
from tests.support.small_models import make_trajectories

TEAM = {"wolves": {"side": "wolf"}, "villagers": {"side": "good"}}


def played(team=True):
    """Two groups of two games, with a wolf and a seer in each; one of each group has won."""
    found = []
    for number, one in enumerate(make_trajectories(8, seed=4)):
        game, is_wolf = number // 2, number % 2 == 0
        found.append(
            replace(
                one,
                task_id=f"game-{game}",
                group_id=f"deal-{game // 2}",
                actor=f"seat {number % 2}",
                role="wolf" if is_wolf else "seer",
                side="wolf" if is_wolf else "good",
                reward=float(game % 2 == is_wolf),
                learner=("wolves" if is_wolf else "villagers") if team else None,
            )
        )
    return found


class Selected(Exception):
    """Which policy was active when the models were asked."""


class FakeEngine:
    active = "nobody"

    def select(self, policy):
        self.active = policy

    def log_probs(self, batch):
        raise Selected(self.active)


@pytest.fixture
def run_of(monkeypatch, tiny_model):
    def make(policies, targets=()):
        calls = []

        def update(config, engine, share, version, targets, weight):
            trajectories, advantages = share.trajectories, share.advantages.per_token
            calls.append(({one.learner for one in trajectories}, len(trajectories), targets))
            return Update(tuple(trajectories), advantages, advantages, Counter(stale=1), {"actor/pg_loss": 0.5})

        monkeypatch.setattr(policy_update, "update_policy", update)
        run = SimpleNamespace(
            config=werewolf_config(policies=policies, model={"path": tiny_model}),
            engine=FakeEngine(),
            trainer=TrainerThread(),
            state=SimpleNamespace(policy_version=0, step=0),
            workload=SimpleNamespace(targets_of=lambda rollout: targets, target_weight=0.1),
        )
        return run, calls

    return make


ROLLOUTS = SimpleNamespace(finished=[None])


async def test_each_policy_learns_from_what_it_sampled_and_from_nothing_else(run_of, tmp_path):
    rows = [TargetRow((1, 2), (0.0, 1.0), name) for name in TEAM]
    run, calls = run_of(TEAM, rows)
    shares = await policy_update.compute_advantages(run, by_learner(run.config, played()), RoleBaselines(0.9))
    assert [(share.learner, len(share.trajectories)) for share in shares] == [("wolves", 4), ("villagers", 4)]
    made = await policy_update.update_policies(run, shares, ROLLOUTS, "step 1/1")
    assert calls == [({"wolves"}, 4, [rows[0]]), ({"villagers"}, 4, [rows[1]])]
    assert made.metrics == {"wolves/actor/pg_loss": 0.5, "villagers/actor/pg_loss": 0.5}
    assert len(made.trained) == 8 and made.left_out == {"stale": 2}
    write_batch(tmp_path / "batch.jsonl", made.trained, made.advantages, made.log_probs)
    lines = [json.loads(line) for line in (tmp_path / "batch.jsonl").read_text().splitlines()]
    assert [line["learner"] for line in lines] == ["wolves"] * 4 + ["villagers"] * 4


async def test_a_policy_without_anything_to_learn_from_is_left_as_it_is(run_of):
    run, calls = run_of(TEAM)
    wolves = [one for one in played() if one.learner == "wolves"]
    shares = await policy_update.compute_advantages(run, by_learner(run.config, wolves), RoleBaselines(0.9))
    assert [len(share.selected.rows) for share in shares] == [4, 0]
    await policy_update.update_policies(run, shares, ROLLOUTS, "step 1/1")
    assert [who for who, *_ in calls] == [{"wolves"}]


class FakeActorAndCritic(FakeEngine):
    """Its log-probs are vLLM's, and its values differ at every token."""

    def log_probs(self, batch):
        return [torch.cat([torch.zeros(len(a)), b]) for a, b in self.rows(batch, "prompts", "old_log_probs")]

    def values(self, batch):
        return [row + torch.arange(len(ids)) / 100 for row, (ids,) in enumerate(self.rows(batch, "input_ids"))]

    def update_critic(self, batch):
        self.learned = [*self.rows(batch, "input_ids", "values", "returns")]
        return {"critic/vf_loss": 0.25}

    def update(self, batch, target_weight):
        return {}

    @staticmethod
    def rows(batch, *names):
        return zip(*(batch[name].unbind() for name in names), strict=True)


async def test_a_critic_learns_the_returns_of_the_selected_sequences(run_of, monkeypatch):
    run, _ = run_of({})
    monkeypatch.setattr(policy_update, "update_policy", update_policy)
    changes = {"advantage": {"estimator": "gae"}, "selection": {"roles": ("seer",)}}
    run.config, run.engine = werewolf_config(model={"path": run.config.model.path}, **changes), FakeActorAndCritic()
    own = [replace(one, reward=1.0 + number) for number, one in enumerate(played(team=False))]
    (share,) = await policy_update.compute_advantages(run, by_learner(run.config, own), RoleBaselines(0.9))
    made = await policy_update.update_policies(run, [share], ROLLOUTS, "step 1/1")
    assert made.metrics["critic/vf_loss"] == 0.25
    seers = (1, 3, 5, 7)
    for row, (ids, *learned) in zip(seers, run.engine.learned, strict=True):
        assert tuple(ids.tolist()) == own[row].token_ids
        start, mask = own[row].loss_mask.index(1), torch.tensor(own[row].loss_mask)
        for found, whole in zip(learned, (share.values, share.advantages.returns), strict=True):
            assert torch.equal(found, (whole[row] * mask)[start:])


def share_of(rows):
    everything = Selection(tuple(range(len(rows))), Counter())
    advantages = TokenAdvantages([torch.zeros(1)] * len(rows), (True,) * len(rows), None, {})
    return policy_update.LearnerShare("policy", tuple(rows), None, advantages, everything)


@pytest.mark.parametrize("learner", ["wolves", None])
def test_models_are_asked_as_the_policy_that_sampled_the_sequences(learner):
    rows = [replace(one, learner=learner) for one in played()]
    config = werewolf_config(reference={"kl": "reward", "penalty": "k1"})
    for call in (
        lambda: values_and_kl(config, FakeEngine(), rows),
        lambda: update_policy(config, FakeEngine(), share_of(rows), policy_version=0),
    ):
        with pytest.raises(Selected, match=f"^{learner}$"):
            call()


def test_what_no_policy_of_the_run_sampled_is_refused(run_of):
    run, _ = run_of(TEAM)
    with pytest.raises(UnusableRollouts, match="game-0, seat 0: 'seers' does not learn in this run"):
        by_learner(run.config, [replace(played()[0], learner="seers")])
    run, _ = run_of({})
    with pytest.raises(UnusableRollouts, match="'wolves' does not learn"):
        by_learner(run.config, played()[:1])


def test_tokens_that_the_model_does_not_have_are_refused(run_of):
    run, _ = run_of({})
    own = played(team=False)[0]
    strange = replace(own, token_ids=(*own.token_ids[:-1], 1_000_000))
    with pytest.raises(UnusableRollouts, match="game-0, seat 0: token id 1000000 is not among"):
        by_learner(run.config, [strange])
