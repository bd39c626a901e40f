"""Muon beside AdamW: which weights are whose, what a step is, on shards as in one piece."""

import math
from contextlib import closing

import pytest
import torch

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from algo.training.muon import MATRICES, MuonAndAdamW, orthogonalised, parameter_groups
from configs.werewolf import WerewolfConfig
from tests.support.small_models import load_model, make_model, make_trajectories, plain_log_probs

RATE, MATRIX_RATE, DECAY = 0.01, 3.0, 0.1


@pytest.fixture
def model(tmp_path):
    return load_model(make_model(tmp_path, tied=False))


def test_a_matrix_keeps_its_directions_and_loses_their_sizes():
    torch.manual_seed(1)
    for shape in ((24, 60), (60, 24), (32, 32)):
        matrix = torch.randn(shape)
        left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
        found = left.T @ orthogonalised(matrix) @ right.T
        assert sizes.max() / sizes.min() > 3  # there is something to do
        diagonal = found.diagonal()
        assert diagonal.min() > 0.6 and diagonal.max() < 1.3
        # In its own directions, and in no others.
        assert (found - torch.diag(diagonal)).abs().max() < 1e-4
    assert orthogonalised(torch.zeros(4, 6)).abs().max() == 0


def test_hidden_matrices_are_muons_and_all_else_is_adamws(model):
    groups = {group[MATRICES]: group["params"] for group in parameter_groups(model)}
    names = {id(weight): name for name, weight in model.named_parameters()}
    matrices, others = ({names[id(weight)] for weight in groups[kind]} for kind in (True, False))
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} <= others
    assert {"model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"} <= matrices
    assert matrices | others == set(names.values())


def test_a_step_of_each(model):
    torch.manual_seed(2)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    gradients = [{name: torch.randn_like(weight) for name, weight in before.items()} for _ in range(2)]
    optimizer = MuonAndAdamW(parameter_groups(model), MATRIX_RATE, lr=RATE, betas=(0.9, 0.95), weight_decay=DECAY)
    matrices = {id(weight) for weight in optimizer.param_groups[1]["params"]}
    is_matrix = {name: id(weight) in matrices for name, weight in model.named_parameters()}
    plain = {name: torch.nn.Parameter(weight.clone()) for name, weight in before.items() if not is_matrix[name]}
    adamw = torch.optim.AdamW(plain.values(), lr=RATE, betas=(0.9, 0.95), weight_decay=DECAY)
    for weights, steps in ((dict(model.named_parameters()), optimizer), (plain, adamw)):
        for gradient in gradients:
            for name, weight in weights.items():
                weight.grad = gradient[name].clone()
            steps.step()
    found = {name: weight.detach() for name, weight in model.named_parameters()}
    for name, start in before.items():
        if not is_matrix[name]:
            assert torch.equal(found[name], plain[name])
            continue
        expected, momentum = start.clone(), torch.zeros_like(start)
        for gradient in gradients:
            momentum = 0.95 * momentum + 0.05 * gradient[name]
            direction = orthogonalised(0.05 * gradient[name] + 0.95 * momentum)
            rows, columns = start.shape
            rate = RATE * MATRIX_RATE * math.sqrt(max(1, rows / columns))
            expected = (1 - RATE * DECAY) * expected - rate * direction
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)


def test_through_the_engine_in_shards(ray_cluster, tmp_path):
    """Two optimizer steps on two ranks, and on from a checkpoint between them, are those of plain PyTorch."""
    folder = make_model(tmp_path / "model", tied=False)
    training = dict(
        ranks=2, optimizer="muon", matrix_rate=MATRIX_RATE, learning_rate=RATE, weight_decay=DECAY,
        adam_betas=[0.9, 0.95], mini_batch_size=8, micro_batch_size=2, grad_clip=1e9, max_sequence_tokens=64,
    )  # fmt: skip
    config = WerewolfConfig.model_validate(
        {
            "model": {"path": folder},
            "training": training,
            "rollout": {"context_tokens": 64, "reply_tokens": 16},
            "run": {"dir": tmp_path},
        }
    )
    trajectories = make_trajectories(7, seed=3)
    plain = load_model(folder)
    optimizer = MuonAndAdamW(parameter_groups(plain), MATRIX_RATE, lr=RATE, betas=(0.9, 0.95), weight_decay=DECAY)
    for _ in range(2):
        log_probs = [plain_log_probs(plain, trajectory, temperature=1.0) for trajectory in trajectories]
        masks = [torch.tensor(trajectory.loss_mask) for trajectory in trajectories]
        loss = -sum((row * mask).sum() for row, mask in zip(log_probs, masks, strict=True)) / sum(map(torch.sum, masks))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batch = build_batch(trajectories, temperature=1.0)
    with closing(Engine(config)) as engine:
        engine.imitate(batch)
        engine.save(tmp_path / "between", step=1)
        engine.imitate(batch)
        engine.load(tmp_path / "between")
        engine.imitate(batch)
        engine.export(tmp_path / "exported")
    updated = load_model(tmp_path / "exported").state_dict()
    for name, expected in plain.state_dict().items():
        assert (updated[name] - expected).abs().quantile(0.99) < 1e-4, name
