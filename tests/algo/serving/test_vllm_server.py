import asyncio
import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import aiohttp
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from algo.serving import launch as vllm_launch
from algo.serving.server_group import ServerGroup, ServingDied, ServingError
from algo.serving.vllm_server import VllmServer
from algo.serving.weight_files import check_same_tensors
from algo.tiny_model import build_tiny_model
from tests.support.small_models import load_model, token_log_probs
from tests.support.waiting import until


@pytest.fixture(scope="session")
def other_model(tmp_path_factory):
    return build_tiny_model(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture
def fake(configure, vllms):
    vllms[0].config = configure(mode="attach", urls=(vllms[0].url,))
    return vllms[0]


# Attaching


async def test_attach_tells_runners_the_public_address(fake, configure):
    async with await ServerGroup.open(fake.config) as serving:
        assert serving.endpoints == (f"{fake.config.serving.urls[0].rstrip('/')}/v1",)
        await serving.check_alive()
    public = configure(mode="attach", urls=fake.config.serving.urls, public_urls=("https://proxy.example/",))
    async with await ServerGroup.open(public) as serving:
        assert serving.endpoints == ("https://proxy.example/v1",)


async def test_attach_ignores_proxies_in_the_environment(fake, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with await ServerGroup.open(fake.config):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": [{"id": "qwen"}]}, r"serves \['qwen'\], not 'policy'.*served-model-name policy"),
        ({"models": [{"id": "policy", "max_model_len": 100}]}, "accepts 100 tokens.*max-model-len"),
        ({"dev_mode": False}, "VLLM_SERVER_DEV_MODE=1"),
        ({"masked_logprob": -3.0}, "--logprobs-mode processed_logprobs"),
        ({"token_ids": None}, "does not return token ids"),
        ({"health": 503}, "GET .*/health returned 503"),
    ],
)
async def test_attach_refuses_an_unusable_server(fake, change, message):
    for name, value in change.items():
        setattr(fake, name, value)
    with pytest.raises(ServingError, match=message):
        await ServerGroup.open(fake.config)


async def test_attach_to_a_paused_server_leaves_it_to_the_next_push(fake):
    fake.paused = True
    async with await ServerGroup.open(fake.config):
        assert fake.calls == []


async def test_attach_to_a_server_that_a_run_left_asleep_wakes_it_with_the_next_push(fake, configure):
    fake.paused = True
    config = configure(mode="attach", urls=(fake.url,), share_gpus=True, training={"device": "cuda"})
    async with await ServerGroup.open(config) as serving:
        await serving.push(1, lambda server: server.reload(Path("/x")))
    wakes = [call for call in fake.calls if "wake" in call or "pause" in call or "resume" in call]
    assert wakes == ["/wake_up?tags=weights", "/wake_up?tags=kv_cache"]


async def test_an_attached_server_is_dead_only_when_it_has_not_answered_for_long(fake, monkeypatch):
    health = iter([503, 200, 503, 503, 200, 503, 503, 503])

    async def check_health(self):
        fake.health = next(health)
        await check(self)

    check = VllmServer.check_health
    monkeypatch.setattr(VllmServer, "check_health", check_health)
    monkeypatch.setattr("algo.serving.server_group._CHECK_SECONDS", 0.0)
    monkeypatch.setattr("algo.serving.server_group._UNHEALTHY_SECONDS", 0.0)
    async with await ServerGroup.open(fake.config) as serving:
        with pytest.raises(ServingDied, match="503"):
            await until(serving.check_alive)
        assert next(health, None) is None  # at the third time in a row


# Pushing weights and scoring


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        ({"error": {"message": "no such tensor"}}, 500, "returned 500: .*no such tensor"),
        ({"results": []}, 200, r"returned {'results': \[\]}"),
        ({"results": [None, "worker 1 failed"]}, 200, "worker 1 failed"),
    ],
)
async def test_a_failed_reload_names_the_endpoint_and_leaves_the_server_paused(
    fake, other_model, answer, status, message
):
    fake.reload_answer, fake.reload_status = answer, status
    async with await ServerGroup.open(fake.config) as serving:
        with pytest.raises(ServingError, match=rf"(?s)POST .*/collective_rpc.*{message}"):
            await serving.push_weights(other_model, 7)
    assert fake.calls[-1] == "/collective_rpc"


async def test_weights_of_another_model_are_refused_before_anything_is_touched(fake, other_model, tmp_path):
    def changed(change):
        weights = load_file(other_model / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    folder = tmp_path / "weights"
    async with await ServerGroup.open(fake.config) as serving:
        fake.calls.clear()
        with pytest.raises(ValueError, match="has no"):
            await serving.push_weights(folder, 7)
        folder.mkdir()
        changed(lambda weights: weights.pop("model.norm.weight"))
        with pytest.raises(ValueError, match=r"lacks 1 tensors, e.g. model\.norm\.weight"):
            await serving.push_weights(folder, 7)
        changed(lambda weights: weights.update({"bogus": torch.zeros(1)}))
        with pytest.raises(ValueError, match=r"adds 1 tensors, e\.g\. bogus"):
            await serving.push_weights(folder, 7)
        changed(lambda weights: weights.update({"model.norm.weight": torch.zeros(1)}))
        with pytest.raises(ValueError, match="another shape"):
            await serving.push_weights(folder, 7)
        shutil.copy(other_model / "model.safetensors", folder)
        os.truncate(folder / "model.safetensors", 100_000)
        with pytest.raises(ValueError, match="is truncated"):
            await serving.push_weights(folder, 7)
        assert fake.calls == []


def test_a_tied_model_may_be_saved_with_or_without_its_head(tmp_path):
    folders = tmp_path / "tied", tmp_path / "copied"
    for folder, names in zip(folders, (["embed"], ["embed", "lm_head.weight"]), strict=True):
        folder.mkdir()
        save_file({name: torch.zeros(2) for name in names}, folder / "model.safetensors")
    check_same_tensors(folders[1], folders[0])
    with pytest.raises(ValueError, match="lacks"):  # an untied model needs it
        check_same_tensors(folders[0], folders[1])
    (folders[1] / "config.json").write_text('{"tie_word_embeddings": true}')
    check_same_tensors(folders[0], folders[1])


# Starting and stopping


async def test_a_taken_port_is_refused_before_anything_starts(configure, monkeypatch):
    monkeypatch.setattr(vllm_launch, "vllm_command", lambda *_: pytest.fail("started"))
    monkeypatch.setattr("algo.serving.preconditions._PORT_TIMEOUT_SECONDS", 0.1)
    config = configure()
    port = config.serving.port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ServingError, match=f"port {port}.*--set serving"):
        await ServerGroup.open(config)


class AnotherRunsVllm(http.server.BaseHTTPRequestHandler):
    """Answers /health, and rejects what needs its control token; creates ``asked`` at each request."""

    asked: Path

    def do_GET(self):
        self.asked.touch()
        self.send_response(200 if self.path == "/health" else 403)
        self.end_headers()

    def log_message(self, *_):
        pass


async def test_a_vllm_of_another_run_that_took_the_port_meanwhile_is_not_ours(configure, monkeypatch, tmp_path):
    config, asked = configure(), tmp_path / "asked"
    handler = type("Handler", (AnotherRunsVllm,), {"asked": asked})
    with http.server.HTTPServer(("127.0.0.1", config.serving.port), handler, bind_and_activate=False) as other:
        other.server_bind()  # as a vLLM that still loads its model: the port is bound, and nobody listens

        def command(*_):
            other.server_activate()
            threading.Thread(target=other.serve_forever, daemon=True).start()
            # As vLLM ends where another one listens, here once that one has been asked.
            wait = f"while not os.path.exists({str(asked)!r}): time.sleep(0.01)"
            return [sys.executable, "-c", f"import os, time\n{wait}\nraise SystemExit(3)"]

        monkeypatch.setattr(vllm_launch, "vllm_command", command)
        with pytest.raises(ServingDied, match="exited with code 3"):
            await ServerGroup.open(config)
        other.shutdown()


async def test_a_start_that_takes_too_long_leaves_nothing_behind(configure, monkeypatch, tmp_path):
    code = f"import time; time.sleep(60)  # {tmp_path}"
    monkeypatch.setattr(vllm_launch, "vllm_command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(ServingError, match="not healthy after 1 s"):
        await ServerGroup.open(configure(start_timeout_seconds=1))
    commands = lambda: [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]  # noqa: E731
    await until(lambda: not any(str(tmp_path) in command for command in commands()))


def is_gone(pid, patience=60.0):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if "(zombie)" not in Path(f"/proc/{pid}/status").read_text():
                time.sleep(0.05)  # not our child: nobody tells of its end
                continue
        return True
    return False


# The real vLLM


def logprobs_under(model, token_ids, temperature=1.0):
    """What a forward pass gives each of token_ids[1:]."""
    return token_log_probs(model, token_ids, temperature)[1:].tolist()


def new_connections():
    """One for each request: a server closes those that are idle for seconds, as while a forward pass is made here."""
    return aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))


async def sampled_tokens(serving):
    """How many tokens the first server has sampled since its start."""
    return (await serving.servers[0].read_metrics()).get("vllm:generation_tokens_total", 0)


async def until_paused(serving, push):
    """Return once the first server begins nothing new, or the push ended between two looks."""
    while not push.done() and not (await serving.servers[0]._call("GET", "/is_paused", timeout=10))["is_paused"]:
        pass


def processes_of(server):
    """Process ids of a started vLLM's guard, and of the API server and its engine."""
    guard = server._process.pid
    (first,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    group = subprocess.run(["pgrep", "-g", first], capture_output=True, text=True).stdout.split()
    return guard, [int(first), *(int(pid) for pid in group if pid != first)]


@pytest.mark.vllm
@pytest.mark.timeout(600)
async def test_real_vllm_serves_pushed_weights_token_by_token(configure, tiny_model, other_model, tiny_tokenizer):
    config = configure(kv_cache_gb=0.25)
    old, new = load_model(tiny_model), load_model(other_model)
    message = {"role": "user", "content": "天亮了，昨晚是平安夜。现在是投票环节，请选择要放逐的玩家。" * 40}
    prompt = tiny_tokenizer.apply_chat_template([message], add_generation_prompt=True)["input_ids"]
    assert len(prompt) > 200  # more than one block of the prefix cache

    async with await ServerGroup.open(config) as serving, new_connections() as http:

        async def sample(**options):
            body = {"model": serving.model, "prompt": prompt, "max_tokens": 24, "logprobs": 0, "return_token_ids": True}
            async with http.post(f"{serving.endpoints[0]}/completions", json=body | options) as response:
                assert response.status == 200, await response.text()
                choice = json.loads(await response.text())["choices"][0]
                return choice | {"version": int(response.headers["x-policy-version"])}

        def check(choice, model, temperature):
            assert choice["version"] == (0 if model is old else 7)
            sampled, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            assert choice["prompt_token_ids"] == prompt
            expected = logprobs_under(model, prompt + sampled, temperature)[len(prompt) - 1 :]
            assert logprobs == pytest.approx(expected, abs=1e-5)
            return sampled

        # Sampled log-probs are those of the tempered distribution, with a warm prefix cache too, and
        # a request's seed fixes its tokens.
        for temperature in (1.0, 0.7):
            choices = [await sample(temperature=temperature, seed=seed) for seed in (5, 5, 6)]
            assert {choice["finish_reason"] for choice in choices} == {"length"}
            first, again, other = (check(choice, old, temperature) for choice in choices)
            assert first == again != other and len(first) == 24

        # The end-of-turn token is among the ids and the log-probs.
        stopped = await sample(temperature=1.0, logit_bias={str(tiny_tokenizer.eos_token_id): 100})
        assert stopped["finish_reason"] == "stop"
        assert stopped["token_ids"] == [tiny_tokenizer.eos_token_id]
        assert stopped["logprobs"]["token_logprobs"] == pytest.approx([0.0], abs=1e-5)

        # What a web page, or whoever else reaches the server, asks of it besides.
        for path in ("/pause", "/collective_rpc", "/update_weights", "/reset_prefix_cache"):
            control = serving.endpoints[0].removesuffix("/v1") + path
            async with http.post(control, json={"method": "reload_weights"}) as refused:
                assert refused.status == 403, path

        # The same server passes the checks made of one that is attached to.
        attached = config.serving.model_copy(
            update={"mode": "attach", "urls": (serving.endpoints[0].removesuffix("/v1"),)}
        )
        async with await ServerGroup.open(config.model_copy(update={"serving": attached})) as second:
            assert (await second.scores(prompt))[0] == pytest.approx(logprobs_under(old, prompt), abs=1e-5)

        before = (await serving.scores(prompt))[0]
        assert (await serving.scores(prompt))[0] == before  # cached by now, yet computed anew
        # A push under load: the reply under way is finished with the old weights, the request that
        # comes meanwhile waits for the new ones.
        earlier = await sampled_tokens(serving)
        under_way = asyncio.create_task(sample(temperature=1.0, max_tokens=400, ignore_eos=True))
        while await sampled_tokens(serving) < earlier + 10:
            pass
        push = asyncio.create_task(serving.push_weights(other_model, 7))
        await until_paused(serving, push)
        late = await sample(temperature=1.0)
        await push
        assert len(check(await under_way, old, 1.0)) == 400
        check(late, new, 1.0)
        after = (await serving.scores(prompt))[0]
        assert after == pytest.approx(logprobs_under(new, prompt), abs=1e-5)
        assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 0.1

        found = await serving.metrics()
        assert 0.1 < found["serving/prefix_cache_hit_share"] < 1

        guard, group = processes_of(serving.servers[0])
        assert len(group) >= 2  # the API server and its engine

        # Killed, it is started again on the weights of the model's folder, and answers with the newest or not at all.
        os.kill(group[0], signal.SIGKILL)
        assert is_gone(guard) and all(map(is_gone, group))
        await until(lambda: not serving.servers)
        answers = []
        while not answers or not serving.servers:
            await serving.check_alive()  # it raises when no restart is left
            assert len(serving.endpoints) == 1  # the address stays
            with contextlib.suppress(aiohttp.ClientConnectionError, AssertionError):  # not there yet, or status 503
                answers.append(await sample(temperature=1.0))
            await asyncio.sleep(0.2)  # it takes a minute to start again
        check(answers[0], new, 1.0)
        assert (await serving.scores(prompt))[0] == pytest.approx(after, abs=1e-6)
        guard, group = processes_of(serving.servers[0])

    assert is_gone(guard) and all(map(is_gone, group))


@pytest.mark.xdist_group("machine")  # with tests/end_to_end/test_league.py, for the same vLLM
@pytest.mark.timeout(600)
async def test_a_reply_that_is_under_way_goes_on_with_pushed_weights_and_says_so(
    configure, lend_vllm, tiny_model, other_model, tiny_tokenizer
):
    """With ``rollout.max_policy_lag``: every token's log-prob is that of the weights that sampled it, and the versions
    told are those; the cache holds nothing of the old weights afterwards."""
    vllm = await lend_vllm(tiny_model)
    config = configure(mode="attach", urls=(vllm,), rollout={"max_policy_lag": 1})
    old, new = load_model(tiny_model), load_model(other_model)
    prompts = [
        tiny_tokenizer.apply_chat_template([{"role": "user", "content": text * 40}], add_generation_prompt=True)[
            "input_ids"
        ]
        for text in ("天亮了，昨晚是平安夜。", "现在是投票环节，请选择要放逐的玩家。", "请发言。")
    ]

    async with await ServerGroup.open(config) as serving, new_connections() as http:

        async def sample(prompt, length, seed):
            body = {"model": serving.model, "prompt": prompt, "max_tokens": length, "ignore_eos": True, "seed": seed}
            body |= {"logprobs": 0, "return_token_ids": True}
            async with http.post(f"{serving.endpoints[0]}/completions", json=body) as response:
                assert response.status == 200, await response.text()
                choice = json.loads(await response.text())["choices"][0]
                until = response.headers.get("x-policy-version-until")
                return choice | {"versions": (response.headers["x-policy-version"], until)}

        def by_which(choice, prompt):
            """(tokens that the old weights sampled, tokens that the new ones did); every log-prob is one of the two."""
            ids = choice["token_ids"]
            given = torch.tensor(choice["logprobs"]["token_logprobs"])
            of_old, of_new = (torch.tensor(logprobs_under(m, prompt + ids))[len(prompt) - 1 :] for m in (old, new))
            is_old = (given - of_old).abs() < 1e-5
            switch = len(ids) if is_old.all() else int(is_old.logical_not().nonzero()[0])
            assert (given[switch:] - of_new[switch:]).abs().max() < 1e-5 if switch < len(ids) else True
            return switch, len(ids) - switch

        earlier = await sampled_tokens(serving)
        long = [asyncio.create_task(sample(prompt, 1200, seed)) for seed, prompt in enumerate(prompts)]
        while await sampled_tokens(serving) < earlier + 100:
            pass
        push = asyncio.create_task(serving.push_weights(other_model, 7))
        await until_paused(serving, push)
        late = await sample(prompts[0], 20, 5)
        await push
        assert late["versions"][-1] in (None, "7") and by_which(late, prompts[0])[1] > 0
        for task, prompt in zip(long, prompts, strict=True):
            choice = await task
            before, after = by_which(choice, prompt)
            assert before > 10 and after > 10 and choice["versions"] == ("0", "7")
        for prompt in prompts:  # the cache was emptied of what the old weights had left there
            again = await sample(prompt, 20, 5)
            assert by_which(again, prompt) == (0, 20) and again["versions"] == ("7", None)
