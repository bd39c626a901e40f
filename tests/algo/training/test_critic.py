"""Reference and critic on the policy's ranks, against plain PyTorch, and what happens when a rank dies.

Locks: which token a value belongs to; the critic's loss and update; the KL in the loss, against another model than
the policy; that neither disturbs the other; a new value head.
"""

import threading

import psutil
import pytest
import torch
from ray.exceptions import RayError
from transformers import AutoModelForTokenClassification

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.schema import Config
from tests.support.small_models import (
    TEMPERATURE,
    largest_difference,
    load_model,
    make_model,
    make_trajectories,
    plain_log_probs,
    with_value_head,
)

LEARNING_RATE, CRITIC_LEARNING_RATE, CLIP_VALUE, KL_COEF = 1e-2, 2e-2, 0.5, 0.3


@pytest.fixture(scope="module")
def started(ray_cluster, tmp_path_factory):
    """An engine of two ranks with all three models, and the folder that holds them and a checkpoint."""
    directory = tmp_path_factory.mktemp("critic")
    make_model(directory / "policy", tied=False)
    make_model(directory / "reference", tied=True, seed=1)
    with_value_head(make_model(directory / "critic", tied=False, seed=2))
    config = Config.model_validate(
        {
            "run": {"steps": 4},
            "model": {"path": directory / "policy"},
            "reference": {"kl": "loss", "coef": KL_COEF, "penalty": "k3", "path": directory / "reference"},
            "critic": {
                "path": directory / "critic",
                "learning_rate": CRITIC_LEARNING_RATE,
            },
            "advantage": {"estimator": "gae"},
            "training": {
                "ranks": 2,
                "learning_rate": LEARNING_RATE,
                "lr_schedule": "cosine",
                "lr_warmup_steps": 1,
                "mini_batch_size": 5,
                "micro_batch_size": 2,
                "grad_clip": 1000,
            },
        }
    )
    with Engine(config) as engine:
        engine.save(directory / "start", step=0)
        yield engine, directory


@pytest.fixture
def fresh(started):
    engine, directory = started
    assert engine.load(directory / "start") == 0
    return engine, directory


def plain_values(model, trajectory):
    values = model(input_ids=torch.tensor([trajectory.token_ids])).logits[0, :, 0]
    return torch.cat([torch.zeros(1), values[:-1]])


def random_rows(trajectories, seed):
    torch.manual_seed(seed)
    return [torch.randn(len(row.token_ids)) for row in trajectories]


def test_a_value_is_that_of_the_state_in_which_its_token_was_chosen(fresh):
    engine, directory = fresh
    trajectories = make_trajectories(5)
    plain = AutoModelForTokenClassification.from_pretrained(directory / "critic", dtype=torch.float32)
    with torch.no_grad():
        expected = [plain_values(plain, trajectory) for trajectory in trajectories]
    assert largest_difference(engine.values(build_batch(trajectories, temperature=TEMPERATURE)), expected) < 1e-5
    (row,) = engine.values(build_batch([first := trajectories[0]], temperature=TEMPERATURE))
    changed = list(first.token_ids)
    changed[5] = 63 if changed[5] != 63 else 62
    other = first.__class__(**(vars(first) | {"token_ids": tuple(changed)}))
    (other_row,) = engine.values(build_batch([other], temperature=TEMPERATURE))
    assert torch.equal(row[:6], other_row[:6])
    assert ((row - other_row)[6:].abs() > 1e-4).all()


def test_the_references_log_probs_are_those_of_its_own_folder(fresh):
    engine, directory = fresh
    trajectories = make_trajectories(5)
    plain = load_model(directory / "reference")
    with torch.no_grad():
        expected = [plain_log_probs(plain, trajectory) for trajectory in trajectories]
    batch = build_batch(trajectories, temperature=TEMPERATURE)
    found = engine.reference_log_probs(batch)
    assert largest_difference(found, expected) < 1e-5
    assert largest_difference(found, engine.log_probs(batch)) > 0.1


def test_one_update_of_the_critic_equals_plain_pytorch(fresh):
    engine, directory = fresh
    trajectories = make_trajectories(5, seed=3)
    plain = AutoModelForTokenClassification.from_pretrained(directory / "critic", dtype=torch.float32)
    with torch.no_grad():
        old = [plain_values(plain, trajectory) for trajectory in trajectories]
    # Values that have moved more and less than the clipping range since.
    old = [row + 0.8 * noise for row, noise in zip(old, random_rows(trajectories, seed=1), strict=True)]
    returns = random_rows(trajectories, seed=2)
    batch = build_batch(trajectories, temperature=TEMPERATURE, values=old, returns=returns)
    # The schedule's first step has a learning rate of zero.
    first = engine.update_critic(batch)
    metrics = engine.update_critic(batch)
    assert (first["critic/lr"], metrics["critic/lr"]) == (0, pytest.approx(CRITIC_LEARNING_RATE))
    losses = []
    for trajectory, old_row, goal in zip(trajectories, old, returns, strict=True):
        sampled = torch.tensor(trajectory.loss_mask).bool()
        value, old_value, goal = plain_values(plain, trajectory)[sampled], old_row[sampled], goal[sampled]
        clipped = value.clamp(old_value - CLIP_VALUE, old_value + CLIP_VALUE)
        losses.append(0.5 * torch.maximum((value - goal) ** 2, (clipped - goal) ** 2).mean())
    loss = torch.stack(losses).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1000)
    for step in (first, metrics):
        assert step["critic/vf_loss"] == pytest.approx(loss.item(), rel=1e-4)
        assert step["critic/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0, weight_decay=0.01)
    for learning_rate in (0, CRITIC_LEARNING_RATE):
        optimizer.param_groups[0]["lr"] = learning_rate
        optimizer.step()
    with torch.no_grad():
        expected = [plain_values(plain, trajectory) for trajectory in trajectories]
    found = engine.values(batch)
    assert largest_difference(found, old) > 0.1
    assert largest_difference(found, expected) < 1e-3


def test_the_learning_rate_follows_updates_and_not_mini_batches(fresh):
    engine, _ = fresh
    trajectories = make_trajectories(12)
    batch = build_batch(trajectories, temperature=TEMPERATURE)
    batch = build_batch(
        trajectories,
        random_rows(trajectories, seed=6),
        temperature=TEMPERATURE,
        reference_log_probs=engine.reference_log_probs(batch),
    )
    steps = [engine.update(batch) for _ in range(3)]
    assert [step["actor/optimizer_steps"] for step in steps] == [3, 3, 3]
    # Zero at first, then a cosine over the other three of the run's four steps.
    rates = [step["actor/lr"] for step in steps]
    assert rates == pytest.approx([0, LEARNING_RATE, LEARNING_RATE * 0.75])


def test_policy_critic_and_reference_are_trained_and_saved_apart(fresh, tmp_path):
    engine, _ = fresh
    trajectories = make_trajectories(7)
    batch = build_batch(trajectories, temperature=TEMPERATURE)

    def state():
        return engine.log_probs(batch), engine.values(batch), engine.reference_log_probs(batch)

    policy, values, reference = state()
    goals = random_rows(trajectories, seed=7)
    batch = build_batch(
        trajectories,
        goals,
        temperature=TEMPERATURE,
        reference_log_probs=reference,
        values=values,
        returns=[torch.ones(len(row.token_ids)) for row in trajectories],
    )
    losses = [engine.update_critic(batch)["critic/vf_loss"] for _ in range(3)]
    assert losses[2] < losses[1] - 0.05  # nothing moves in the first step
    after_critic = state()
    assert largest_difference(after_critic[0], policy) == 0 and largest_difference(after_critic[1], values) > 0.05
    engine.update(batch)
    engine.update(batch)
    after_both = state()
    assert largest_difference(after_both[0], policy) > 0.05
    assert largest_difference(after_both[1], after_critic[1]) == 0
    assert largest_difference(after_both[2], reference) == 0

    engine.save(tmp_path / "checkpoint", step=3)
    engine.update_critic(batch)
    engine.update(batch)
    continued = state()
    assert largest_difference(continued[0], after_both[0]) > 0 and largest_difference(continued[1], after_both[1]) > 0
    assert engine.load(tmp_path / "checkpoint") == 3
    assert [largest_difference(*each) for each in zip(state(), after_both, strict=True)] == [0, 0, 0]
    engine.update_critic(batch)
    engine.update(batch)
    assert max(largest_difference(*each) for each in zip(state(), continued, strict=True)) < 1e-5


def test_a_rank_that_dies_in_an_update_ends_it_with_an_error(fresh):
    """Last: the engine is closed after it."""
    engine, _ = fresh
    trajectories = make_trajectories(300)
    batch = build_batch(trajectories, temperature=TEMPERATURE)
    rows = [torch.ones(len(row.token_ids)) for row in trajectories]
    batch = build_batch(trajectories, rows, temperature=TEMPERATURE, reference_log_probs=rows)
    ranks = [process for process in psutil.process_iter(["name"]) if process.info["name"].startswith("ray::Training")]
    own = {process.pid for process in psutil.Process().children(recursive=True)}
    ranks = [process for process in ranks if process.pid in own]
    assert len(ranks) == 2
    busy = threading.Event()
    train = engine._workers.train

    def kill():
        busy.wait()
        ranks[1].kill()

    def train_and_tell(data):
        future = train(data)
        busy.set()  # The first mini-batch is under way.
        return future

    engine._workers.train = train_and_tell
    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RayError):
        engine.update(batch)
    killer.join()
    _, alive = psutil.wait_procs(ranks, timeout=30)
    assert alive == []
    with pytest.raises(RuntimeError, match="the engine is closed"):
        engine.log_probs(batch)
