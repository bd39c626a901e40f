"""``algo.serve`` with its pages, of which everything else is in ``tests/runners/werewolf/web``; vLLM is a fake."""

import asyncio
import json
import re
import shutil

import aiohttp
import pytest

from algo.serve import parse_arguments, serve, served_checkpoint
from tests.support.waiting import until


async def test_a_checkpoint_is_served_and_played_on_pages_that_end_with_it(fakes, tmp_path, tiny_model, capfd):
    checkpoint = tmp_path / "runs" / "first" / "checkpoints" / "step-000024"
    shutil.copytree(tiny_model, checkpoint / "huggingface")
    (checkpoint / "state.json").write_text(json.dumps({"run_id": "first-0123abcd", "step": 24, "policy_version": 7}))
    (tmp_path / "runs" / "first" / "config.yaml").write_text("run: {name: first}\n")
    config, version = served_checkpoint(parse_arguments([str(tmp_path / "runs" / "first")]))
    serving, said = asyncio.create_task(serve(config, version, ["--port", "0"])), []

    def address():
        assert not serving.done()
        said.append(capfd.readouterr().out)
        return re.search("in a browser: (.*)\n", "".join(said))

    url = (await until(address, 150))[1]
    assert fakes.notes(config.serving.port) == ["start huggingface 7"]
    async with aiohttp.ClientSession(url) as http, http.get("/api/tables") as answer:
        assert answer.status == 200 and "first" in await answer.text()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert fakes.ended(config.serving.port)
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(url)
