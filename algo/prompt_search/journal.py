"""What a search has been told so far, on disk: the same program run again asks for nothing twice.

A search follows from its plan and the answers that it got: rewards of plays, replies of the proposer. So it is taken up
by running it again from the start, with these answers at hand.
"""

import json
import os
from pathlib import Path
from typing import Any

from configs.section import ConfigError

_PLAN = "plan"


class Journal:
    """Answers by key, one JSON object a line, each on disk before it is used. A line that was cut off is dropped."""

    def __init__(self, path: Path):
        self._path = path
        self._answers: dict[str, Any] = {}
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            entry = json.loads(line)
            self._answers[entry["key"]] = entry["answer"]
        self._file = path.open("ab")
        self._file.truncate(len(whole))

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> Any | None:
        """The answer, if there is one."""
        return self._answers.get(key)

    def put(self, key: str, answer: Any) -> None:
        """Keep an answer; what JSON can hold, and not None."""
        line = json.dumps({"key": key, "answer": answer}, ensure_ascii=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._answers[key] = answer

    def check_plan(self, plan: dict[str, Any]) -> None:
        """Raise ConfigError when the journal is that of a search with another plan; the first plan is kept."""
        known = self.get(_PLAN)
        if known is None:
            self.put(_PLAN, plan)
            return
        changed = sorted(name for name in {*known, *plan} if known.get(name) != plan.get(name))
        if changed:
            raise ConfigError(
                f"{self._path} is the journal of a search with other {', '.join(changed)}: resume it with what it was "
                f"begun with, or begin another with --resume never"
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
