"""Games that are ahead of training (``rollout.max_policy_lag``): every turn is of the weights that it names.

Real hub (`python -m store`), runner, vLLM (attached to) and verl. Kills with games in flight, without a model:
tests/algo/loop/test_train.py and test_fleet_faults.py.
"""

import json

import pytest

from tests.support.algo.machine import GAMES, STEPS, finish, steps_of
from tests.support.recording_proxy import FLOAT32_TOLERANCE

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]


LAG = ["rollout.max_policy_lag=1", "training.rollout_correction.rollout_is=token"]


def groups_of(machine, name):
    return json.loads((machine.folder / name / "summary.json").read_text())["groups_by_step"]


def test_every_turn_is_of_the_weights_that_it_names(machine):
    """Compared with the weights of each version, which checkpoints keep: also of games in whose midst new ones came."""
    import torch

    from tests.support.small_models import load_model, token_log_probs

    settings = [*LAG, "checkpoint.keep=3", "log.save_batches=true"]
    finish(machine, "ahead", *settings)
    steps = [line["data"] for line in steps_of(machine, "ahead")]
    assert [step["policy_version"] for step in steps] == [1, 2]
    assert steps[0]["policy_lag/max"] == 0
    assert 0 < max(step["policy_lag/max"] for step in steps) <= 1
    assert all(step["rollouts/finished"] == GAMES and step["tokens/trained"] > 0 for step in steps)
    assert sorted(group for groups in groups_of(machine, "ahead") for group in groups) == sorted(
        f"ahead-step{step:04d}-deal{deal:02d}" for step in range(1, STEPS + 1) for deal in range(2)
    )
    summary = json.loads((machine.folder / "ahead" / "summary.json").read_text())
    assert summary["rollouts"] == {"finished": STEPS * GAMES, "failed": 0}

    folders = [machine.model, *sorted((machine.folder / "ahead" / "checkpoints").glob("step-*/huggingface"))]
    models = [load_model(folder) for folder in folders]
    assert len(models) == STEPS + 1
    older = queued = 0
    for step in range(1, STEPS + 1):
        for line in (machine.folder / "ahead" / "batches" / f"step-{step:04d}.jsonl").read_text().splitlines():
            row = json.loads(line)
            start = 0
            with torch.no_grad():
                computed = [token_log_probs(model, row["token_ids"]).tolist() for model in models]
            for end, version in zip(row["turn_ends"], row["turn_versions"], strict=True):
                places = [place for place in range(start, end) if row["loss_mask"][place]]
                assert step - 2 <= version <= step - 1
                older += version < step - 1

                by_it, by_next = (
                    [abs(row["logprobs"][place] - computed[number][place]) < FLOAT32_TOLERANCE for place in places]
                    for number in (version, version + 1)
                )
                # A turn that was sampled while new weights came is of them from some token on: from its first one, if
                # it still waited in vLLM's queue.
                switch = by_it.index(False) if False in by_it else len(places)
                assert all(by_next[switch:]), (step, end, version)
                queued += switch == 0
                start = end
    assert older > 10 and older > 2 * queued  # how many wait depends on what else the machine does
