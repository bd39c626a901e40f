"""Renders a chat template that somebody else wrote: a process of its own, which can be ended at any time.

Run by ``runners.policy.foreign_template`` as a script, isolated and with an empty environment, so it imports nothing of
ours. A line of JSON in, a line of JSON out: the template first, with what it may know, then one conversation after the
other.
"""

import json
import resource
import signal
import sys
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_MEMORY_BYTES = 1024**3
MOST_CHARACTERS = 4_000_000


class Generation(Extension):
    """``{% generation %}``, which marks what a model wrote for those who train on rendered text: shown as it is."""

    tags = {"generation"}  # noqa: RUF012  (jinja's)

    def parse(self, parser: Any) -> Any:
        """The statements up to ``{% endgeneration %}``."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def compiled(template: str) -> jinja2.Template:
    """The template, as transformers compiles it (``transformers.utils.chat_template_utils``). Raises TemplateError."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment.from_string(template)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def main() -> None:
    """Answer until the input ends; the process dies of its alarm when a template takes too long."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    template: jinja2.Template | None = None
    known: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        try:
            if template is None:
                template, known = compiled(request["template"]), request["known"]
                text = ""
            else:
                text = template.render(**{**known, **request["variables"]})
            if len(text) > MOST_CHARACTERS:
                raise jinja2.TemplateError(f"it renders more than {MOST_CHARACTERS} characters")
            answer = {"text": text}
        except Exception as error:  # a template may raise whatever it likes
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
