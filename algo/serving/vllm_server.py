"""One unpatched vLLM server, started as a child process or attached to: its lifecycle, weights and log-probs.

New weights arrive through vLLM's development endpoints, which have no authentication: a started vLLM listens on
loopback only, behind ``algo.serving.control``.
"""

import asyncio
import contextlib
import json
import logging
import math
import subprocess
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from algo.serving.control import control_headers
from algo.serving.launch import BASE_NAME, HOST, Launch, frozen_adapters, launch_vllm
from algo.serving.preconditions import ServingDied, ServingError, require_free_port
from algo.serving.version_header import SET_VERSION_PATH
from configs.schema import Config

logger = logging.getLogger(__name__)

_LOG_TAIL_LINES = 30
_BODY_SHOWN = 1000
_STOP_GRACE_SECONDS = 15.0
_EXIT_TIMEOUT_SECONDS = 3.0
_HEALTH_TIMEOUT_SECONDS = 10.0
# Requests for tokens queue behind those of rollouts: replies may be long and the model slow.
_TIMEOUT_SECONDS = 600.0
_MOST_LOGPROB_TOKENS = 128
"""Maximum of ``logprob_token_ids`` in a request: vLLM's ``MAX_LOGPROB_TOKEN_IDS``."""
_PUSH_ENDPOINTS = ("/pause", "/collective_rpc", "/reset_prefix_cache", SET_VERSION_PATH, "/resume")
_LOAD_ADAPTERS, _UNLOAD_ADAPTERS = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_TRANSFER_ENDPOINTS = ("/init_weight_transfer_engine", "/update_weights")
_SLEEP_ENDPOINTS = ("/sleep", "/wake_up")


# By event loop, since locks belong to one.
_STARTING: WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[int, asyncio.Lock]] = WeakKeyDictionary()


def _starting(gpu: int) -> asyncio.Lock:
    """Held while a vLLM starts on the GPU: vLLM counts memory that another one takes meanwhile as its own."""
    return _STARTING.setdefault(asyncio.get_running_loop(), defaultdict(asyncio.Lock))[gpu]


class VllmServer:
    """One vLLM at ``base_url``: started here with ``launch``, else attached to.

    model: its name in requests. endpoint: its address for runners. starts: how often it was started. asleep: its GPUs
    are free. ``ServerGroup`` sets in_service: runners get its address, its weights are the newest; out: an event, set
    while it is out of service; restarting: it is being restarted, or will be when the others wake.
    """

    def __init__(
        self,
        config: Config,
        base_url: str,
        model: str,
        launch: Launch | None = None,
        *,
        takes_adapters: bool = False,
        public_url: str | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.endpoint = f"{(public_url or base_url).rstrip('/')}/v1"
        self.model = model
        self.launch = launch
        self.in_service, self.restarting, self.out = True, False, asyncio.Event()
        self.starts = 0
        self.asleep = False
        self._takes_adapters = takes_adapters
        self._log_path: Path | None = None if launch is None else config.run_dir / launch.log_name
        self._adapters: dict[str, Path] = {}
        self._config = config
        # Loopback requests must bypass a proxy from the environment. Connections are not reused: calls are minutes
        # apart, and vLLM closes idle ones after seconds.
        self._http = aiohttp.ClientSession(
            trust_env=False,
            connector=aiohttp.TCPConnector(force_close=True),
            headers=control_headers(started_here=launch is not None),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    async def start(self) -> None:
        """Start or restart vLLM, and wait until it is healthy.

        Raises ServingError when the port is in use, or when vLLM is not healthy in time; ServingDied, with the end of
        its log, when it exits. On an error no process is left.
        """
        assert self.launch is not None and self._log_path is not None
        await self.terminate()
        await require_free_port(HOST, self.launch.port)
        async with AsyncExitStack() as alone:
            for gpu in sorted({*self.launch.devices}) if self._config.training.device != "cpu" else ():
                await alone.enter_async_context(_starting(gpu))
            await self._start()

    async def _start(self) -> None:
        assert self.launch is not None and self._log_path is not None
        try:
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            self.starts += 1
            self.asleep, self._adapters = False, {}
            with self._log_path.open("ab") as log:
                self._log_start = log.tell()
                self._process = launch_vllm(self._config, log, _STOP_GRACE_SECONDS, self.launch)
            await self._wait_until_healthy()
        except BaseException:  # also when cancelled
            await self.terminate()
            raise

    async def check_attached(self, takes_weights: bool = True) -> None:
        """Raise ServingError unless the attached vLLM can be used. takes_weights: whether weights will be pushed."""
        self._adapters = {}  # all are loaded again
        await self._get("/health")
        served = {entry["id"]: entry for entry in (await self._get("/v1/models"))["data"]}
        name = BASE_NAME if self._takes_adapters else self.model
        if name not in served:
            raise ServingError(
                f"{self.base_url} serves {sorted(served)}, not {name!r}: start it with --served-model-name {name} (or, "
                f"for a frozen policy, set frozen.NAME.model)"
            )
        adapters = frozen_adapters(self._config) if self._takes_adapters else {}
        for missing in sorted(adapters.keys() - served.keys()):
            raise ServingError(
                f"{self.base_url} does not serve the adapters of frozen.{missing}: start it with --lora-modules "
                f"{missing}={adapters[missing]}"
            )
        longest, needed = served[name].get("max_model_len"), self._config.rollout.context_tokens
        if longest is not None and longest < needed:
            raise ServingError(
                f"{self.base_url} accepts {longest} tokens, rollout.context_tokens is {needed}: lower the setting, or "
                "start that vLLM with a larger --max-model-len"
            )
        if takes_weights:
            await self._check_development_endpoints()
            if (await self._get("/is_paused"))["is_paused"]:
                logger.warning("the vLLM at %s is paused or asleep, probably by an interrupted run", self.base_url)
                self.asleep = self._config.serving.share_gpus  # waking one that is only paused has no effect
                return  # it does not respond until the next push resumes it
        # With a single allowed token, its log-prob is 0 after masks and temperature.
        options = {"allowed_token_ids": [1], "logprobs": 0, "temperature": 1.0, "return_token_ids": True}
        choice = await self._complete([0, 1], name, **options)
        if choice["logprobs"]["token_logprobs"] != [0.0]:
            raise ServingError(
                f"{self.base_url} returns log-probs before temperature and masks, which do not match the trainer's: "
                "start that vLLM with --logprobs-mode processed_logprobs"
            )
        if choice.get("token_ids") != [1]:
            raise ServingError(
                f"{self.base_url} does not return token ids, which rollouts need: use another version of vLLM"
            )

    async def pause(self) -> None:
        """Pause for new weights: new requests wait. A sleeping server reserves its GPU memory for weights again.

        Open replies are finished first. With ``rollout.max_policy_lag`` and whole weights they are interrupted instead,
        and continue with the new weights, for which vLLM recomputes their KV cache.
        """
        if self.asleep:
            await self.wake("weights")
            return
        # The default, abort, would cancel open replies. Keep also clears the cache of those that it interrupts.
        # Adapters need wait: replies would continue with the old ones, and their cache entries would be used for the
        # new ones, which have the same name.
        mode = "keep" if self._config.rollout.max_policy_lag and not self._takes_adapters else "wait"
        await self._call("POST", f"/pause?mode={mode}", timeout=self._reply_timeout)

    async def resume(self, version: int) -> None:
        """Resume with the new weights: clear the prefix cache, and set the version."""
        external = self.launch is not None and self.launch.learns and self._config.serving.kv_offload_gb
        answer = await self._call("POST", "/reset_prefix_cache" + ("?reset_external=true" if external else ""))
        if answer != {"success": True}:
            raise ServingError(
                f"POST {self.base_url}/reset_prefix_cache returned {answer!r}: the cache would mix old and new weights"
            )
        await self._call("POST", SET_VERSION_PATH, {"new_version": str(version)})
        await (self.wake("kv_cache") if self.asleep else self._call("POST", "/resume"))

    async def reload(self, folder: Path) -> None:
        """Load whole weights from a folder, while the server is paused."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        answer = await self._call("POST", "/collective_rpc", body)
        # One entry for each worker; reload_weights returns nothing.
        results = answer.get("results") if isinstance(answer, dict) else None
        if not results or any(result is not None for result in results):
            raise ServingError(
                f"POST {self.base_url}/collective_rpc (reload_weights from {folder}) returned {answer!r}, "
                "expected one null for each worker"
            )

    async def serve_adapters(self, folders: Mapping[str, Path], again: Collection[str] = ()) -> None:
        """Serve exactly these adapters. folders: by names in requests.

        again: names to reload even if their folder is the same; only while the server is paused.
        """
        # Not loaded in place, since vLLM would then load them again for every sampled token. Old ones are unloaded
        # first, to make room.
        for name in [name for name, folder in self._adapters.items() if name in again or folders.get(name) != folder]:
            await self._unload_adapters(name)
            del self._adapters[name]
        for name, folder in folders.items():
            if name not in self._adapters:
                await self._unload_adapters(name)  # those of an earlier process, on an attached vLLM
                body = {"lora_name": name, "lora_path": str(folder)}
                await self._text("POST", _LOAD_ADAPTERS, body)
                self._adapters[name] = folder

    async def _unload_adapters(self, name: str) -> None:
        await self._text("POST", _UNLOAD_ADAPTERS, {"lora_name": name}, allowed=(200, 404))

    async def sleep(self) -> None:
        """Finish open replies and free the GPUs: weights move to CPU memory, the KV cache is dropped."""
        # Level 2 would drop the weights, too, and a step without an update pushes none.
        await self._call("POST", "/sleep?level=1&mode=wait", timeout=self._reply_timeout)
        self.asleep = True

    async def wake(self, *parts: Literal["weights", "kv_cache"]) -> None:
        """Reserve GPU memory again, weights first; with both parts, requests are served again."""
        for part in parts:
            await self._call("POST", f"/wake_up?tags={part}")
        self.asleep = "kv_cache" not in parts

    async def score(self, token_ids: Sequence[int], model: str | None = None) -> list[float]:
        """One natural log-prob for each of ``token_ids[1:]``, given all tokens before it, at temperature 1.

        model: name of adapters in requests; None: the server's model.
        """
        token_ids = list(token_ids)
        model = model or self.model
        if self._takes_adapters:
            logprobs = await self._score_token_by_token(token_ids, model)
        else:
            entries = (await self._complete(token_ids, model, prompt_logprobs=0))["prompt_logprobs"][1:]
            logprobs = [entry[str(token)]["logprob"] for token, entry in zip(token_ids[1:], entries, strict=True)]
        if not all(math.isfinite(value) for value in logprobs):
            raise ServingError(f"{self.base_url}: vLLM returned log-probs that are not finite; its weights are broken")
        return logprobs

    async def _score_token_by_token(self, token_ids: list[int], model: str) -> list[float]:
        """``score`` by the next token after each prefix of the sequence.

        vLLM 0.28 applies the adapters of sampling requests to prompt log-probs, so that with rollouts in flight its
        engine crashes (on CPU; on a GPU they may be another adapter's).
        """
        # The longest first: it fills the prefix cache for the others.
        await self._complete(token_ids[:-1], model, temperature=0.0)
        logprobs: list[float] = []
        for first in range(1, len(token_ids), _MOST_LOGPROB_TOKENS):
            chunk = token_ids[first : first + _MOST_LOGPROB_TOKENS]
            body = {
                "model": model,
                "prompt": [token_ids[:end] for end in range(first, first + len(chunk))],
                "max_tokens": 1,
                **{"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
                "seed": 0,  # else the discarded token would advance the shared random state
                "logprobs": 1,
                "logprob_token_ids": sorted(set(chunk)),
                "return_tokens_as_token_ids": True,
            }
            answer = await self._call("POST", "/v1/completions", body)
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            for token, choice in zip(chunk, choices, strict=True):
                logprobs.append(choice["logprobs"]["top_logprobs"][0][f"token_id:{token}"])
        return logprobs

    async def read_metrics(self) -> dict[str, float]:
        """vLLM's counters since its start (names end in ``_total``) and its gauges, summed over its engines."""
        totals: dict[str, float] = {}
        for family in text_string_to_metric_families(await self._text("GET", "/metrics")):
            for sample in family.samples if family.type in ("counter", "gauge") else ():
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        return totals

    async def check_health(self) -> None:
        """Raise ServingDied when the started process has exited, ServingError when /health does not return 200."""
        self._raise_if_exited()
        try:
            await self._get("/health")
        except ServingDied:
            raise
        except ServingError:
            # A dying vLLM stops responding moments before it exits; its exit code is more informative.
            await self._wait_for_exit(_EXIT_TIMEOUT_SECONDS)
            self._raise_if_exited()
            raise

    def as_death(self, error: Exception) -> ServingDied:
        if isinstance(error, ServingDied):
            return error
        return ServingDied(f"vLLM no longer responds: {error}{self._log_tail()}")

    async def terminate(self) -> None:
        """Stop a started vLLM, by SIGKILL after a timeout. An attached vLLM is left running."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            # The guard enforces the timeout and kills the rest of vLLM's process group.
            await self._wait_for_exit(_STOP_GRACE_SECONDS + 5)
            process.kill()
            await asyncio.to_thread(process.wait)

    async def stop(self) -> None:
        """``terminate``, and close the connections. May be called again."""
        try:
            await self.terminate()
        finally:  # a second Ctrl-C cancels the wait for vLLM's end
            await self._http.close()

    async def _wait_until_healthy(self) -> None:
        timeout = self._config.serving.start_timeout_seconds
        started = reported = time.monotonic()
        logger.info("starting vLLM on %s; its log: %s", self.base_url, self._log_path)
        while (now := time.monotonic()) - started <= timeout:
            await asyncio.sleep(0.2)
            self._raise_if_exited()
            with contextlib.suppress(ServingError):  # not listening yet
                # It needs our control token: until ours listens, a vLLM of another run may answer at this port.
                await self._get("/is_paused")
                await self._get("/health")
                logger.info("vLLM is ready on %s after %.0f s", self.base_url, now - started)
                return
            if now - reported >= 10:
                reported = now
                logger.info("vLLM is starting on %s: %.0f s", self.base_url, now - started)
        raise ServingError(
            f"vLLM was not healthy after {timeout:.0f} s (serving.start_timeout_seconds){self._log_tail()}"
        )

    async def _check_development_endpoints(self) -> None:
        settings = self._config.serving
        needed = [*_PUSH_ENDPOINTS] + [_LOAD_ADAPTERS] * self._takes_adapters
        needed += _TRANSFER_ENDPOINTS * (settings.weight_transfer != "folder") + _SLEEP_ENDPOINTS * settings.share_gpus
        for path in needed:
            # They accept POST only; a GET returns 405 if they exist, without an effect.
            status, _ = await self._request("GET", path, timeout=_HEALTH_TIMEOUT_SECONDS)
            if status == 404:
                raise ServingError(
                    f"{self.base_url} has no {path}, which a push of weights needs: start that vLLM with the "
                    "environment variables VLLM_SERVER_DEV_MODE=1 and, for adapters, "
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
                )

    @property
    def _reply_timeout(self) -> float:
        return max(_TIMEOUT_SECONDS, self._config.rollout.timeout_seconds)

    async def _complete(self, token_ids: list[int], model: str, **options: Any) -> dict[str, Any]:
        body = {"model": model, "prompt": token_ids, "max_tokens": 1, **options}
        return (await self._call("POST", "/v1/completions", body))["choices"][0]

    async def _get(self, path: str) -> Any:
        return await self._call("GET", path, timeout=_HEALTH_TIMEOUT_SECONDS)

    async def _call(self, method: str, path: str, body: Any = None, *, timeout: float = _TIMEOUT_SECONDS) -> Any:
        """The JSON of a response with status 200 (None for an empty one). Raises ServingError for any other."""
        text = await self._text(method, path, body, timeout=timeout)
        try:
            return json.loads(text) if text else None
        except json.JSONDecodeError as error:
            raise ServingError(
                f"{method} {self.base_url}{path} returned invalid JSON: {text[:_BODY_SHOWN]!r}"
            ) from error

    async def _text(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float = _TIMEOUT_SECONDS,
        allowed: Collection[int] = (200,),
    ) -> str:
        """The text of a response with an allowed status. Raises ServingError for any other."""
        status, text = await self._request(method, path, body, timeout=timeout)
        if status not in allowed:
            raise ServingError(f"{method} {self.base_url}{path} returned {status}: {text[:_BODY_SHOWN]}")
        return text

    async def _request(self, method: str, path: str, body: Any = None, *, timeout: float) -> tuple[int, str]:
        url, limit = self.base_url + path, aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._http.request(method, url, json=body, timeout=limit) as response:
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            self._raise_if_exited()
            reason = f"no response within {timeout:.0f} s" if isinstance(error, TimeoutError) else str(error)
            raise ServingError(f"{method} {url} failed: {reason}") from error

    async def _wait_for_exit(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def _raise_if_exited(self) -> None:
        exit_code = self._process.poll() if self._process is not None else None
        if exit_code is not None:
            raise ServingDied(f"vLLM exited with code {exit_code} ({self.base_url}){self._log_tail()}")

    def _log_tail(self) -> str:
        if self._log_path is None or not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode("utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"; the end of {self._log_path}:", *(f"    {line}" for line in lines)])
