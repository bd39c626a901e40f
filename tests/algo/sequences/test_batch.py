"""The batch that verl gets: which token lands where, and that its arrangement does not change the loss.

Locks: prompts, responses and masks of interleaved sequences; padding rows, micro-batches (by rows or by
tokens) and ranks leave verl's own losses and gradients alone, for every way of aggregating them.
"""

import random
from functools import partial

import pytest
import torch
from verl.utils import tensordict_utils
from verl.utils.metric import Metric
from verl.workers.utils.losses import ppo_loss, value_loss

from algo.sequences.batch import build_batch, mini_batches
from algo.sequences.targets import TargetRow
from algo.training.targets_loss import TARGET_ROWS, TARGET_WEIGHT, policy_and_targets_loss
from algo.training.verl_configs import LOSS_AGG_MODES, actor_config, critic_config
from configs.sections.training import ReferenceConfig, TrainingConfig
from configs.werewolf import WerewolfConfig
from tests.support.algo.trajectories import made_trajectory

VOCABULARY = 20


def trajectory(mask, seat=1, first_token=2):
    tokens = tuple(first_token + position % (VOCABULARY - 2 - first_token) for position in range(len(mask)))
    logprobs = tuple(-0.1 * (position + 1) if sampled else 0.0 for position, sampled in enumerate(mask))
    return made_trajectory(mask, actor=f"seat {seat:02d}", token_ids=tokens, logprobs=logprobs)


def uneven(count):
    rng = random.Random(count)
    return [
        trajectory(
            [0] + [rng.randrange(2) for _ in range(rng.randint(1, 12))] + [1], seat=seat, first_token=2 + seat % 5
        )
        for seat in range(count)
    ]


def rows(batch, name):
    return [row.tolist() for row in batch[name].unbind()]


def test_a_sequence_is_split_before_its_first_sampled_token():
    batch = build_batch(
        [trajectory([0, 0, 1, 1, 0, 1]), trajectory([0, 1, 0])],
        [[9, 9, 1, 2, 9, 3], [9, 4, 9]],
        temperature=0.5,
    )
    assert rows(batch, "input_ids") == [[2, 3, 4, 5, 6, 7], [2, 3, 4]]
    assert rows(batch, "position_ids") == [[0, 1, 2, 3, 4, 5], [0, 1, 2]]
    assert rows(batch, "loss_mask") == [[0, 0, 1, 1, 0, 1], [0, 1, 0]]
    assert rows(batch, "prompts") == [[2, 3], [2]]
    assert rows(batch, "responses") == [[4, 5, 6, 7], [3, 4]]
    assert rows(batch, "response_mask") == [[1, 1, 0, 1], [1, 0]]
    assert rows(batch, "advantages") == [[1, 2, 0, 3], [4, 0]]
    assert rows(batch, "old_log_probs") == [pytest.approx([-0.3, -0.4, 0, -0.6]), pytest.approx([-0.2, 0])]
    assert batch["temperature"] == 0.5


def test_every_column_lies_over_the_response_and_is_cleared_at_given_tokens():
    names = ["advantages", "old_log_probs", "reference_log_probs", "importance_weights", "values", "returns"]
    given = {name: [[9, 10 * number, 9, 10 * number + 1]] for number, name in enumerate(names, start=1)}
    batch = build_batch([trajectory([0, 1, 0, 1])], temperature=1.0, **given)
    verls_names = ["advantages", "old_log_probs", "ref_log_prob", "rollout_is_weights", "values", "returns"]
    for number, name in enumerate(verls_names, start=1):
        assert rows(batch, name) == [[10 * number, 0, 10 * number + 1]], name


def test_rows_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"g, seat 03, segment 0: advantages of shape \(2,\) for 3 tokens"):
        build_batch([trajectory([0, 1, 1], seat=3)], [[1.0, 1.0]], temperature=1.0)


@pytest.mark.parametrize("count", [1, 2, 5, 8, 33])
@pytest.mark.parametrize(("ranks", "micro"), [(1, 1), (1, 4), (2, 4), (3, 2)])
def test_every_row_is_dealt_once_and_every_rank_gets_as_many(count, ranks, micro):
    batch = build_batch(uneven(count), temperature=1.0)
    arranged = mini_batches(batch, mini_batch_size=16, micro_batch_size=micro, ranks=ranks, seed=4)
    dealt = [row for each in arranged for row in each.rows if row is not None]
    assert sorted(dealt) == list(range(count))
    sizes = [each.real_rows for each in arranged]
    assert max(sizes) <= 16 and max(sizes) - min(sizes) <= 1
    for each in arranged:
        assert len(each.rows) == len(each.data)
        assert each.micro_batch_size <= micro
        assert len(each.rows) % (ranks * each.micro_batch_size) == 0
        for start in range(0, len(each.rows), each.micro_batch_size):
            together = each.rows[start : start + each.micro_batch_size]
            assert together.count(None) <= 1
            assert count < ranks or together != (None,)
        for row, ids in zip(each.rows, rows(each.data, "input_ids"), strict=True):
            assert ids == ([0, 0] if row is None else rows(batch, "input_ids")[row])


@pytest.mark.parametrize("count", [1, 2, 5, 8, 33])
@pytest.mark.parametrize(("ranks", "max_tokens"), [(1, 14), (2, 20), (3, 60), (2, 1000), (2, 3)])
@pytest.mark.parametrize("packed", [True, False])
def test_forward_passes_are_filled_by_tokens(count, ranks, max_tokens, packed):
    batch = build_batch(uneven(count), temperature=1.0)
    lengths = [len(row) for row in rows(batch, "input_ids")]
    arranged = mini_batches(
        batch, mini_batch_size=16, micro_batch_size=1, ranks=ranks, seed=4, max_tokens=max_tokens, packed=packed
    )
    assert sorted(row for each in arranged for row in each.rows if row is not None) == list(range(count))
    for each in arranged:
        size = each.micro_batch_size
        filled = [each.rows[start : start + size] for start in range(0, len(each.rows), size)]
        assert len(filled) % ranks == 0
        real = [[lengths[row] for row in together if row is not None] for together in filled]
        for together in real:
            room = sum(together) if packed else size * max(together, default=0)
            assert room <= max_tokens or len(together) == 1
        if packed:
            # No emptier filling wastes a whole round of the ranks.
            assert len(filled) <= ranks * (2 * sum(map(sum, real)) // max_tokens + 1) or max_tokens < max(lengths)
            assert all(real) or len(filled) - ranks < each.real_rows


@pytest.mark.parametrize("by_tokens", [{}, {"max_tokens": 9, "packed": True}])
def test_ranks_compute_sequences_of_similar_length_at_the_same_time(by_tokens):
    batch = build_batch([trajectory([0] * length + [1]) for length in (8, 1, 6, 3, 7, 2, 5, 4)], temperature=1.0)
    (whole,) = mini_batches(batch, mini_batch_size=8, micro_batch_size=1, ranks=2, seed=None, **by_tokens)
    size = whole.micro_batch_size
    lengths = [0 if row is None else batch["loss_mask"][row].numel() for row in whole.rows]
    sums = [sum(lengths[start : start + size]) for start in range(0, len(lengths), size)]
    first, second = sums[: len(sums) // 2], sums[len(sums) // 2 :]
    assert sum(sums) == 8 + 36 and all(0 <= a - b <= 1 for a, b in zip(first, second, strict=True))


def test_rows_of_similar_length_can_share_a_mini_batch_which_spares_padding_and_loses_none():
    trajectories = uneven(203)
    lengths = [len(each.token_ids) for each in trajectories]
    batch = build_batch(trajectories, temperature=1.0)

    def arranged(similar_lengths, seed=3):
        split = dict(mini_batch_size=4, micro_batch_size=4, ranks=1, seed=seed, similar_lengths=similar_lengths)
        return [[row for row in each.rows if row is not None] for each in mini_batches(batch, **split)]

    def with_padding(mini):
        return sum(len(rows) * max(lengths[row] for row in rows) for rows in mini)

    sorted_together = arranged(True)
    assert sorted(row for rows in sorted_together for row in rows) == list(range(203))
    assert len(sorted_together) == len(arranged(False)) and {len(rows) for rows in sorted_together} <= {3, 4}
    assert with_padding(sorted_together) < 1.1 * sum(lengths) < with_padding(arranged(False))
    assert arranged(True) == sorted_together != arranged(True, seed=4)
    longest = [max(lengths[row] for row in rows) for rows in sorted_together]
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


def verl_gradient(arranged, ranks, theta, loss_function, metrics=None):
    """Loss and gradient as verl's engine adds them up: micro-batches summed, ranks averaged.

    The "model" gives token t the log-prob theta[t], wherever it stands, and a value alike.
    metrics: to which those of the micro-batches are added.
    """
    data = arranged.data
    tensordict_utils.assign_non_tensor(
        data,
        dp_size=ranks,
        batch_num_tokens=data["loss_mask"].values().sum().item(),
        global_batch_size=arranged.real_rows,
    )
    theta = theta.clone().requires_grad_()
    total = torch.zeros(())
    for micro_batch in tensordict_utils.chunk_tensordict(data, len(data) // arranged.micro_batch_size):
        ids = micro_batch["input_ids"]
        # Entry i of verl's model output speaks of token i + 1.
        log_probs = torch.nested.nested_tensor_from_jagged(theta[ids.values().roll(-1)], ids.offsets())
        output = {"log_probs": log_probs, "entropy": log_probs**2, "values": log_probs}
        loss, found = loss_function(model_output=output, data=micro_batch)
        for name, metric in found.items() if metrics is not None else ():
            metrics.setdefault(name, Metric(aggregation=metric.aggregation)).append(metric)
        total = total + loss / ranks
    total.backward()
    return total.item(), theta.grad


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("loss", ["vanilla", "gspo", "value"])
def test_the_arrangement_changes_neither_loss_nor_gradient(mode, loss):
    torch.manual_seed(0)
    trajectories = uneven(5)
    columns = {
        name: [torch.randn(len(row.token_ids)) for row in trajectories]
        for name in ("advantages", "reference_log_probs", "importance_weights", "values", "returns")
    }
    columns["importance_weights"] = [row.exp() for row in columns["importance_weights"]]
    batch = build_batch(trajectories, temperature=1.0, **columns)
    theta = -0.5 * torch.rand(VOCABULARY)
    training = {"loss_agg_mode": mode, "entropy_coeff": 0.1, "max_sequence_tokens": 16}
    if loss == "value":
        config = WerewolfConfig.model_validate(
            {"training": training, "rollout": {"context_tokens": 16, "reply_tokens": 8}}
        )
        loss_function = partial(value_loss, config=critic_config(config))
    else:
        training = TrainingConfig(policy_loss=loss, **training)
        loss_function = partial(ppo_loss, config=actor_config(training, ReferenceConfig(kl="loss", coef=0.3)))

    def gradient(ranks, micro, **by_tokens):
        (whole,) = mini_batches(batch, mini_batch_size=8, micro_batch_size=micro, ranks=ranks, seed=None, **by_tokens)
        return verl_gradient(whole, ranks, theta, loss_function)

    expected_loss, expected = gradient(ranks=1, micro=5)
    assert expected.abs().max() > 1e-4
    arrangements = [gradient(*each) for each in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 4), (4, 2), (8, 1)]]
    for ranks, max_tokens in [(1, 14), (1, 30), (2, 16), (3, 20)]:
        arrangements += [gradient(ranks, 1, max_tokens=max_tokens, packed=packed) for packed in (True, False)]
    for found_loss, found in arrangements:
        assert found_loss == pytest.approx(expected_loss, rel=1e-5)
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_targets_add_their_cross_entropy_whatever_the_arrangement(mode):
    trajectories, theta, weight = uneven(5), -0.5 * torch.rand(VOCABULARY), 0.5
    advantages = [torch.randn(len(row.token_ids)) for row in trajectories]
    targets = [
        TargetRow((2, 3, 4, 5), (0.0, 0.0, 1.0, 0.5)),
        TargetRow((7,) * 9 + (4,), (0.0,) * 9 + (1.0,)),
        TargetRow((5, 6), (0.0, 2.0)),
    ]
    training = TrainingConfig(loss_agg_mode=mode, max_sequence_tokens=16)
    loss_function = partial(policy_and_targets_loss, config=actor_config(training))

    def gradient(ranks, micro, targets, weight):
        batch = build_batch(trajectories, advantages, temperature=1.0, targets=targets)
        (whole,) = mini_batches(batch, mini_batch_size=5, micro_batch_size=micro, ranks=ranks, seed=None)
        tensordict_utils.assign_non_tensor(whole.data, **{TARGET_WEIGHT: weight, TARGET_ROWS: whole.target_rows})
        found = {}
        result = verl_gradient(whole, ranks, theta, loss_function, found)
        kls.append(found["actor/ppo_kl"].aggregate() / ranks)
        return result

    kls = []
    loss, of_policy = gradient(1, 5, (), 0.0)
    of_targets = torch.zeros(VOCABULARY)
    of_targets[[4, 5, 6]] = -torch.tensor([1.0 + 1.0, 0.5, 2.0]) / len(targets)
    for ranks, micro in [(1, 8), (1, 1), (1, 3), (2, 2), (4, 1)]:
        found_loss, found = gradient(ranks, micro, targets, weight)
        assert found_loss == pytest.approx(loss + weight * (of_targets * theta).sum().item(), rel=1e-4)
        assert torch.allclose(found, of_policy + weight * of_targets, rtol=1e-4, atol=1e-6)
        assert torch.allclose(gradient(ranks, micro, targets, 0.0)[1], of_policy, rtol=1e-4, atol=1e-6)
    assert abs(kls[0]) > 0.01 and kls == pytest.approx([kls[0]] * len(kls), rel=1e-4)
