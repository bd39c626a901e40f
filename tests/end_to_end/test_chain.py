"""The whole chain with every real part: `agl store`, vLLM, verl on Ray and a runner, each its own process.

One training run of two steps is made once, hub started last, the algorithm killed in its second step and resumed; the
tests below look at it from outside. A recording proxy stands between the runner and vLLM, so there is an independent
witness of what vLLM returned. What is proven:

- token ids and log-probs in the training batches are those that vLLM returned, for every trained turn,
  and verl recomputes the same log-probs;
- after an update vLLM serves the new weights, and the next games' spans carry the new policy version;
- no span is lost: calls answered by vLLM = turns played = spans stored; turns trained on + left out = turns of the
  groups of both steps, each group once;
- the killed run goes on from its first step's checkpoint;
- the stock hub and adapters read the games: rewards, and the hub's own web page;
- checkpoints load in transformers and are the weights that vLLM was given;
- nothing is left running.
"""

import json
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
import requests

from algo.machine.ports import free_port
from store.client import connect
from store.werewolf import ResultSpan, TurnSpan
from tests.support.hub.asking import final_reward
from tests.support.processes import end, processes_marked, set_options, start_logged, start_module, wait_until
from tests.support.recording_proxy import FLOAT32_TOLERANCE, RecordingProxy, as_float32, turns_of

pytestmark = [pytest.mark.fast, pytest.mark.xdist_group("machine"), pytest.mark.timeout(900)]

STEPS, DEALS, GAMES_PER_DEAL = 2, 2, 2


class Run:
    """A finished training run and everything that a test may look at."""

    def __init__(self, folder, hub_url, proxy, output):
        self.folder = folder
        self.hub_url = hub_url
        self.proxy = proxy
        self.output = output
        self.summary = json.loads((folder / "summary.json").read_text())
        self.metrics = [json.loads(line)["data"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.batches = [
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in sorted((folder / "batches").glob("*.jsonl"))
        ]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_model, serve_vllm):
    runs_dir = tmp_path_factory.mktemp("runs")
    hub_port = free_port()
    hub_url = f"http://127.0.0.1:{hub_port}"
    vllm = serve_vllm(tiny_model)
    proxy = RecordingProxy(vllm)
    settings = {
        "run.name": "chain",
        "run.dir": runs_dir,
        "run.steps": STEPS,
        "store.url": hub_url,
        "rollout.groups_per_step": DEALS,
        "rollout.rollouts_per_group": GAMES_PER_DEAL,
        "game.rules": "{round_limit: 1}",
        "checkpoint.every_steps": 1,
        "model.path": tiny_model,
        "serving.mode": "attach",
        "serving.urls": f"[{vllm}]",
        "serving.public_urls": f"[{proxy.url}]",
        "log.save_batches": "true",
    }
    algorithm = ("algo.werewolf_verl", "--resume", "auto", *set_options(settings))
    children = {}

    def start(name, module, *arguments):
        children[name] = start_module(runs_dir / f"{name}.log", module, *arguments, mark=runs_dir)

    def log(name):
        return (runs_dir / f"{name}.log").read_text(errors="replace")

    def is_updating():
        assert children["algorithm"].poll() is None, log("algorithm")[-5000:]
        return f"step 2/{STEPS}: updating" in log("algorithm")

    try:
        start("algorithm", *algorithm)
        start("runner", "runners.werewolf", "--n", "8", "--store", hub_url)
        wait_until(lambda: "waiting for a hub" in log("runner"), 120, "the runner's wait")
        agl = str(Path(sys.executable).with_name("agl"))
        command = (agl, "store", "--host", "127.0.0.1", "--port", str(hub_port))
        children["hub"] = start_logged(runs_dir / "hub.log", *command, mark=runs_dir)
        wait_until(is_updating, 400, "the second step's update")
        children["algorithm"].kill()
        assert children["algorithm"].wait() == -signal.SIGKILL
        start("algorithm", *algorithm)
        code = children["algorithm"].wait(timeout=400)
        assert code == 0, log("algorithm")[-5000:] + log("runner")[-5000:]
        children["runner"].send_signal(signal.SIGTERM)
        assert children["runner"].wait(timeout=60) == 0
        yield Run(runs_dir / "chain", hub_url, proxy, log("algorithm"))
    finally:
        proxy.stop()
        end(*children.values())


@pytest.fixture
async def stored(run):
    """Every rollout of the run with its spans."""
    client = connect(run.hub_url)
    rollouts = list(await client.query_rollouts())
    yield [(rollout, list(await client.query_spans(rollout.rollout_id))) for rollout in rollouts]
    await client.close()


def test_what_is_trained_on_is_what_vllm_returned(run):
    returned = Counter(
        (
            tuple(choice["prompt_token_ids"]),
            tuple(choice["token_ids"]),
            as_float32(choice["logprobs"]["token_logprobs"]),
        )
        for _, choice in run.proxy.exchanges
    )
    trained = Counter(
        (tuple(prompt), tuple(sampled), as_float32(logprobs))
        for batch in run.batches
        for row in batch
        for prompt, sampled, logprobs in turns_of(row)
    )
    assert trained.total() == run.summary["turns"]["in_batch"] > 50
    assert not trained - returned


def test_verl_recomputes_the_log_probs_that_vllm_returned(run):
    compared = 0
    for row in (row for batch in run.batches for row in batch):
        for mask, sampled, recomputed in zip(row["loss_mask"], row["logprobs"], row["trainer_logprobs"], strict=True):
            if mask:
                compared += 1
                assert sampled == pytest.approx(recomputed, abs=FLOAT32_TOLERANCE)
    assert compared == run.summary["tokens"]["sampled_and_trained"] > 1000


def test_vllm_serves_the_new_weights_after_each_update(run):
    assert len(run.metrics) == STEPS
    for metrics in run.metrics:
        assert metrics["serving/probe_difference"] < FLOAT32_TOLERANCE
        assert metrics["serving/probe_change"] > 100 * FLOAT32_TOLERANCE
        assert metrics["actor/grad_norm"] > 0


def test_spans_carry_the_version_that_played_them(run, stored):
    versions = Counter()
    for rollout, spans in stored:
        step = int(re.search(r"-step(\d+)-", rollout.metadata["task_id"])[1])
        for span in filter(TurnSpan.is_in, spans):
            assert TurnSpan.decode(span).policy_version == step - 1
            versions[step - 1] += 1
    assert set(versions) == set(range(STEPS))
    assert {version for row in run.batches[1] for version in row["turn_versions"]} == {1}


def test_no_span_is_lost(run, stored):
    spans_stored = sum(TurnSpan.is_in(span) for _, spans in stored for span in spans)
    played = sum(ResultSpan.decode(span).turns for _, spans in stored for span in filter(ResultSpan.is_in, spans))
    assert len(run.proxy.exchanges) == spans_stored == played
    turns = run.summary["turns"]
    assert turns["in_batch"] + sum(turns["left_out"].values()) == turns["stored"] == turns["played"]
    assert run.summary["rollouts"] == {"finished": STEPS * DEALS * GAMES_PER_DEAL, "failed": 0}


def test_the_killed_run_goes_on_from_its_last_checkpoint(run, stored):
    assert f"resuming from {run.folder / 'checkpoints' / 'step-000001'}" in run.output
    assert run.summary["policy_version"] == STEPS
    assert sorted(group for groups in run.summary["groups_by_step"] for group in groups) == sorted(
        f"chain-step{step:04d}-deal{deal:02d}" for step in range(1, STEPS + 1) for deal in range(DEALS)
    )
    # Of the first step, which the checkpoint has, nothing is played again.
    games = Counter(rollout.metadata["task_id"] for rollout, _ in stored)
    assert {count for game, count in games.items() if "step0001" in game} == {1}


async def test_the_stock_hub_and_adapters_read_the_games(run, stored):
    for rollout, spans in stored:
        assert rollout.status == "succeeded"
        (result,) = [ResultSpan.decode(span) for span in spans if ResultSpan.is_in(span)]
        assert final_reward(spans) == {"good": 1.0, "wolf": -1.0, "draw": 0.0}[result.result]
    page = requests.get(run.hub_url, timeout=30)
    assert page.status_code == 200 and "<html" in page.text.lower()
    listed = requests.get(f"{run.hub_url}/v1/agl/rollouts", timeout=30).json()
    assert listed["total"] == len(stored)


def test_the_checkpoint_is_the_policy_that_vllm_served(run):
    import torch
    from transformers import AutoTokenizer

    from tests.support.small_models import load_model, token_log_probs

    checkpoint = run.folder / "checkpoints" / f"step-{STEPS:06d}"
    model = load_model(checkpoint / "huggingface")
    served = load_model(run.folder / "policy" / f"version-{STEPS:06d}")
    assert AutoTokenizer.from_pretrained(checkpoint / "huggingface").chat_template
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, served.state_dict()[name])
    # And it is the model that the last batch's probabilities no longer come from, but nearly.
    row = run.batches[-1][0]
    with torch.no_grad():
        now = token_log_probs(model, row["token_ids"])
    change = (now - torch.tensor(row["trainer_logprobs"])).abs()[torch.tensor(row["loss_mask"], dtype=torch.bool)]
    assert FLOAT32_TOLERANCE < change.max() < 5


def test_nothing_is_left_running(run):
    def left():
        return [command for command in processes_marked(run.folder.parent).values() if "agl store" not in command]

    wait_until(lambda: not left(), 90, "the end of what the killed process left")  # Ray's small agents stay a minute
