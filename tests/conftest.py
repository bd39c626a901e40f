"""Shared fixtures: a real in-memory hub inside the test process, which a test may stop and start again.

Each worker of pytest-xdist and their controller import this: what is heavy is imported where it is used.
"""

import fcntl
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import store  # noqa: F401  before agentlightning: it sets what that import reads
from algo.machine.ports import free_port

if TYPE_CHECKING:
    from agentlightning import LightningStoreServer

# Before torch is imported. Threads that wait for each other by spinning keep the cores from the processes beside them:
# two that train at once on two cores took six times as long.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

# Ray would kill the workers of a test once vLLMs of other tests fill 95 % of the memory.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112

# The same examples every time: what fails once fails again, and what is green stays so. `--hypothesis-profile=default
# --hypothesis-seed=N` looks elsewhere.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A vLLM that a test starts is attached to by programs that it starts, too.
os.environ["VLLM_CONTROL_TOKEN"] = "of-all-tests"


# A shell's background job ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# marker -> what starts it: a fixture, a function or class that the test's module imports, or a parameter.
STARTED_BY = {
    "vllm": {"serve_vllm", "real_vllm"},
    "ray": {"ray_cluster"},
    "browser": {"driver", "start_driver"},
    "postgres": {"postgres_server", "new_server", "postgres"},
    "hub": {"HubProcess", "StockHub", "hub_process", "fork"},
    "real": {"real_model", "real_tokenizer"},
}
LONGEST_ID = 60
LEFT_OUT = {
    "vllm": "vLLM",
    "ray": "Ray",
    "browser": "a browser",
    "postgres": "PostgreSQL",
    "real": "the pretrained model",
    "slow": "more time",
}
"""Markers of tests that ``make test`` leaves out, and what those need."""
left_out: Counter[str] = Counter()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut long values: a megabyte in the id of a test is a hundred in the reports that xdist's controller keeps."""
    return str(val[:LONGEST_ID]) if isinstance(val, str | bytes) and len(val) > LONGEST_ID else None


def pytest_collectstart():
    """Import without looking for garbage, which takes a fifth of the time."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Mark each test by what it starts. What shares processes, or a file, goes to one worker; the longest first.

    Hubs are forked from a process that has imported what they need, which takes longer than most tests of hubs.
    """
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        names = {*item.fixturenames, *vars(item.module), *(each for each in parameters if isinstance(each, str))}
        for marker, starters in STARTED_BY.items():
            if starters & names:
                item.add_marker(marker)
        if _needs(item) and not item.get_closest_marker("fast"):
            item.add_marker("full")
        if not item.get_closest_marker("xdist_group"):
            shared = next((marker for marker in ("ray", "hub") if item.get_closest_marker(marker)), item.location[0])
            item.add_marker(pytest.mark.xdist_group(shared))
    items.sort(key=lambda item: -max((mark.args[0] for mark in item.iter_markers("timeout")), default=0))


def pytest_collection_finish(session: pytest.Session):
    """Stop a worker of pytest-xdist that ignores the groups: each would start the shared processes of all."""
    gc.enable()
    gc.collect()
    gc.freeze()  # a million objects of imported packages, which no collection need look at again
    if getattr(session.config.option, "loadgroup", False) and any("@" not in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist ignores xdist_group with this pytest: install the pinned pytest")


def _needs(item: pytest.Item) -> list[str]:
    return [marker for marker in LEFT_OUT if item.get_closest_marker(marker)]


def pytest_deselected(items: list[pytest.Item]):
    """Count what ``make test`` leaves out."""
    for item in items:
        if item.get_closest_marker("full") and not {"endurance", "soak"} & {mark.name for mark in item.iter_markers()}:
            left_out[_needs(item)[0]] += 1


def pytest_sessionfinish(session: pytest.Session):
    """A worker of pytest-xdist tells its controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(left_out)


def pytest_runtest_logreport(report: pytest.TestReport):
    """Name what failed at once: a run that is ended from outside never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.0f} s)", flush=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Every worker has collected the same tests."""
    left_out.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - left_out)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter):
    """Say what ``make test`` left out."""
    if left_out and "not full" in terminalreporter.config.option.markexpr:
        parts = ", ".join(f"{count} that need {LEFT_OUT[marker]}" for marker, count in left_out.items())
        terminalreporter.write_line(f"left out: {parts}. They run by: make test-rest (everything: make test-all)")


@pytest.fixture(autouse=True)
def ray_is_started_by_its_fixture_alone(request):
    """Or the test would lack its marker, and Ray would start again for each file."""
    before = _ray_runs()
    yield
    assert before or not _ray_runs() or request.node.get_closest_marker("ray"), "what uses Ray takes ray_cluster"


def _ray_runs() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


@pytest.fixture(autouse=True)
def no_tracer_is_left():
    """A process has one active tracer, which our runner of agents sets; agentlightning's own wants to set another."""
    yield
    if agentlightning := sys.modules.get("agentlightning"):
        agentlightning.clear_active_tracer()


class Hub:
    """The stock LightningStoreServer over the stock memory store, on a fixed port."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server: LightningStoreServer | None = None

    async def start(self):
        """Start with an empty store, as a restarted `agl store` does."""
        from agentlightning import InMemoryLightningStore, LightningStoreServer

        self.server = LightningStoreServer(
            InMemoryLightningStore(thread_safe=True), host="127.0.0.1", port=self.port, launch_mode="thread"
        )
        await self.server.start()

    async def stop(self):
        if self.server is not None:
            await self.server.stop()
            self.server = None


@pytest.fixture
async def hub():
    hub = Hub()
    await hub.start()
    yield hub
    await hub.stop()


@pytest.fixture
async def client(hub):
    from store.client import connect

    client = connect(hub.url, retry_seconds=20)
    yield client
    await client.close()


@pytest.fixture
async def http_service():
    from tests.support.agents.http_service import HttpService

    async with HttpService() as service:
        yield service


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray of two nodes for all engines of a session; the engines of a test take their ranks from it."""
    import ray

    from tests.support.ray_nodes import ray_cluster_of

    with ray_cluster_of(nodes=2, cpus_each=3):
        ray.init(logging_level="WARNING", log_to_driver=False)
        del os.environ["RAY_ADDRESS"]  # programs that a test starts have a Ray of their own
        yield


@pytest.fixture(scope="session")
def serve_vllm(tmp_path_factory):
    """``serve_vllm(model, *settings)``: the base URL of a real vLLM, which all tests that ask for the same share."""
    from tests.support.real_vllm import real_vllm

    with ExitStack() as stack:
        served = {}

        def serve(model: Path, *settings: str) -> str:
            if (model, settings) not in served:
                log = tmp_path_factory.mktemp("vllm") / "log"
                served[model, settings] = stack.enter_context(real_vllm(log, f"model.path={model}", *settings))
            return served[model, settings]

        yield serve


@pytest.fixture
async def lend_vllm(serve_vllm):
    """The same vLLM to a test that changes its weights: before and after, it has those of the model's folder."""
    from algo.serving.server_group import ServerGroup
    from configs.loading import load_config

    lent = {}

    async def reset(model: Path) -> None:
        async with await ServerGroup.open(lent[model]) as serving:
            await serving.push_weights(model, 0)

    async def lend(model: Path, *settings: str) -> str:
        url = serve_vllm(model, *settings)
        lent[model] = load_config(
            None, [f"model.path={model}", *settings, "serving.mode=attach", f"serving.urls=[{url}]"]
        )
        await reset(model)
        return url

    yield lend
    for model in lent:
        await reset(model)


@contextmanager
def built_once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder of all workers of pytest-xdist, for what the first one builds and the others find there."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared / name


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder of the tiny model."""
    from algo.tiny_model import build_tiny_model

    with built_once(tmp_path_factory, "tiny") as folder:
        return build_tiny_model(folder)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)


@pytest.fixture(scope="session")
def real_model(tmp_path_factory):
    """Folder of the pretrained model, as `make real` builds it; skips where the extra real is not installed."""
    from algo.real_model import NotInstalled, build_real_model

    try:
        with built_once(tmp_path_factory, "real") as folder:
            return build_real_model(folder)
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_tokenizer(real_model):
    """The pretrained model's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(real_model)
