"""A web page, or anything else that reaches a vLLM of ours, plays with its policy at most and cannot control it."""

import pytest

from algo.serving.control import CONTROL_HEADER, CONTROL_VARIABLE, ControlGuard, control_headers, control_token
from algo.serving.launch import policy_launches, vllm_command, vllm_environment
from configs.schema import Config

CONTROL = [
    "/pause",
    "/collective_rpc",
    "/update_weights",
    "/sleep",
    "/v1/load_lora_adapter",
    "/reset_prefix_cache",
    "/",
]
OPEN = ["/v1/completions", "/v1/chat/completions/render", "/v1/models", "/health", "/tokenize", "/tokenizer_info"]


@pytest.fixture(autouse=True)
def no_token_is_kept():
    yield
    control_token.cache_clear()


async def status(path, headers=(), token="known"):
    sent = []

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    guard = ControlGuard(application)
    guard._token = token.encode()
    await guard({"type": "http", "path": path, "headers": list(headers)}, None, send)
    return sent[0]["status"]


@pytest.mark.parametrize("path", CONTROL)
async def test_control_needs_the_token(path):
    name = CONTROL_HEADER.encode()
    assert await status(path) == 403
    assert await status(path, [(name, b"guessed")]) == 403
    assert await status(path, [(name, b"known")]) == 200


@pytest.mark.parametrize("path", OPEN)
async def test_what_runners_ask_for_is_open(path):
    assert await status(path) == 200


async def test_a_vllm_that_was_started_without_a_token_is_as_it_was():
    assert await status("/pause", token="") == 200


def test_a_started_server_is_guarded_and_gets_only_its_token(monkeypatch):
    monkeypatch.setenv("AGL_TOKEN", "the hub's")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("PGPASSWORD", "the database's")
    monkeypatch.delenv(CONTROL_VARIABLE)
    control_token.cache_clear()
    (launch,) = policy_launches(Config())
    command, environment = vllm_command(Config(), launch), vllm_environment(Config(), launch)
    guarded = [command[at + 1] for at, word in enumerate(command) if word == "--middleware"]
    assert guarded == ["algo.serving.version_header.PolicyVersionHeader", "algo.serving.control.ControlGuard"]
    assert environment[CONTROL_VARIABLE] == control_token() and len(control_token()) > 40
    assert not {"AGL_TOKEN", "OPENAI_API_KEY", "PGPASSWORD"} & environment.keys()


def test_our_token_is_not_shown_to_servers_of_others(monkeypatch):
    monkeypatch.delenv(CONTROL_VARIABLE)
    control_token.cache_clear()
    assert control_headers(started_here=False) == {}
    assert control_headers(started_here=True) == {CONTROL_HEADER: control_token()}
    monkeypatch.setenv(CONTROL_VARIABLE, "agreed")
    control_token.cache_clear()
    assert control_headers(started_here=False) == {CONTROL_HEADER: "agreed"}
