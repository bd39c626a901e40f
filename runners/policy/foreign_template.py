"""A chat template from a server, rendered where it can do no harm: in a process of its own, with a deadline.

A template is a program, and a server may send any: one that loops for ever would freeze every game of a runner. Jinja's
sandbox keeps it from files and Python's inside, and not from taking time or memory. A thread could be given up, but not
ended, and takes the interpreter from all others; a process can be killed, and limited. It is fed over pipes, knows no
secret of ours, and needs 20 MB and a tenth of a second to start.
"""

import contextlib
import json
import select
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jinja2 import TemplateError

from runners.errors import UnusableTokenizer
from runners.policy import template_process

_SECONDS = 10.0
_SECONDS_TO_START = 20.0


class ForeignTemplate:
    """Renders conversations by a template; each call blocks until that is done, or has taken too long.

    known: variables besides those of a call, such as special tokens. seconds: how long a rendering may take.
    """

    def __init__(self, template: str, known: Mapping[str, Any], seconds: float | None = None):
        self._introduction = {"template": template, "known": dict(known)}
        self._seconds = _SECONDS if seconds is None else seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], Any] = lambda: None
        self.executor = ThreadPoolExecutor(1, "chat-template")
        """The thread to call ``render`` in where an event loop must not wait; one, since there is one process."""

    def render(self, **variables: Any) -> str:
        """The text. Raises TemplateError for what the template refuses, UnusableTokenizer where it takes too long."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", template_process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,  # Ctrl-C is for us
            )
            self._end = weakref.finalize(self, _end, self._process)
            self._ask(self._introduction)
        return self._ask({"variables": variables})

    def close(self) -> None:
        """End the process, whatever it does; ``render`` starts another. Without this call it ends with us."""
        self._process = None
        self._end()

    def _ask(self, request: Mapping[str, Any]) -> str:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        line = b""
        try:
            process.stdin.write(json.dumps({**request, "seconds": self._seconds}).encode() + b"\n")
            process.stdin.flush()
            # It ends itself when the time is over; this is for one that cannot.
            if select.select([process.stdout], [], [], self._seconds + _SECONDS_TO_START)[0]:
                line = process.stdout.readline()
        except BrokenPipeError:
            pass
        if not line.endswith(b"\n"):
            self.close()
            raise UnusableTokenizer(
                f"the chat template of the policy's server was stopped: it wants more than {self._seconds:g} s or "
                f"{template_process.MOST_MEMORY_BYTES // 2**20} MiB to render a conversation"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer["text"]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait()
