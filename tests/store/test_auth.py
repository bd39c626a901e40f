"""The token: every route but health wants it, nothing shows it, the client sends it."""

import hmac
from pathlib import Path

import aiohttp
import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount

from algo.machine.ports import free_port
from store.auth import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, UnusableToken, read_token
from store.client import StoreUnauthorized, connect
from store.hub.server import Hub, HubSettings
from tests.support.fakes import make_turn, spans_of
from tests.support.hub.asking import enqueue_one, take
from tests.support.hub.hub_process import HubProcess, run_command

pytest_plugins = ("tests.support.hub.hub_backends",)

TOKEN = "jIwG7-long-and-secret"
HEALTH = "/v1/agl/health"


@pytest.fixture(autouse=True)
def no_token_from_outside(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_FILE_VARIABLE, raising=False)


@pytest.fixture
def app(file_store, tmp_path):
    settings = HubSettings("127.0.0.1", 1, tmp_path, token=TOKEN, cors_origins=["http://page.example"])
    return Hub(file_store, settings, 1).app


@pytest.fixture
async def web(app):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as web:
        yield web


def routes(app):
    for route in app.routes:
        if isinstance(route, Mount):
            yield "GET", route.path + "/index.js"
        else:
            for method in route.methods:
                path = route.path_format if isinstance(route, APIRoute) else route.path
                yield (
                    method,
                    path.format(rollout_id="r", attempt_id="a", worker_id="w", resources_id="s", full_path="p"),
                )


async def test_every_route_but_health_wants_the_token(app, web):
    asked = list(routes(app))
    assert len(asked) > 30 and ("POST", "/v1/traces") in asked and ("GET", "/") in asked
    for method, path in asked:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            response = await web.request(method, path, headers=headers)
            assert (response.status_code == 401) == (path != HEALTH), (method, path)
            if path != HEALTH:
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert TOKEN_VARIABLE in response.text or method == "HEAD"
        response = await web.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert response.status_code != 401, (method, path)


@pytest.mark.parametrize(
    ("path", "values", "status"),
    [
        (HEALTH + "/", [], 401),
        ("/v1/agl/../agl/rollouts", [], 401),
        ("//v1/agl/health", [], 401),
        ("/v1/agl/health/../rollouts", [], 401),
        ("/v1/agl/workers", [f"Bearer{TOKEN}"], 401),
        ("/v1/agl/workers", [f"Bearer  {TOKEN}"], 401),
        ("/v1/agl/workers", [f"Bearer {TOKEN} "], 401),
        ("/v1/agl/workers", [f"Bearer {TOKEN}", "Bearer x"], 401),
        ("/v1/agl/workers", [b"Bearer \xff\xfe"], 401),
        ("/v1/agl/workers", [f"bEARER {TOKEN}"], 200),
    ],
)
async def test_nothing_else_passes_for_health_or_for_the_exact_header(web, path, values, status):
    headers = [("Authorization", value) for value in values]
    assert (await web.get(path, headers=headers)).status_code == status


async def test_the_comparison_takes_the_same_time_for_every_guess(web, monkeypatch):
    compared = []
    stock = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(a) or stock(a, b))
    await web.get("/v1/agl/workers", headers={"Authorization": "Bearer guess"})
    assert compared == [b"guess"]


async def test_the_token_shows_nowhere(tmp_path):
    hub = HubProcess(tmp_path, "--token-file", str(token_file(tmp_path, TOKEN + "\n")), "--log-level", "DEBUG")
    await hub.start()
    good, bad = connect(hub.url, 20, TOKEN), connect(hub.url, 20, "another-secret")
    try:
        await good.wait_until_reachable()
        await enqueue_one(good, 1)
        rollout = await take(good)
        (turn,) = spans_of([make_turn()], rollout.rollout_id, rollout.attempt.attempt_id)
        assert await good.upload_spans([turn]) == {}
        assert len(await good.query_spans(rollout.rollout_id)) == 1
        with pytest.raises(aiohttp.ClientResponseError, match="401") as refused:
            await bad.query_rollouts()
        with pytest.raises(StoreUnauthorized, match=rf"rejects the token: set {TOKEN_VARIABLE}"):
            await bad.upload_spans([turn])
        async with bad._ask("get", "agl/rollouts") as response:
            seen = [await response.text(), str(response.headers), str(refused.value), repr(good), repr(bad)]
        commands = Path(f"/proc/{hub.process.pid}/cmdline").read_text()
    finally:
        await good.close()
        await bad.close()
        hub.stop()
    for text in (*seen, commands, hub.log.read_text()):
        assert TOKEN not in text and "another-secret" not in text
    assert TOKEN.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("hub*"))


def token_file(folder, content: bytes | str):
    file = folder / "token"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("content", ["", "  \n", "two\nlines", "two words", "geheim\u00fc", "bell\x07", b"\xff\xfe"])
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(tmp_path, content):
    file = token_file(tmp_path, content)
    with pytest.raises(UnusableToken, match=r"token file .*token") as refused:
        read_token(file)
    for part in content.split() if isinstance(content, str) else []:
        assert part not in str(refused.value).replace(str(file), "")


def test_the_token_may_lie_in_a_file_that_the_environment_names(tmp_path, monkeypatch, caplog):
    file = token_file(tmp_path, f"{TOKEN}\n")
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
    assert read_token() == TOKEN and not caplog.records
    file.chmod(0o644)
    assert read_token() == TOKEN and "chmod 600" in caplog.text and TOKEN not in caplog.text
    monkeypatch.setenv(TOKEN_VARIABLE, "the-other-one")
    assert read_token() == "the-other-one"
    monkeypatch.delenv(TOKEN_VARIABLE)
    file.unlink()
    with pytest.raises(UnusableToken, match=f"cannot read the token file {file}"):
        read_token()


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_a_token_that_did_not_arrive_opens_no_hub(tmp_path, monkeypatch, empty):
    for variable, value in (
        (TOKEN_VARIABLE, empty),
        (TOKEN_FILE_VARIABLE, empty),
        (TOKEN_FILE_VARIABLE, str(token_file(tmp_path, empty))),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(variable, value)
            with pytest.raises(UnusableToken, match="empty"):
                connect("http://127.0.0.1:1")
    assert read_token() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_hub_without_a_token_does_not_face_the_network_unless_told(tmp_path, host):
    status, said = run_command("--host", host, "--port", str(free_port()), "--db", str(tmp_path / "db"))
    assert status == 1 and said.count("\n") == 1
    assert f"{host} is reachable" in said and "--token-file" in said and "--no-auth" in said
