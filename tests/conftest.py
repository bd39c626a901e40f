"""Shared fixtures: a real in-memory hub inside the test process, which a test may stop and start again."""

import os
import signal

import pytest

# Before torch is imported. Threads that wait for each other by spinning keep the cores from the processes beside them:
# two that train at once on two cores took six times as long.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

from store.client import connect  # before agentlightning: importing store sets what its import reads

# isort: split
from agentlightning import InMemoryLightningStore, LightningStoreServer, clear_active_tracer
from hypothesis import settings

from algo.machine.ports import free_port

# The same examples every time: what fails once fails again, and what is green stays so. `--hypothesis-profile=default
# --hypothesis-seed=N` looks elsewhere.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A vLLM that a test starts is attached to by programs that it starts, too.
os.environ["VLLM_CONTROL_TOKEN"] = "of-all-tests"


# A shell's background job ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """The longest first, so that what runs beside them fills the time until the last of them ends."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.fixture(autouse=True)
def no_tracer_is_left():
    """A process has one active tracer, which our runner of agents sets; agentlightning's own wants to set another."""
    yield
    clear_active_tracer()


class Hub:
    """The stock LightningStoreServer over the stock memory store, on a fixed port."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server: LightningStoreServer | None = None

    async def start(self):
        """Start with an empty store, as a restarted `agl store` does."""
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
    client = connect(hub.url, patience_seconds=20)
    yield client
    await client.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder of the tiny model, built once."""
    from algo.tiny_model import build_tiny_model

    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)


@pytest.fixture(scope="session")
def real_tokenizer():
    """SmolLM2's, of 49,152 words; skips where the extra real is not installed."""
    from algo.real_model import NotInstalled, load_tokenizer

    try:
        return load_tokenizer()
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_model(tmp_path_factory, real_tokenizer):
    """Folder of the pretrained model, as `make real` builds it."""
    from algo.real_model import build_real_model

    return build_real_model(tmp_path_factory.mktemp("models") / "real")
