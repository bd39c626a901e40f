"""vLLM, unpatched: started as a child or attached to, given new weights, and asked for log-probs.

The training loop owns one ``Serving``. Runners never see this module: they are told ``endpoint`` and
speak OpenAI's protocol. New weights arrive as a folder on disk, through vLLM's own development
endpoints, which have no authentication: a started vLLM therefore listens on loopback only.
"""

import asyncio
import contextlib
import json
import logging
import math
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from algo.policy_version import SET_VERSION_PATH
from algo.vllm_launch import launch_vllm
from algo.weight_files import check_same_tensors
from configs.schema import Config

logger = logging.getLogger(__name__)

_LOG_TAIL_LINES = 30
_BODY_SHOWN = 1000
_PORT_PATIENCE_SECONDS = 3.0
_STOP_GRACE_SECONDS = 15.0
_EXIT_PATIENCE_SECONDS = 3.0
_HEALTH_TIMEOUT_SECONDS = 30.0
# Pausing waits for the replies under way; none is longer than the context.
_PUSH_TIMEOUT_SECONDS = 600.0
_SCORE_TIMEOUT_SECONDS = 120.0
_PUSH_ENDPOINTS = ("/pause", "/collective_rpc", "/reset_prefix_cache", SET_VERSION_PATH, "/resume")


class ServingError(RuntimeError):
    """vLLM cannot be used as asked; the message names the endpoint, or the setting and the remedy."""


class ServingDied(ServingError):
    """vLLM is gone.

    exit_code: of the started process (128 + n for signal n); None for an attached vLLM, or one that
        still runs but no longer answers.
    log_path: the started vLLM's log; None for an attached one.
    """

    def __init__(self, message: str, exit_code: int | None = None, log_path: Path | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.log_path = log_path


class Serving:
    """One vLLM server. Make it with ``open``, ``start`` or ``attach``; use it as an async context manager.

    All methods belong to the event loop that made it. ``startup_seconds`` is how long vLLM took to
    become healthy (0 when attached); ``log_path`` is its log (None when attached).
    """

    def __init__(self, config: Config, base_url: str) -> None:
        self._config = config
        self._base_url = base_url.rstrip("/")
        # Loopback must not go through a proxy from the environment. Connections are not kept: calls
        # are minutes apart, and vLLM closes idle ones after seconds.
        self._http = aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.log_path: Path | None = None
        self.startup_seconds = 0.0

    @classmethod
    async def open(cls, config: Config, progress: Callable[[str], None] = logger.info) -> Self:
        """Start or attach, as ``serving.mode`` says."""
        if config.serving.mode == "attach":
            return await cls.attach(config)
        return await cls.start(config, progress)

    @classmethod
    async def start(cls, config: Config, progress: Callable[[str], None] = logger.info) -> Self:
        """Start vLLM on ``config.model.path`` and wait until it is healthy.

        It dies with this process, however this process dies; call from the main thread, since Linux
        takes the end of the calling thread for that. Its output goes to ``vllm.log`` in the run's folder.
        progress: called with one line when vLLM is started, every ten seconds, and when it is ready.

        Raises ServingError when the model folder is missing or cannot be served here or the port is taken
        (nothing is started then), or when vLLM is not healthy in time; ServingDied, with the end of its
        log, when it exits.
        """
        settings = config.serving
        _require_servable_model(config)
        await _require_free_port(settings.host, settings.port)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        serving = cls(config, f"http://{host}:{settings.port}")
        try:
            serving._launch()
            await serving._wait_until_healthy(progress)
        except BaseException:  # also when cancelled: nothing may stay behind
            await serving.stop()
            raise
        return serving

    @classmethod
    async def attach(cls, config: Config) -> Self:
        """Use the vLLM that already runs at ``serving.urls``.

        Raises ServingError unless it is healthy, serves ``serving.served_model_name`` with at least
        ``game.context_tokens``, has the development endpoints that weight pushes need, and reports
        log-probs as the trainer recomputes them.
        """
        serving = cls(config, config.serving.urls[0])
        try:
            await serving._check_attached()
        except BaseException:
            await serving.stop()
            raise
        return serving

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs for OpenAI clients, ending in ``/v1``: what runners are told."""
        return (f"{(self._config.serving.public_urls or (self._base_url,))[0].rstrip('/')}/v1",)

    @property
    def model(self) -> str:
        """The model's name in requests."""
        return self._config.serving.served_model_name

    async def push_weights(self, model_dir: Path | str, version: int) -> float:
        """Serve the weights in ``model_dir`` from now on; returns the seconds it took.

        version: its number, told with every completion from now on.
        model_dir: a folder of safetensors that vLLM can read at the same path, with the tensors of
            ``model.path`` (checked first: vLLM keeps the old values of missing tensors without a word).
        Replies under way are finished first; requests that arrive meanwhile wait, and get the new weights.

        Raises ValueError for weights of another model, before anything is touched, and ServingError naming
        the endpoint, its status and its answer. After a failed reload vLLM
        is left paused, because it may hold half of the new weights: stop it and start another.
        """
        started = time.monotonic()
        model_dir = Path(model_dir).resolve()
        check_same_tensors(model_dir, self._config.model.path)
        # mode=wait drains; the default would abort the replies under way.
        await self._call("POST", "/pause?mode=wait", timeout=_PUSH_TIMEOUT_SECONDS)
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(model_dir)}}
        answer = await self._call("POST", "/collective_rpc", body, timeout=_PUSH_TIMEOUT_SECONDS)
        # One entry for each worker; reload_weights returns nothing.
        results = answer.get("results") if isinstance(answer, dict) else None
        if not results or any(result is not None for result in results):
            raise ServingError(
                f"POST {self._base_url}/collective_rpc (reload_weights from {model_dir}) answered {answer!r}, "
                "expected one null for each worker"
            )
        answer = await self._call("POST", "/reset_prefix_cache", timeout=_PUSH_TIMEOUT_SECONDS)
        if answer != {"success": True}:
            raise ServingError(
                f"POST {self._base_url}/reset_prefix_cache answered {answer!r}: the cache would mix old and new weights"
            )
        await self._call("POST", SET_VERSION_PATH, {"new_version": str(version)}, timeout=_PUSH_TIMEOUT_SECONDS)
        await self._call("POST", "/resume", timeout=_PUSH_TIMEOUT_SECONDS)
        return time.monotonic() - started

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs of a fixed sequence under the weights served now.

        Returns one natural log-prob for each of ``token_ids[1:]``, given everything before it; at
        temperature 1 whatever the sampling settings, and computed anew, never from the prefix cache.
        """
        token_ids = list(token_ids)
        if len(token_ids) < 2:
            raise ValueError(f"a sequence to score needs at least two tokens, got {len(token_ids)}")
        choice = await self._complete(token_ids, prompt_logprobs=0, timeout=_SCORE_TIMEOUT_SECONDS)
        entries = choice["prompt_logprobs"][1:]
        logprobs = [entry[str(token)]["logprob"] for token, entry in zip(token_ids[1:], entries, strict=True)]
        if not all(math.isfinite(value) for value in logprobs):
            raise ServingError(f"{self._base_url}: vLLM gave log-probs that are not finite; its weights are broken")
        return logprobs

    async def sleep(self) -> None:
        """Leave the GPUs to the trainer, where both share them."""

    async def wake(self) -> None:
        """Take the GPUs again."""

    async def metrics(self) -> dict[str, float]:
        """Numbers for the log."""
        return {}

    async def check_alive(self) -> bool:
        """Raise ServingDied when the started process has ended, or when /health is not answered with 200."""
        await self._check_alive()
        return False

    async def _check_alive(self) -> None:
        self._raise_if_exited()
        try:
            await self._call("GET", "/health", timeout=_HEALTH_TIMEOUT_SECONDS)
        except ServingDied:
            raise
        except ServingError as error:
            # A dying vLLM stops answering moments before it ends; its exit code says more.
            await self._wait_for_exit(_EXIT_PATIENCE_SECONDS)
            self._raise_if_exited()
            raise ServingDied(f"vLLM no longer answers: {error}{self._log_tail()}", None, self.log_path) from error

    async def stop(self) -> None:
        """End a started vLLM and all its processes, by force if it takes too long. May be called again.

        An attached vLLM is left running.
        """
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            # The guard bounds the wait and kills what is left of vLLM's group.
            await self._wait_for_exit(_STOP_GRACE_SECONDS + 5)
            if process.poll() is None:
                process.kill()
                await asyncio.to_thread(process.wait)
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _launch(self) -> None:
        self._config.run_dir.mkdir(parents=True, exist_ok=True)
        self.log_path = self._config.run_dir / "vllm.log"
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = launch_vllm(self._config, log, _STOP_GRACE_SECONDS)

    async def _wait_until_healthy(self, progress: Callable[[str], None]) -> None:
        timeout = self._config.serving.start_timeout_seconds
        started = time.monotonic()
        next_report = 0.0
        progress(f"starting vLLM on {self._base_url}; its log: {self.log_path}")
        while True:
            await asyncio.sleep(0.2)
            self._raise_if_exited()
            with contextlib.suppress(ServingError):  # not listening yet
                await self._call("GET", "/health", timeout=_HEALTH_TIMEOUT_SECONDS)
                break
            elapsed = time.monotonic() - started
            if elapsed > timeout:
                raise ServingError(
                    f"vLLM was not healthy after {timeout:.0f} s (serving.start_timeout_seconds){self._log_tail()}"
                )
            if elapsed >= next_report + 10:
                next_report = elapsed
                progress(f"vLLM is starting: {elapsed:.0f} s")
        self.startup_seconds = time.monotonic() - started
        progress(f"vLLM is ready after {self.startup_seconds:.0f} s")

    async def _check_attached(self) -> None:
        await self._call("GET", "/health", timeout=_HEALTH_TIMEOUT_SECONDS)
        models = (await self._call("GET", "/v1/models", timeout=_HEALTH_TIMEOUT_SECONDS))["data"]
        served = {entry["id"]: entry for entry in models}
        if self.model not in served:
            raise ServingError(
                f"{self._base_url} serves {sorted(served)}, not {self.model!r}: "
                "set serving.served_model_name, or start that vLLM with --served-model-name"
            )
        longest = served[self.model].get("max_model_len")
        if longest is not None and longest < self._config.game.context_tokens:
            raise ServingError(
                f"{self._base_url} takes {longest} tokens, game.context_tokens is {self._config.game.context_tokens}: "
                "lower the setting, or start that vLLM with a larger --max-model-len"
            )
        for path in _PUSH_ENDPOINTS:
            # They take POST only; a GET answers 405 where they exist and changes nothing.
            status, _ = await self._request("GET", path, None, _HEALTH_TIMEOUT_SECONDS)
            if status == 404:
                raise ServingError(
                    f"{self._base_url} has no {path}, so weights cannot be pushed to it: "
                    "start that vLLM with the environment variable VLLM_SERVER_DEV_MODE=1"
                )
        if (await self._call("GET", "/is_paused", timeout=_HEALTH_TIMEOUT_SECONDS))["is_paused"]:
            logger.warning("the vLLM at %s is paused, probably by a push that was cut short", self._base_url)
            return  # it would not answer until the next push resumes it
        # Only one token allowed: its log-prob is 0 once masks and temperature are applied.
        choice = await self._complete([0, 1], allowed_token_ids=[1], logprobs=0, temperature=1.0, timeout=60)
        if choice["logprobs"]["token_logprobs"] != [0.0]:
            raise ServingError(
                f"{self._base_url} reports log-probs before temperature and masks, which would not match the "
                "trainer's: start that vLLM with --logprobs-mode processed_logprobs"
            )

    async def _complete(self, token_ids: list[int], timeout: float, **options: Any) -> dict[str, Any]:
        body = {"model": self.model, "prompt": token_ids, "max_tokens": 1, **options}
        answer = await self._call("POST", "/v1/completions", body, timeout=timeout)
        return answer["choices"][0]

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any:
        """The decoded JSON of a 200 answer (None for an empty one); anything else is a ServingError."""
        status, text = await self._request(method, path, body, timeout)
        if status != 200:
            raise ServingError(f"{method} {self._base_url}{path} answered {status}: {text[:_BODY_SHOWN]}")
        if not text:
            return None
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ServingError(
                f"{method} {self._base_url}{path} answered what is not JSON: {text[:_BODY_SHOWN]!r}"
            ) from error

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> tuple[int, str]:
        url = self._base_url + path
        try:
            async with self._http.request(
                method, url, json=body, timeout=aiohttp.ClientTimeout(total=timeout)
            ) as response:
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            self._raise_if_exited()
            reason = f"no answer within {timeout:.0f} s" if isinstance(error, TimeoutError) else str(error)
            raise ServingError(f"{method} {url} failed: {reason}") from error

    async def _wait_for_exit(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def _raise_if_exited(self) -> None:
        exit_code = self._process.poll() if self._process is not None else None
        if exit_code is not None:
            raise ServingDied(f"vLLM exited with code {exit_code}{self._log_tail()}", exit_code, self.log_path)

    def _log_tail(self) -> str:
        if self.log_path is None:
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode("utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"; the end of {self.log_path}:", *(f"    {line}" for line in lines)])


def _require_servable_model(config: Config) -> None:
    path = config.model.path
    try:
        architecture = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ServingError(
            f"model.path {path} holds no config.json: name a Hugging Face model folder, or build a tiny model "
            f"there with `python -m algo.tiny_model {path}`"
        ) from error
    if config.training.device == "cpu" and architecture.get("tie_word_embeddings"):
        # Its output head keeps a packed copy of the first weights, which a reload does not renew
        # (vLLM 0.28.0): the log-probs would be those of no model at all.
        raise ServingError(
            f"model.path {path} has tied embeddings, which vLLM on CPU cannot be given new weights for: save the "
            "model with tie_word_embeddings=false and an lm_head.weight of its own, or serve it on a GPU"
        )


async def _require_free_port(host: str, port: int) -> None:
    # A vLLM of ours that is just being killed frees the port within moments.
    patience = AsyncRetrying(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_delay(_PORT_PATIENCE_SECONDS),
        wait=wait_fixed(0.25),
        reraise=True,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        async for attempt in patience:
            with attempt, socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
    except OSError as error:
        raise ServingError(
            f"vLLM cannot listen on {host}, port {port}: {error.strerror}. "
            f"Choose a free port, e.g. --set serving.port={port + 1 if port < 65535 else 8000}, "
            "or use the vLLM that runs there with serving.mode=attach"
        ) from error
