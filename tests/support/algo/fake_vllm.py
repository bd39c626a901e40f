"""Fakes of vLLM's HTTP interface: one inside the test, to attach to, and one that is started in vLLM's place."""

import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from algo.machine.ports import free_port
from configs.werewolf import WerewolfConfig
from tests.support.http_fake import HttpFake

SERVE = ["/reset_prefix_cache", "/update_weight_version", "/resume"]
PUSH = ["/pause?mode=wait", "/collective_rpc", *SERVE]


def serving_config(folder, model, /, **settings):
    """settings: of the section serving, or whole sections."""
    sections = {name: settings.pop(name) for name in list(settings) if name in WerewolfConfig.model_fields}
    own = {
        "run": {"name": "test", "dir": folder},
        "model": {"path": model} | sections.pop("model", {}),
        "rollout": {"context_tokens": 2048} | sections.pop("rollout", {}),
        "serving": {"port": free_port(), **settings},
    }
    return WerewolfConfig.model_validate(own | sections)


def port_of(endpoint):
    return int(endpoint.rpartition(":")[2].removesuffix("/v1"))


class FakeVllm(HttpFake):
    """A fake of vLLM's HTTP interface. Settings are attributes; ``calls`` are the POSTs in order."""

    def __init__(self):
        self.models = [{"id": "policy", "max_model_len": 4096}]
        self.dev_mode = True
        self.paused = False
        self.health = 200
        self.reload_answer = {"results": [None]}
        self.reload_status = 200
        self.masked_logprob = 0.0
        self.token_ids = [1]
        self.metrics = ""
        self.world_size = 1
        self.calls = []
        self.bodies = {}

    def app(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request):
        path = request.path
        if path == "/health":
            return web.Response(status=self.health)
        if path == "/v1/models":
            return web.json_response({"data": self.models})
        if path == "/metrics":
            return web.Response(text=self.metrics)
        if path != "/v1/completions" and not self.dev_mode:
            return web.Response(status=404)
        if path == "/is_paused":
            return web.json_response({"is_paused": self.paused})
        if path == "/get_world_size":
            return web.json_response({"world_size": self.world_size})
        if request.method != "POST":
            return web.Response(status=405)
        self.calls.append(request.path_qs)
        body = await request.json() if request.can_read_body else None
        self.bodies[path] = body
        if path == "/collective_rpc":
            return web.json_response(self.reload_answer, status=self.reload_status)
        if path == "/reset_prefix_cache":
            return web.json_response({"success": True})
        if path in ("/sleep", "/wake_up"):
            return web.Response()
        if path == "/v1/completions" and "logprob_token_ids" in body:
            found = {f"token_id:{token}": -float(token) for token in body["logprob_token_ids"]}
            choices = [{"index": index, "logprobs": {"top_logprobs": [found]}} for index in range(len(body["prompt"]))]
            return web.json_response({"choices": choices[::-1]})  # they come as they are done
        if path == "/v1/completions":
            entries = [None, *({str(token): {"logprob": -float(token)}} for token in body["prompt"][1:])]
            choice = {
                "prompt_logprobs": entries,
                "logprobs": {"token_logprobs": [self.masked_logprob]},
                "token_ids": self.token_ids,
            }
            return web.json_response({"choices": [choice]})
        return web.json_response({"status": path})


class StartedFakes:
    """Python processes that are started in vLLM's place, one for each port, and leave notes in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def command(self, config, launch=None):
        return [sys.executable, "-c", _STARTED, str(launch.port), str(self.folder), str(launch.model)]

    def notes(self, port):
        """Notes of the servers on this port, in order: ``start MODEL VERSION``, and the paths of POSTs."""
        file = self.folder / f"{port}.notes"
        return file.read_text().splitlines() if file.exists() else []

    def pid(self, port):
        """Process id of the server on this port that was started last."""
        return int((self.folder / f"{port}.pid").read_text())

    def kill(self, port):
        os.kill(self.pid(port), signal.SIGKILL)

    def ended(self, port):
        """Whether the server on this port that was started last has ended, or was before it could begin."""
        return not (self.folder / f"{port}.pid").exists() or not Path(f"/proc/{self.pid(port)}").exists()

    def tell(self, port, order):
        """``die PATH`` or ``refuse PATH``: at the next call of a path."""
        (self.folder / f"{port}.order").write_text(order)


_STARTED = """
import http.server, json, os, pathlib, sys
port, folder, model = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
orders = folder / f"{port}.order"
def note(text):
    with (folder / f"{port}.notes").open("a") as notes:
        notes.write(text + "\\n")
class Fake(http.server.BaseHTTPRequestHandler):
    def obey(self):
        order = orders.read_text().split() if orders.exists() else []
        if order and self.path.startswith(order[1]):
            orders.unlink()
            if order[0] == "die":
                os._exit(3)
            self.send_error(500)
            return False
        return True
    def answer(self, body):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        if not self.obey():
            return
        self.answer({} if self.path == "/health" else None)
    def do_POST(self):
        if not self.obey():
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        version = " " + json.loads(body)["new_version"] if self.path == "/update_weight_version" else ""
        note(self.path + version)
        answers = {"/collective_rpc": {"results": [None]}, "/reset_prefix_cache": {"success": True}}
        if self.path == "/v1/completions":
            prompt = json.loads(body)["prompt"]
            entries = [None, *({str(token): {"logprob": -float(token)}} for token in prompt[1:])]
            self.answer({"choices": [{"prompt_logprobs": entries}]})
        else:
            self.answer(answers.get(self.path, {}))
    def log_message(self, *_):
        pass
# Whole, and before the note that tests wait for: it may be killed right after that.
(folder / f"{port}.{os.getpid()}").write_text(str(os.getpid()))
(folder / f"{port}.{os.getpid()}").replace(folder / f"{port}.pid")
note(f"start {pathlib.Path(model).name} {os.environ['INITIAL_POLICY_VERSION'] or 'none'}")
http.server.ThreadingHTTPServer(("127.0.0.1", port), Fake).serve_forever()
"""
