"""The critic on the policy's ranks, against plain PyTorch, and what happens when a rank dies.

Locks: which token a value belongs to; the critic's loss and update.
"""

import threading
from contextlib import closing

import psutil
import pytest
import torch
from ray.exceptions import RayError
from transformers import AutoModelForTokenClassification

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.schema import Config
from tests.support.small_models import TEMPERATURE, largest_difference, make_model, make_trajectories, with_value_head

CRITIC_LEARNING_RATE, CLIP_VALUE = 2e-2, 0.5


@pytest.fixture(scope="module")
def started(ray_cluster, tmp_path_factory):
    """An engine of two ranks, and the folder that holds its models and a checkpoint."""
    directory = tmp_path_factory.mktemp("critic")
    make_model(directory / "policy", tied=False)
    with_value_head(make_model(directory / "critic", tied=False, seed=2))
    config = Config.model_validate(
        {
            "run": {"steps": 4},
            "model": {"path": directory / "policy"},
            "critic": {"path": directory / "critic", "learning_rate": CRITIC_LEARNING_RATE},
            "advantage": {"estimator": "gae"},
            "training": {
                "ranks": 2,
                "lr_schedule": "cosine",
                "lr_warmup_steps": 1,
                "mini_batch_size": 5,
                "micro_batch_size": 2,
                "grad_clip": 1000,
            },
        }
    )
    with closing(Engine(config)) as engine:
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


def test_a_rank_that_dies_in_an_update_ends_it_with_an_error(fresh):
    """Last: the engine is closed after it."""
    engine, _ = fresh
    trajectories = make_trajectories(300)
    rows = [torch.ones(len(row.token_ids)) for row in trajectories]
    batch = build_batch(trajectories, rows, temperature=TEMPERATURE)
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
