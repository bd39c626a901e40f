"""An algorithm that is killed at every stage of its steps ends with the weights of one that was left alone.

Real hub (`python -m store`), runner, vLLM (started here and attached to, so that a restart costs no start of vLLM) and
verl. One seed gives one run on one machine, so the comparison is exact.
"""

import json
import os
import signal
from collections import Counter

import pytest

from store.client import connect
from tests.support.algo.machine import (
    GAMES,
    LORA,
    STEPS,
    at_stage,
    finish,
    kill,
    kill_when,
    ranks_of,
    steps_of,
    weights_of,
)  # fmt: skip
from tests.support.recording_proxy import FLOAT32_TOLERANCE

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]

# (step, words of the log that tell what is being done): killed as soon as the log says so. Checkpoints are made after
# every second step, so a kill in the second undoes an update: what its weights were to play is played anew.
KILLS = [(1, "playing"), (1, "updating"), (2, "pushing version"), (2, "writing a checkpoint"), (3, "playing")]


@pytest.mark.soak  # test_chain.py kills whole weights once, and test_team.py compares weights after a kill
async def test_killed_at_many_stages_it_ends_with_the_same_weights(machine):
    import torch

    name = "everywhere"
    finish(machine, "whole")
    for step, doing in KILLS:
        kill_when(machine, name, step, doing)
    finish(machine, name)

    steps, weights = steps_of(machine, "whole"), weights_of(machine, "whole")
    broken = steps_of(machine, name)
    assert [line["step"] for line in broken] == [line["step"] for line in steps] == [1, 2, 3]
    for ours, undisturbed in zip(broken, steps, strict=True):
        for metric in ("rollouts/finished", "turns/in_batch", "tokens/trained", "policy_version", "reward/wolf"):
            assert ours["data"][metric] == undisturbed["data"][metric], (ours["step"], metric)
    for tensor, values in weights_of(machine, name).items():
        assert torch.equal(values, weights[tensor]), tensor
    summary = json.loads((machine.folder / name / "summary.json").read_text())
    assert summary["steps"] == STEPS and summary["rollouts"] == {"finished": STEPS * GAMES, "failed": 0}
    assert not list((machine.folder / name / "checkpoints").glob("unfinished-*"))
    await check_games_of(machine, name)


async def check_games_of(machine, name):
    """Games in flight were taken up, and none is left in the queue."""
    client = connect(machine.hub.url)
    rollouts = [
        rollout
        for rollout in await client.query_rollouts()
        if rollout.metadata["run"].startswith(f"{name}-")  # the run's id, which all its processes shared
    ]
    await client.close()
    assert len({rollout.metadata["run"] for rollout in rollouts}) == 1
    succeeded = Counter(rollout.metadata["task_id"] for rollout in rollouts if rollout.status == "succeeded")
    assert len(succeeded) == STEPS * GAMES
    # The first step's were enqueued for the weights that every process began with, so all of them shared these games.
    assert {count for game_id, count in succeeded.items() if "step0001" in game_id} == {1}
    assert {rollout.status for rollout in rollouts} <= {"succeeded", "failed", "cancelled"}


LAG = ["rollout.max_policy_lag=1", "training.rollout_correction.rollout_is=token", "checkpoint.every_steps=1"]


def groups_of(machine, name):
    return json.loads((machine.folder / name / "summary.json").read_text())["groups_by_step"]


def test_killed_with_games_in_flight_it_loses_no_group_and_every_turn_is_of_the_weights_that_it_says(machine):
    """Compared with the weights of each version, which checkpoints keep: also of games in whose midst new ones came."""
    import torch

    from tests.support.small_models import load_model, token_log_probs

    settings = [*LAG, "checkpoint.keep=3", "log.save_batches=true"]
    kill_when(machine, "ahead", 2, "pushing version", *settings)
    finish(machine, "ahead", *settings)
    steps = [line["data"] for line in steps_of(machine, "ahead")]
    assert [step["policy_version"] for step in steps] == [1, 2, 3]
    assert steps[0]["policy_lag/max"] == 0
    assert 0 < max(step["policy_lag/max"] for step in steps) <= 1
    assert all(step["rollouts/finished"] == GAMES and step["tokens/trained"] > 0 for step in steps)
    # As in a run that nothing disturbs: every group of the run once.
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
    assert older > 10 > queued


@pytest.mark.soak  # test_team.py kills adapters, too
def test_adapters_go_on_bit_by_bit_from_before_a_checkpoint_that_was_being_written_beside_the_next_step(machine):
    """The rank is halted as it begins to write: the next step is played nevertheless, and what is killed then is only
    that checkpoint."""
    from safetensors.torch import load_file

    name = "adapters"
    settings = [*LORA, "checkpoint.every_steps=1", f"serving.urls=[{machine.adapters}]"]
    algorithm = machine.algorithm(name, *settings)
    checkpoints = machine.folder / name / "checkpoints"
    at_stage(machine, name, 2, "writing a checkpoint", algorithm)
    ranks = ranks_of(machine, name)
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    assert len(ranks) == 1
    at_stage(machine, name, 3, "playing", algorithm)
    assert (checkpoints / "unfinished-step-000002").is_dir()
    assert [folder.name for folder in checkpoints.glob("step-*")] == ["step-000001"]
    made = load_file(machine.folder / name / "policy" / "version-000002" / "adapter_model.safetensors")
    for pid in ranks:  # what is halted cannot end by itself
        os.kill(pid, signal.SIGKILL)
    kill(machine, name, algorithm)

    before = len(machine.log(name))
    finish(machine, name, *settings)
    assert f"resuming from {checkpoints / 'step-000001'}" in machine.log(name)[before:]
    assert [line["step"] for line in steps_of(machine, name)] == [1, 2, 3]
    again = load_file(checkpoints / "step-000002" / "adapters" / "adapter_model.safetensors")
    assert again.keys() == made.keys() and any("lora_B" in tensor for tensor in made)
    for tensor, values in made.items():
        assert values.abs().max() > 0 and values.equal(again[tensor]), tensor
    assert (checkpoints / "step-000003").is_dir() and not list(checkpoints.glob("unfinished-*"))
