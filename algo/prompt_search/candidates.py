"""Candidates for the best prompt: read from files, checked before anything is played, kept as a tree of edits."""

import difflib
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from configs.section import ConfigError

BETWEEN_PROMPTS = "---"
"""A line of its own between the prompts of a file."""


@dataclass(frozen=True)
class Slot:
    """A prompt that may be replaced by another text. required, allowed: placeholders that a text must, and may, have.

    names_in: finds the placeholders in a text; raises ValueError for a text that cannot be filled in.
    """

    name: str
    required: frozenset[str]
    allowed: frozenset[str]
    names_in: Callable[[str], frozenset[str]]

    def problem_with(self, text: str) -> str | None:
        """Why a text cannot stand here; None when it can. Names all placeholders that are wrong, and the valid ones."""
        if not text.strip():
            return "it is empty"
        try:
            used = self.names_in(text)
        except ValueError as error:
            return str(error)
        problems = []
        if unknown := used - self.allowed:
            problems.append(f"it uses unknown {in_braces(unknown)}")
        if missing := self.required - used:
            problems.append(f"it lacks {in_braces(missing)}")
        return f"{' and '.join(problems)}; valid: {in_braces(self.allowed) or 'none'}" if problems else None


def in_braces(names: frozenset[str]) -> str:
    """ "{role}, {seat}"."""
    return ", ".join(f"{{{name}}}" for name in sorted(names))


def format_names(text: str) -> frozenset[str]:
    """The names that ``str.format`` replaces. ValueError for what it would refuse, or do more with than replace."""
    try:
        fields = [part for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise ValueError(f"its braces do not match ({error}); a literal brace is written twice") from error
    for _, name, form, conversion in fields:
        if not str(name).isidentifier() or form or conversion:
            raise ValueError(f"it has {{{name}}} with more than a plain name in it; a literal brace is written twice")
    return frozenset(str(name) for _, name, _, _ in fields)


@dataclass(frozen=True)
class Candidate:
    """One set of prompts.

    number: counts them, from 0, the one that all are measured against.
    templates: slot -> text; slots that are absent have what is built in.
    slot: the one in which it differs from its parent; None for several.
    parent: number of the candidate that it was made from. reason: why it was made, by whoever made it.
    """

    number: int
    templates: Mapping[str, str]
    slot: str | None = None
    parent: int | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """ "#3"."""
        return f"#{self.number}"


@dataclass
class Tree:
    """All candidates of a search, in the order in which they were made; the first is the incumbent."""

    candidates: list[Candidate] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def incumbent(self) -> Candidate:
        """What was used so far."""
        return self.candidates[0]

    def known(self, templates: Mapping[str, str]) -> Candidate | None:
        """The candidate that has the very same texts."""
        stripped = {slot: text.strip() for slot, text in templates.items()}
        for candidate in self.candidates:
            if {slot: text.strip() for slot, text in candidate.templates.items()} == stripped:
                return candidate
        return None

    def add(
        self, templates: Mapping[str, str], slot: str | None = None, parent: Candidate | None = None, reason: str = ""
    ) -> Candidate:
        """Add a candidate; one that is there already is returned as it is."""
        if known := self.known(templates):
            return known
        made = Candidate(len(self.candidates), dict(templates), slot, None if parent is None else parent.number, reason)
        self.candidates.append(made)
        return made

    def difference(self, candidate: Candidate, base: Candidate | None = None) -> str:
        """A unified diff of all texts against those of ``base``, by default the parent."""
        if base is None:
            base = self.candidates[candidate.parent] if candidate.parent is not None else Candidate(0, {})
        lines: list[str] = []
        for slot in sorted({*base.templates, *candidate.templates}):
            before, after = (one.templates.get(slot, "").strip().splitlines() for one in (base, candidate))
            lines += difflib.unified_diff(before, after, f"{base.name} {slot}", f"{candidate.name} {slot}", lineterm="")
        return "\n".join(lines)

    def text(self) -> str:
        """The tree for reading: every candidate under its parent, with reason and difference."""
        blocks = []

        def show(candidate: Candidate, depth: int) -> None:
            said = f"{candidate.name}  {candidate.reason}".rstrip()
            body = self.difference(candidate) or "(what is built in)"
            indent = "    " * depth
            blocks.append("\n".join(indent + line for line in [said, *body.splitlines()]))
            for child in self.candidates:
                if child.parent == candidate.number:
                    show(child, depth + 1)

        for candidate in self.candidates:
            if candidate.parent is None:
                show(candidate, 0)
        return "\n\n".join([*blocks, *(f"refused: {one}" for one in self.refused)]) + "\n"


def read_prompts(path: Path) -> list[tuple[str, str]]:
    """(where it stands, text) of every prompt: of a folder's .txt files by name, or of one file.

    A file with lines ``---`` has its prompts between them; without, a prompt a line. Raises ConfigError.
    """
    try:
        if path.is_dir():
            found = [(str(file), file.read_text(encoding="utf-8").strip()) for file in sorted(path.glob("*.txt"))]
        else:
            text = path.read_text(encoding="utf-8")
            parts: Sequence[str] = text.splitlines()
            if any(line.strip() == BETWEEN_PROMPTS for line in parts):
                parts = re.split(rf"^[ \t]*{BETWEEN_PROMPTS}[ \t]*$", text, flags=re.MULTILINE)
            found = [(f"{path}, prompt {n}", part.strip()) for n, part in enumerate(filter(str.strip, parts), start=1)]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: cannot read {path}: {error}") from error
    if not found:
        raise ConfigError(f"--prompts: {path} holds no prompt; write one a line, or several lines with --- between")
    return found


def check_prompts(slot: Slot, prompts: Sequence[tuple[str, str]]) -> None:
    """Raise ConfigError that names all prompts which cannot stand in the slot, and why."""
    problems = [f"{where}: {problem}" for where, text in prompts if (problem := slot.problem_with(text))]
    if problems:
        raise ConfigError("\n".join(problems))
