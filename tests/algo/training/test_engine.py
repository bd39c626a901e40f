"""The engine against plain transformers and PyTorch: log-probs, imitation, export, save and load.

Locks: which token a log-prob and a mask entry belong to; that loss and gradient do not depend on padding rows,
micro-batches (by rows or by tokens), ranks or recomputed activations; float32 all the way; ranks on several nodes. The
policy's loss is that of test_update_reference.py.
"""

import json
from contextlib import closing

import pytest
import ray
import torch
from transformers import AutoTokenizer

from algo.sequences.batch import build_batch
from algo.training import ray_cluster
from algo.training.engine import Engine
from algo.training.ray_cluster import resource_pool
from configs.model_folder import check_model_folder
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from tests.support.small_models import (
    TEMPERATURE,
    largest_difference,
    load_model,
    make_model,
    make_trajectories,
    plain_log_probs,
    rows_of,
)

LEARNING_RATE = 1e-2
WEIGHT_DECAY = 0.05


def make_config(model, ranks, **training):
    training |= dict(
        ranks=ranks, learning_rate=LEARNING_RATE, mini_batch_size=8, micro_batch_size=2, grad_clip=0.5,
        weight_decay=WEIGHT_DECAY, max_sequence_tokens=64,
    )  # fmt: skip
    rollout = {"context_tokens": 64, "reply_tokens": 16}
    return WerewolfConfig.model_validate({"model": {"path": model}, "training": training, "rollout": rollout})


@pytest.fixture(scope="module", params=["one_rank", "two_nodes"])
def started(request, ray_cluster, tmp_path_factory):
    """An engine, its model folder and a checkpoint of its first state."""
    directory = tmp_path_factory.mktemp("engine")
    model = make_model(directory / "model", tied=request.param == "one_rank")
    if request.param == "one_rank":
        config = make_config(model, ranks=1)
    else:
        config = make_config(model, ranks=2, nodes=2, max_tokens_per_micro_batch=64, gradient_checkpointing=True)
    with closing(Engine(config)) as engine:
        engine.save(directory / "start", step=0)
        yield engine, model, directory / "start"


@pytest.fixture
def fresh(started):
    """The engine in its first state."""
    engine, model, start = started
    assert engine.load(start) == 0
    return engine, model


@pytest.mark.parametrize(("weigh", "count"), [("token", 7), ("reply", 7), ("token", 1)])
def test_imitation_equals_plain_pytorch(fresh, tmp_path, weigh, count):
    """Cross entropy of the sampled tokens, a mean over all of them or over replies; one AdamW step. Advantages play no
    part."""
    engine, model = fresh
    trajectories = make_trajectories(count, seed=3)
    plain = load_model(model)
    log_probs = [plain_log_probs(plain, trajectory, temperature=1.0) for trajectory in trajectories]
    weights = [trajectory.turn_shares() for trajectory in trajectories] if weigh == "reply" else None
    masks = [torch.tensor(row) for row in weights or (trajectory.loss_mask for trajectory in trajectories)]
    if weigh == "reply":
        assert sum(map(torch.sum, masks)) == pytest.approx(sum(len(each.turn_ends) for each in trajectories))
    loss = -sum((row * mask).sum() for row, mask in zip(log_probs, masks, strict=True)) / sum(map(torch.sum, masks))
    optimizer = torch.optim.AdamW(plain.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    optimizer.step()

    steps = []
    batch = build_batch(trajectories, temperature=1.0, imitation_weights=weights)
    metrics = engine.imitate(batch, lambda: steps.append("done"))
    assert steps == ["done"]
    assert metrics["imitation/loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert metrics["imitation/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert metrics["imitation/lr"] == pytest.approx(LEARNING_RATE)
    assert (metrics["imitation/optimizer_steps"], metrics["imitation/skipped_steps"]) == (1, 0)
    engine.export(tmp_path / "exported")
    updated = load_model(tmp_path / "exported").state_dict()
    for name, expected in plain.state_dict().items():
        assert (updated[name] - expected).abs().quantile(0.99) < 1e-5, name


def test_an_exported_folder_loads_and_agrees(fresh, tmp_path):
    engine, model = fresh
    trajectories = make_trajectories(6)
    batch = build_batch(trajectories, [torch.ones(len(row.token_ids)) for row in trajectories], temperature=TEMPERATURE)
    before = engine.log_probs(batch)
    engine.update(batch)
    after = engine.log_probs(batch)
    assert largest_difference(before, after) > 1e-2
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "stale").touch()
    # transformers does not save this one, since it sets a temperature without sampling.
    (model / "generation_config.json").write_text('{"temperature": 0.6}')
    engine.export(tmp_path / "exported")
    assert (tmp_path / "exported" / "generation_config.json").read_text() == '{"temperature": 0.6}'
    (model / "generation_config.json").unlink()
    assert not (tmp_path / "exported" / "stale").exists()
    check_model_folder(tmp_path / "exported")
    exported = load_model(tmp_path / "exported")
    assert largest_difference(after, rows_of(exported, trajectories)) < 1e-5
    assert AutoTokenizer.from_pretrained(tmp_path / "exported").get_vocab()["w5"] == 5
    assert exported.config.tie_word_embeddings == load_model(model).config.tie_word_embeddings


def test_a_checkpoint_continues_exactly(fresh, tmp_path):
    engine, _ = fresh
    trajectories = make_trajectories(9)
    batch = build_batch(trajectories, [torch.ones(len(row.token_ids)) for row in trajectories], temperature=TEMPERATURE)
    engine.update(batch)
    saved = engine.log_probs(batch)
    engine.save(tmp_path / "checkpoint", step=7)
    second = engine.update(batch)
    assert second["actor/optimizer_steps"] == 2
    continued = engine.log_probs(batch)
    assert engine.load(tmp_path / "checkpoint") == 7
    assert largest_difference(engine.log_probs(batch), saved) == 0
    # The optimizer's state and the order of the rows come back too.
    assert engine.update(batch)["actor/grad_norm"] == pytest.approx(second["actor/grad_norm"], rel=1e-6)
    assert largest_difference(engine.log_probs(batch), continued) < 1e-6


def test_a_checkpoint_goes_on_at_the_learning_rate_of_its_run(fresh, tmp_path):
    """As where a run is resumed with another one: what the optimizer and the schedule saved is not that."""
    engine, _ = fresh
    trajectories = make_trajectories(4)
    batch = build_batch(trajectories, [torch.ones(len(row.token_ids)) for row in trajectories], temperature=TEMPERATURE)
    assert engine.update(batch)["actor/lr"] == LEARNING_RATE
    engine.save(tmp_path / "checkpoint", step=1)
    rates, engine._rates = engine._rates, {"policy": {"policy": LEARNING_RATE / 4}, "critic": {"policy": 1.0}}
    engine.load(tmp_path / "checkpoint")
    engine._rates = rates
    assert [engine.update(batch)["actor/lr"] for _ in range(2)] == [LEARNING_RATE / 4] * 2
    engine.load(tmp_path / "checkpoint")
    assert engine.update(batch)["actor/lr"] == LEARNING_RATE


def test_a_checkpoint_of_other_ranks_or_policies_is_refused(fresh, tmp_path):
    engine, _ = fresh
    with pytest.raises(ConfigError, match="has no checkpoint"):
        engine.load(tmp_path)
    engine.save(tmp_path, step=1)
    written = json.loads((tmp_path / "engine.json").read_text())
    for other, message in (
        ({"ranks": 16}, r"training\.ranks=16"),
        ({"policies": ["wolves", "villagers"]}, r"the policies that learn \(policies\)=\['wolves', 'villagers'\], but"),
    ):
        (tmp_path / "engine.json").write_text(json.dumps(written | other))
        with pytest.raises(ConfigError, match=message):
            engine.load(tmp_path)


def test_ranks_that_the_cluster_cannot_hold_are_refused_before_they_are_waited_for(fresh, monkeypatch):
    _, model = fresh
    nodes, cpus = len(ray.nodes()), ray.nodes()[0]["Resources"]["CPU"]
    too_many = int(cpus * nodes) + 1
    with pytest.raises(
        ConfigError, match=rf"ranks={too_many} .*needs {too_many} CPU on each node.* {nodes} node\(s\): {cpus:g}"
    ):
        resource_pool(make_config(model, too_many).training)
    with pytest.raises(ConfigError, match=r"only .* are free: .* lower training\.ranks"):
        resource_pool(make_config(model, int(cpus * nodes), nodes=nodes).training)
    with monkeypatch.context() as patched:
        both = [{"CPU": 3.0}, {"CPU": 3.0}]
        patched.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": node} for node in both])
        patched.setattr(ray_cluster, "available_resources_per_node", lambda: {"a": {"CPU": 3.0}, "b": {"CPU": 1.0}})
        with pytest.raises(ConfigError, match=r"only 3 CPU; 1 CPU of the Ray cluster's nodes are free"):
            resource_pool(make_config(model, 4, nodes=2).training)
    with pytest.raises(ConfigError, match=r"needs 1 CPU and 1 GPU on each node.* 0 GPU.*serving\.share_gpus=true"):
        resource_pool(make_config(model, 1, device="cuda").training)
