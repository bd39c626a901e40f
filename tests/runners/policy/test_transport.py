"""Requests to a policy's server that is away, slow, or wants more than to be asked."""

import asyncio
import gzip

import pytest
from aiohttp import web

from runners.policy import transport
from runners.policy.transport import NoAnswer, Refused, Transport


@pytest.fixture
async def server():
    """(base URL, what answers there: to be replaced, paths that were asked)."""
    asked = []

    async def answer(request):
        asked.append(request.path)
        return await box["answer"](request)

    box = {}
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", box, asked
    await runner.cleanup()


@pytest.fixture
async def sender():
    sender = Transport(patience_seconds=0)
    yield sender
    await sender.close()


async def test_no_more_is_read_of_an_answer_than_one_can_need(server, sender, monkeypatch):
    monkeypatch.setattr(transport, "MOST_BYTES", 2**20)
    url, box, asked = server
    written = 0

    async def endless(request):
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 2**16)
            written += 2**16

    box["answer"] = endless
    async with asyncio.timeout(30):
        with pytest.raises(Refused, match="longer than 1 MiB"):
            await sender.send("POST", f"{url}/v1/completions", {})
    assert len(asked) == 1 and written < 2**26  # what the sockets hold


async def test_a_small_answer_does_not_become_a_large_one(server, sender):
    url, box, _ = server

    async def bomb(request):
        assert "gzip" not in request.headers.get("Accept-Encoding", "")
        return web.Response(body=gzip.compress(b"[" + b" " * 2**26 + b"]"), headers={"Content-Encoding": "gzip"})

    box["answer"] = bomb
    with pytest.raises(ValueError):
        await sender.send("POST", f"{url}/v1/completions", {})


async def test_a_redirect_is_refused(server, sender):
    url, box, asked = server

    async def redirect(request):
        raise web.HTTPTemporaryRedirect("/v1/agl/queues/rollouts/dequeue")

    box["answer"] = redirect
    with pytest.raises(Refused, match=r"307.*redirects"):
        await sender.send("POST", f"{url}/v1/completions", {})
    assert asked == ["/v1/completions"]


async def test_a_server_that_is_away_for_a_moment_is_asked_again_and_one_that_stays_away_is_not(server):
    url, box, asked = server

    async def failing_twice(request):
        return web.json_response({"error": {"message": "starting"}}, status=503 if len(asked) < 3 else 200)

    box["answer"] = failing_twice
    patient, impatient = Transport(patience_seconds=60), Transport(patience_seconds=0.1)
    assert (await patient.send("POST", url, {}))[0] and len(asked) == 3
    asked.clear()
    with pytest.raises(NoAnswer, match="503: starting"):
        await impatient.send("POST", url, {})
    assert len(asked) == 1
    for sender in (patient, impatient):
        await sender.close()
