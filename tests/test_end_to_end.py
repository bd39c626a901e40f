"""The whole chain with every real part: `agl store`, vLLM, verl on Ray and a runner, each its own process.

One training run of two steps is made once, hub started last; the tests below look at it from outside.
A recording proxy stands between the runner and vLLM, so there is an independent witness of what vLLM
returned. What is proven:

- token ids and log-probs in the training batches are those that vLLM returned, for every trained turn,
  and verl recomputes the same log-probs;
- after an update vLLM serves the new weights, and the next games' spans carry the new policy version;
- no span is lost: calls answered by vLLM = turns played = spans stored = turns trained on + left out;
- the stock hub and adapters read the games: rewards, and the hub's own web page;
- checkpoints load in transformers and are the weights that vLLM was given;
- nothing is left running, also after Ctrl-C; a vLLM that is killed in mid-game is started again.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from agentlightning import find_final_reward

from algo.machine.ports import free_port
from configs.loading import DEFAULT_CONFIG
from store.client import connect
from store.werewolf import ResultSpan, TurnSpan, is_result, is_turn

pytestmark = [pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(900)]

MARK = "WEREWOLF_TEST_MARK"
STEPS, DEALS, GAMES_PER_DEAL = 2, 2, 2

# Both sides compute in float32 from the same weights, in other orders of summation. Its relative
# precision is 6e-8; log-probs of up to 10 nats through two layers differ by some 1e-6. Anything near
# 1e-4 would be a wrong token, mask, temperature or weight.
FLOAT32_TOLERANCE = 2e-5


class RecordingProxy:
    """Forwards everything to vLLM and keeps each completion as (request, choice)."""

    def __init__(self, target: str):
        self.exchanges: list[tuple[dict, dict]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {"Content-Type": "application/json"}
                answer = requests.request(self.command, target + self.path, data=body, headers=headers, timeout=300)
                if self.path == "/v1/completions" and answer.status_code == 200:
                    proxy.exchanges.append((json.loads(body), answer.json()["choices"][0]))
                self.send_response(answer.status_code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST = forward

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()


def marked_environment(mark: Path) -> dict[str, str]:
    """An environment that every descendant process inherits, so that all of them can be found again."""
    return {**os.environ, MARK: str(mark)}


def processes_marked(mark: Path) -> dict[int, str]:
    """The living processes whose environment carries ``mark``: their ids and command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has just ended, or is not ours
        if f"{MARK}={mark}".encode() in environment and command:
            found[int(folder.name)] = command
    return found


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)
    return value


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
def run(tmp_path_factory, tiny_model):
    runs_dir = tmp_path_factory.mktemp("runs")
    hub_port, vllm_port = free_port(), free_port()
    hub_url = f"http://127.0.0.1:{hub_port}"
    proxy = RecordingProxy(f"http://127.0.0.1:{vllm_port}")
    settings = {
        "run.name": "chain",
        "run.dir": runs_dir,
        "run.steps": STEPS,
        "store.url": hub_url,
        "rollout.groups_per_step": DEALS,
        "rollout.rollouts_per_group": GAMES_PER_DEAL,
        "model.path": tiny_model,
        "serving.port": vllm_port,
        "serving.public_urls": f"[{proxy.url}]",
        "log.save_batches": "true",
    }
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    children = {}

    def start(name, *command):
        log = (runs_dir / f"{name}.log").open("wb")
        children[name] = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=marked_environment(runs_dir),
        )

    try:
        start("algorithm", sys.executable, "-m", "algo.werewolf_verl", *overrides)
        start("runner", sys.executable, "-m", "runners.werewolf", "--n", "8", "--store", hub_url)
        wait_until(lambda: b"waiting for a hub" in (runs_dir / "runner.log").read_bytes(), 120, "the runner's wait")
        agl = str(Path(sys.executable).with_name("agl"))
        start("hub", agl, "store", "--host", "127.0.0.1", "--port", str(hub_port))
        code = children["algorithm"].wait(timeout=800)
        output = (runs_dir / "algorithm.log").read_text()
        assert code == 0, output[-5000:] + (runs_dir / "runner.log").read_text()[-5000:]
        children["runner"].send_signal(signal.SIGTERM)
        assert children["runner"].wait(timeout=60) == 0
        yield Run(runs_dir / "chain", hub_url, proxy, output)
    finally:
        proxy.stop()
        for child in children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
                child.wait(timeout=60)


@pytest.fixture
async def stored(run):
    """Every rollout of the run with its spans."""
    client = connect(run.hub_url)
    rollouts = list(await client.query_rollouts())
    yield [(rollout, list(await client.query_spans(rollout.rollout_id))) for rollout in rollouts]
    await client.close()


def turns_of(row):
    """(prompt ids, sampled ids, log-probs) of each turn of a training sequence."""
    start = 0
    for end in row["turn_ends"]:
        first = start + row["loss_mask"][start:end].index(1)
        assert all(row["loss_mask"][first:end]) and not any(row["loss_mask"][start:first])
        yield row["token_ids"][:first], row["token_ids"][first:end], row["logprobs"][first:end]
        start = end
    assert not any(row["loss_mask"][start:])


def as_float32(values):
    return struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values))


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
        for span in filter(is_turn, spans):
            assert TurnSpan.decode(span).policy_version == step - 1
            versions[step - 1] += 1
    assert set(versions) == set(range(STEPS))
    assert {version for row in run.batches[1] for version in row["turn_versions"]} == {1}


def test_no_span_is_lost(run, stored):
    turns = run.summary["turns"]
    spans_stored = sum(is_turn(span) for _, spans in stored for span in spans)
    played = sum(ResultSpan.decode(span).turns for _, spans in stored for span in filter(is_result, spans))
    assert len(run.proxy.exchanges) == spans_stored == played == turns["played"] == turns["stored"]
    assert turns["in_batch"] + sum(turns["left_out"].values()) == turns["stored"]
    assert run.summary["games"] == {"finished": STEPS * DEALS * GAMES_PER_DEAL, "failed": 0}


def test_each_update_compares_games_of_one_deal_and_side(run):
    for batch in run.batches:
        groups = {}
        for row in batch:
            first = row["loss_mask"].index(1)
            groups.setdefault((row["group_id"], row["side"]), []).append((row["reward"], row["advantages"][first]))
        for members in groups.values():
            assert sum(advantage for _, advantage in members) == pytest.approx(0, abs=1e-3)
            best, worst = max(members), min(members)
            assert best[1] > 0 > worst[1]


async def test_the_stock_hub_and_adapters_read_the_games(run, stored):
    for rollout, spans in stored:
        assert rollout.status == "succeeded"
        (result,) = [ResultSpan.decode(span) for span in spans if is_result(span)]
        assert find_final_reward(spans) == {"good": 1.0, "wolf": -1.0, "draw": 0.0}[result.result]
    page = requests.get(run.hub_url, timeout=30)
    assert page.status_code == 200 and "<html" in page.text.lower()
    listed = requests.get(f"{run.hub_url}/v1/agl/rollouts", timeout=30).json()
    assert listed["total"] == len(stored)


def test_the_checkpoint_is_the_policy_that_vllm_served(run):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = run.folder / "checkpoints" / f"step-{STEPS:06d}"
    model = AutoModelForCausalLM.from_pretrained(checkpoint / "huggingface")
    served = AutoModelForCausalLM.from_pretrained(run.folder / "policy" / f"version-{STEPS:06d}")
    assert AutoTokenizer.from_pretrained(checkpoint / "huggingface").chat_template
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, served.state_dict()[name])
    # And it is the model that the last batch's probabilities no longer come from, but nearly.
    row = run.batches[-1][0]
    with torch.no_grad():
        logits = model(torch.tensor([row["token_ids"]])).logits[0, :-1].log_softmax(-1)
    now = logits.gather(1, torch.tensor(row["token_ids"][1:])[:, None])[:, 0]
    before = torch.tensor(row["trainer_logprobs"][1:])
    change = (now - before).abs()[torch.tensor(row["loss_mask"][1:], dtype=torch.bool)]
    assert FLOAT32_TOLERANCE < change.max() < 5


def test_what_a_person_sees(run):
    assert "Run summary" in run.output and "valid replies" in run.output
    transcripts = list((run.folder / "transcripts").rglob("*.txt"))
    assert len(transcripts) == 2 * STEPS and all("号" in path.read_text() for path in transcripts)
    assert (run.folder / "logs" / "algorithm.log").read_text().count("done:") == STEPS


def test_nothing_is_left_running(run):
    assert [command for command in processes_marked(run.folder.parent).values() if "agl store" not in command] == []


# --- the demo, interrupted and broken ---------------------------------------------------------------------------------


def start_demo(folder, *options):
    log = (folder / "demo.log").open("wb")
    command = [sys.executable, "-m", "algo.demo", "--runs-dir", str(folder), *options]
    return subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=marked_environment(folder)
    )


def demo_output(folder):
    return (folder / "demo.log").read_text(errors="replace")


def end_of_demo(demo, folder, timeout=120):
    code = demo.wait(timeout=timeout)
    wait_until(lambda: not processes_marked(folder), 20, "the end of every process")
    return code


def test_a_vllm_that_dies_in_mid_game_is_started_again_and_ctrl_c_ends_every_process(tmp_path):
    demo = start_demo(tmp_path, "--config", str(DEFAULT_CONFIG), "--no-warm-start", "--steps", "2")
    try:
        wait_until(lambda: "playing 8 rollouts" in demo_output(tmp_path), 400, "the first games")
        servers = [
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if (command := (folder / "cmdline").read_bytes()).startswith(sys.executable.encode() + b"\0-m\0vllm.")
            and str(tmp_path).encode() in command
        ]
        assert len(servers) == 1
        os.kill(servers[0], signal.SIGKILL)
        wait_until(
            lambda: "step 1/2: writing a checkpoint" in demo_output(tmp_path) or demo.poll() is not None,
            400,
            "the first step",
        )
        assert len(processes_marked(tmp_path)) > 5, demo_output(tmp_path)[-3000:]
        demo.send_signal(signal.SIGINT)
        assert end_of_demo(demo, tmp_path) == 130, demo_output(tmp_path)[-3000:]
        output = demo_output(tmp_path)
        assert "vLLM exited with code 137" in output and "interrupted" in output
        (summary,) = (json.loads(path.read_text()) for path in tmp_path.glob("*/summary.json"))
        assert summary["games"] == {"finished": 8, "failed": 0} and summary["policy_version"] == 1
    finally:
        if demo.poll() is None:
            demo.kill()
