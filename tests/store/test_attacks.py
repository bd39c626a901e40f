"""What somebody who reaches a hub may try, with a real hub and bare sockets. Each attack worked on an earlier version."""

import asyncio
import socket

import pytest
from hub_process import HubProcess

from store.auth import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from store.hub import listen

TOKEN = "jIwG7-long-and-secret"
ANSWER_SECONDS = 20


@pytest.fixture(autouse=True)
def no_token_from_outside(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_FILE_VARIABLE, raising=False)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A hub with a token."""
    hub = HubProcess(tmp_path_factory.mktemp("guarded"), AGL_TOKEN=TOKEN)
    asyncio.run(hub.start())
    yield hub
    hub.kill()


def ask(hub, head: str, body: bytes = b"") -> bytes:
    """The beginning of the answer to a request that may be incomplete; TimeoutError if there is none."""
    with socket.create_connection(("127.0.0.1", hub.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        return connection.recv(65536)


def test_small_answers_do_not_wait_for_an_acknowledgement():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(("method", "status"), [("POST", 405), ("GET", 200)])
def test_a_health_check_is_answered_before_its_body_has_come(guarded, method, status):
    head = f"{method} /v1/agl/health HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 60000000\n"
    assert ask(guarded, head, b"x" * 100_000).startswith(f"HTTP/1.1 {status}".encode())
