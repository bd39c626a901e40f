"""A proxy before vLLM that records samples, and the samples in a run's batches, for comparison."""

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

# Both sides compute in float32 from the same weights, in other orders of summation. Its relative
# precision is 6e-8; log-probs of up to 10 nats through two layers differ by some 1e-6. Anything near
# 1e-4 would be a wrong token, mask, temperature or weight.
FLOAT32_TOLERANCE = 2e-5


class RecordingProxy:
    """Forwards everything to vLLM and keeps each completion as (request, choice)."""

    def __init__(self, target: str):
        self.exchanges: list[tuple[dict, dict]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {"Content-Type": "application/json"}
                answer = requests.request(self.command, target + self.path, data=body, headers=headers, timeout=300)
                if self.path == "/v1/completions" and answer.status_code == 200:
                    proxy.exchanges.append((json.loads(body), answer.json()["choices"][0]))
                self.send_response(answer.status_code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST = forward

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()


def turns_of(row):
    """(prompt ids, sampled ids, log-probs) of each turn of a training sequence."""
    start = 0
    for end in row["turn_ends"]:
        first = start + row["loss_mask"][start:end].index(1)
        assert all(row["loss_mask"][first:end]) and not any(row["loss_mask"][start:first])
        yield row["token_ids"][:first], row["token_ids"][first:end], row["logprobs"][first:end]
        start = end
    assert not any(row["loss_mask"][start:])


def as_float32(values):
    return struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values))
