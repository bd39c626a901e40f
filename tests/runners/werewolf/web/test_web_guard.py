"""Who may come in, from which page: names, origins, tokens, and what a page may load."""

import asyncio
import json

import aiohttp
import pytest
from yarl import URL

from runners.werewolf.__main__ import main
from runners.werewolf.web.command import _access_token, address_of
from runners.werewolf.web.guard import _cookie
from tests.support.werewolf.seat_players import open_table
from tests.support.werewolf.web_server import WebServer

TOKEN = "a-token-of-some-length"
PAGE = {"X-Werewolf": "1"}
TABLE = {"preset": "5p_tiny", "people": 1, "clock": 0}


@pytest.fixture
async def server(tmp_path):
    async with WebServer(tmp_path) as server:
        yield server


@pytest.fixture
async def guarded(tmp_path):
    async with WebServer(tmp_path, token=TOKEN, hosts=("werewolf.example",)) as server:
        yield server


async def status(server, path, method="GET", **request):
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.request(method, server.url + path, allow_redirects=False, **request) as response,
    ):
        return response.status


async def test_pages_load_nothing_from_elsewhere_and_run_no_script_of_their_text(server):
    async with aiohttp.ClientSession() as session:
        for path in ("/", "/game", "/seat/x", "/static/main.js", "/api/config", "/api/game?id=file:9"):
            async with session.get(server.url + path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Referrer-Policy"] == "no-referrer"


async def test_a_name_that_somebody_else_made_point_here_is_refused(server):
    assert await status(server, "/api/config", headers={"Host": "evil.example"}) == 403
    assert await status(server, "/api/config", headers={"Host": "127.0.0.1.evil.example"}) == 403
    assert await status(server, "/api/config", headers={"Host": "localhost:99"}) == 200
    assert await status(server, "/api/config") == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},  # as a form of another page can send it
        {"X-Werewolf": "1", "Origin": "http://evil.example"},
        {"X-Werewolf": "1", "Origin": "null"},
        {"X-Werewolf": "1", "Sec-Fetch-Site": "cross-site"},
        {"X-Werewolf": "1", "Content-Type": "text/plain"},
    ],
)
async def test_only_a_page_of_ours_may_change_anything(server, headers):
    headers = {"Content-Type": "application/json"} | headers
    assert await status(server, "/api/tables", "POST", headers=headers, data=json.dumps(TABLE)) == 403


async def test_a_page_of_ours_may(server):
    ours = PAGE | {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert await status(server, "/api/tables", "POST", headers=ours, json=TABLE) == 200


async def test_another_page_may_not_read_either(server):
    assert await status(server, "/api/config", headers={"Origin": "http://evil.example"}) == 403
    assert await status(server, "/api/config", headers={"Sec-Fetch-Site": "cross-site"}) == 403
    assert await status(server, "/", headers={"Sec-Fetch-Site": "cross-site"}) == 200  # a link may lead here


async def test_without_the_token_only_seats_and_the_pages_own_files_open(guarded):
    for path in ("/", "/api/config", "/api/game?id=file:1", "/api/tables", "/run/x"):
        assert await status(guarded, path) == 401
        assert await status(guarded, path, headers={"Authorization": "Bearer wrong"}) == 401
        assert await status(guarded, path, headers={"Cookie": f"{_cookie(TOKEN)}=wrong"}) == 401
    assert await status(guarded, "/?token=wrong") == 401
    assert await status(guarded, "/static/main.js") == 200
    assert await status(guarded, "/seat/anything") == 200
    assert await status(guarded, "/api/seat/anything") == 404
    assert await status(guarded, "/api/config", headers={"Authorization": f"Bearer {TOKEN}"}) == 200
    assert (
        await status(guarded, "/api/config", headers={"Host": "werewolf.example", "Authorization": f"Bearer {TOKEN}"})
        == 200
    )


async def test_a_seats_page_knows_a_guest_by_the_missing_token(guarded):
    own = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(guarded.url) as guest, aiohttp.ClientSession(guarded.url, headers=own) as host:
        _, (seat,) = await open_table(host)
        for session, without_token in ((host, False), (guest, True)):
            async with session.get(seat) as response:
                assert (await response.json())["guest"] is without_token


async def test_a_person_without_a_token_or_at_no_address_gets_a_page_and_a_program_a_reason(guarded, server):
    for where, path, wanted in ((guarded, "/", 401), (server, "/nowhere", 404)):
        async with aiohttp.ClientSession() as session:
            for accept, kind in (("text/html,*/*", "text/html"), ("application/json", "text/plain")):
                async with session.get(where.url + path, headers={"Accept": accept}) as response:
                    assert (response.status, response.content_type) == (wanted, kind)
                    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert await status(guarded, "/favicon.ico") == 200


async def test_a_report_is_shown_without_a_script_and_without_the_pages_rights(tmp_path):
    run = tmp_path / "demo" / "seed-1"
    run.mkdir(parents=True)
    for name, file in (
        ("config.yaml", run),
        ("evaluations.html", run),
        ("recipe.json", run.parent),
        ("report.html", run.parent),
    ):
        (file / name).write_text("<p>learned</p><script>alert(1)</script>")
    (tmp_path / "secret.html").write_text("no")
    async with WebServer(tmp_path, runs=tmp_path) as server, aiohttp.ClientSession() as session:
        for name in ("evaluations.html", "recipe-report.html"):
            async with session.get(f"{server.url}/report/seed-1@demo/{name}") as response:
                assert "learned" in await response.text()
                policy = response.headers["Content-Security-Policy"]
                assert "sandbox" in policy and "script" not in policy and "default-src 'none'" in policy
        for path in (
            "seed-1@demo/config.yaml",
            "seed-1@demo/..%2Freport.html",
            "seed-1@..%2Fdemo/x.html",
            "demo/report.html",
            "x@../secret.html",
        ):
            assert await status(server, f"/report/{path}") == 404


async def test_the_token_leaves_the_address_at_once(guarded):
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get(f"{guarded.url}/game?id=file%3A1&token={TOKEN}", allow_redirects=False) as response:
            assert response.status == 302 and TOKEN not in response.headers["Location"]
            assert "id=file" in response.headers["Location"]
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
        async with session.get(f"{guarded.url}/api/config") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/game?id=file:0",
        "/api/game?id=file:../../etc/passwd",
        "/api/game?id=run:../x",
        "/api/game?id=table:../../x",
        "/api/game?id=hub:x",
        "/api/game",
        "/api/run?name=..",
        "/api/table/x",
        "/api/seat/x/live",
    ],
)
async def test_nothing_outside_what_was_given_opens(server, path):
    assert await status(server, path) in (403, 404)


async def test_a_request_too_large_is_refused(server):
    big = TABLE | {"preset": "x" * 100_000}
    assert await status(server, "/api/tables", "POST", headers=PAGE, json=big) == 413


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        {"preset": "nothing"},
        {"people": 0},
        {"people": 10},
        {"people": True},
        {"people": 4, "side": "wolf"},
        {"clock": -1},
    ],
)
async def test_a_table_that_cannot_be_is_refused_with_a_reason(server, wanted):
    assert await status(server, "/api/tables", "POST", headers=PAGE, json=wanted) == 400


def _get(path, *headers):
    return b"\r\n".join([f"GET {path} HTTP/1.1".encode(), *headers, b"Connection: close", b"", b""])


def _post(body, content_type=b"application/json"):
    head = (b"POST /api/tables HTTP/1.1", b"Host: localhost", b"X-Werewolf: 1", b"Content-Type: " + content_type)
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"Connection: close", b"", body])


_HOST = b"Host: localhost"


@pytest.mark.parametrize(
    ("request_bytes", "with_token", "expected"),
    [
        (_get("/api/config", _HOST, b"Authorization: Bearer \xff"), True, 401),
        (_get("/api/config", _HOST, f"Cookie: {_cookie(TOKEN)}=".encode() + b"\xff"), True, 401),
        (_get("/?token=%FF", _HOST), True, 401),
        (_get("/api/config", b"Host: [::1"), False, 403),
        (_get("/api/config", b"Host: \xff"), False, 403),
        (_get("/api/config", _HOST, b"Origin: http://[::1"), False, 403),
        (_post(b'{"preset": [1]}'), False, 400),
        (_post(b"[" * 60_000), False, 400),
        (_post(b"{}", b"application/json; charset=nonsense"), False, 400),
        (_get("/api/game?id=file:" + "1" * 5_000, _HOST), False, 404),
        (_get("/static/../app.py", _HOST), False, 404),
        (_get("/static/..%2fapp.py", _HOST), False, 404),
    ],
)
async def test_malformed_input_is_refused_without_a_traceback(tmp_path, request_bytes, with_token, expected, caplog):
    async with WebServer(tmp_path, token=TOKEN if with_token else None) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_bytes)
        answer = await reader.read()
        writer.close()
    assert int(answer.split()[1]) == expected
    assert "Traceback" not in caplog.text


def test_the_printed_address_has_the_token_whatever_it_holds():
    token = "ab+c/d=e#f&g%41xxxx"
    assert URL(address_of("::1", 8765, token)).query["token"] == token
    assert address_of("localhost", 8765, None) == "http://localhost:8765/"


def test_a_token_is_needed_but_on_loopback_and_a_short_one_is_refused(tmp_path):
    token = tmp_path / "token"
    for bad in (b"short", b"\xff" * 20):
        token.write_bytes(bad)
        for host in ("127.0.0.1", "0.0.0.0"):  # behind a proxy, loopback may have one, too
            with pytest.raises(ValueError, match="at least 16"):
                _access_token([host], token)
    token.write_text("x" * 16)
    assert _access_token(["127.0.0.1"], token) == "x" * 16
    assert _access_token(["localhost", "127.0.0.1"], None) is None
    for exposed in (["0.0.0.0"], ["wolf.example.org", "127.0.0.1"]):  # the second: a proxy on this machine
        assert len(_access_token(exposed, None)) >= 24


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--public-host", "http://werewolf.example"), "'http://werewolf.example' is no host name"),
        (("--tokenizer", "nowhere"), "nowhere holds no tokenizer.json"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_at_the_start(monkeypatch, capsys, options, told):
    monkeypatch.setattr("sys.argv", ["werewolf", "web", "--port", "0", *options])
    try:
        code = main()
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2 and told in capsys.readouterr().err
