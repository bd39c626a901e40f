"""Prompts that compete: read from files, checked before anything is played, kept as a tree of edits."""

import difflib
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from configs.roles_and_decks import DECKS
from configs.section import ConfigError
from configs.sections.game import FRAME, PromptName, placeholders
from configs.werewolf import WerewolfConfig

TEMPLATE = "template"
"""The slot of an agent's prompt; agents find it as the resource ``prompt_template``, as agentlightning names it."""
GAME_SLOTS: tuple[str, ...] = get_args(PromptName)

# What may be filled in repeats ``runners/werewolf/prompts_zh/system.py``; a test holds them together.
_SYSTEM_REQUIRES = frozenset({"reply_format", "seat", "role"})
_SYSTEM_ALLOWS = _SYSTEM_REQUIRES | {"rules", "guidance", "side"}
_GUIDANCE_ALLOWS = frozenset({"seat", "role", "side"})


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
        """Why a text cannot stand here; None when it can. Names all wrong placeholders, and the valid ones."""
        if not text.strip():
            return "it is empty"
        try:
            used = self.names_in(text)
        except ValueError as error:
            return str(error)
        wrong = [("uses unknown", used - self.allowed), ("lacks", self.required - used)]
        problems = " and ".join(f"it {verb} {in_braces(names)}" for verb, names in wrong if names)
        return f"{problems}; valid: {in_braces(self.allowed) or 'none'}" if problems else None


Slots = Mapping[str, Slot]


def in_braces(names: frozenset[str]) -> str:
    """ "{role}, {seat}"."""
    return ", ".join(f"{{{name}}}" for name in sorted(names))


def format_names(text: str) -> frozenset[str]:
    """The names that ``str.format`` replaces. ValueError for what it refuses, or does more with than replace."""
    try:
        fields = [part for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise ValueError(f"its braces do not match ({error}); a literal brace is written twice") from error
    for _, name, form, conversion in fields:
        if not str(name).isidentifier() or form or conversion:
            raise ValueError(f"it has {{{name}}} with more than a plain name in it; a literal brace is written twice")
    return frozenset(str(name) for _, name, _, _ in fields)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One set of prompts.

    number: from 0, the incumbent. templates: slot -> text; others have what is built in. slot: the one in which it
    differs from its parent; None for several. parent: number of the candidate that it was made from. reason: why.
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
        return self.candidates[0]

    def entrants(self, slot: str) -> list[Candidate]:
        """The incumbent, and what the files have to replace this prompt."""
        return [self.incumbent, *(one for one in self.candidates if one.slot == slot and one.parent == 0)]

    def known(self, templates: Mapping[str, str]) -> Candidate | None:
        """The candidate of which a model reads the very same texts."""
        return next((one for one in self.candidates if _as_read(one.templates) == _as_read(templates)), None)

    def add(
        self, templates: Mapping[str, str], slot: str | None = None, parent: Candidate | None = None, reason: str = ""
    ) -> Candidate:
        """Add a candidate; one that is there already is returned as it is."""
        if known := self.known(templates):
            return known
        made = Candidate(len(self.candidates), dict(templates), slot, parent and parent.number, reason)
        self.candidates.append(made)
        return made

    def difference(self, candidate: Candidate, base: Candidate | None = None) -> str:
        """A unified diff of all texts against those of ``base``, by default the parent."""
        if base is None:
            base = Candidate(0, {}) if candidate.parent is None else self.candidates[candidate.parent]
        lines: list[str] = []
        for slot in sorted({*base.templates, *candidate.templates}):
            before, after = (one.templates.get(slot, "").strip().splitlines() for one in (base, candidate))
            lines += difflib.unified_diff(before, after, f"{base.name} {slot}", f"{candidate.name} {slot}", lineterm="")
        return "\n".join(lines)

    def in_order(self, parent: int | None = None, depth: int = 0) -> Iterator[tuple[int, Candidate]]:
        """(depth, candidate) of each, below its parent."""
        for candidate in self.candidates:
            if candidate.parent == parent:
                yield depth, candidate
                yield from self.in_order(candidate.number, depth + 1)

    def text(self) -> str:
        """The tree for reading: each candidate under its parent, with reason and difference."""
        blocks = []
        for depth, candidate in self.in_order():
            lines = [f"{candidate.name}  {candidate.reason}".rstrip(), *self.difference(candidate).splitlines()]
            blocks.append("\n".join("    " * depth + line for line in lines))
        return "\n\n".join([*blocks, *(f"refused: {one}" for one in self.refused)]) + "\n"


def _as_read(templates: Mapping[str, str]) -> dict[str, str]:
    """The texts that reach a model: a frame without ``{guidance}`` hides the guidance of all roles."""
    frame = templates.get(FRAME)
    hides = frame is not None and "guidance" not in placeholders(frame)
    return {slot: text.strip() for slot, text in templates.items() if slot == FRAME or not hides}


def agent_prompts(path: Path) -> tuple[Slots, Tree]:
    """The prompts of a file; the first one's placeholders are those of all. Raises ConfigError."""
    prompts = _read_prompts(path)
    where, first = prompts[0]
    try:
        names = format_names(first)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    slot = Slot(TEMPLATE, names, names, format_names)
    _check(slot, prompts)
    tree = Tree()
    incumbent = tree.add({TEMPLATE: first}, reason=where)
    for where, text in prompts[1:]:
        tree.add({TEMPLATE: text}, TEMPLATE, incumbent, where)
    return {TEMPLATE: slot}, tree


def game_slot(name: str, preset: str) -> Slot:
    """The frame of the system prompt, or a role's guidance. Raises ConfigError for what the preset does not deal."""
    if name == FRAME:
        return Slot(name, _SYSTEM_REQUIRES, _SYSTEM_ALLOWS, placeholders)
    roles = sorted({role.value for role in DECKS[preset]})
    if name not in roles:
        raise ConfigError(f"--prompts: {preset} has no prompt {name!r}; there are {', '.join((FRAME, *roles))}")
    return Slot(name, frozenset(), _GUIDANCE_ALLOWS, placeholders)


def game_prompts(folder: Path, config: WerewolfConfig, with_proposer: bool) -> tuple[Slots, Tree]:
    """The prompts of a folder of folders. Raises ConfigError."""
    beaten = {name: file for name in GAME_SLOTS if (file := folder / f"{name}.txt").is_file()}
    names = [name for name in GAME_SLOTS if name in beaten or (folder / name).is_dir()]
    if not names:
        raise ConfigError(f"--prompts: {folder} has neither folders nor .txt files named {', '.join(GAME_SLOTS)}")
    slots = {name: game_slot(name, config.game.preset) for name in names}
    files = config.game.prompts | beaten
    _check_guidance_is_read(folder, names, files.get(FRAME))
    first = {name: _text(files[name]) for name in names if name in files}
    rivals = {name: _read_prompts(folder / name) if (folder / name).is_dir() else [] for name in names}
    for name, slot in slots.items():
        _check(slot, [*([(str(files[name]), first[name])] if name in first else []), *rivals[name]])
        if with_proposer and name not in first:
            raise ConfigError(
                f"--prompts: the proposer needs a text to edit, and {folder / name}.txt is missing; write what is "
                f"built in with `python -m runners.werewolf.prompts_zh --preset {config.game.preset} --to {folder}`"
            )
    tree = Tree()
    incumbent = tree.add(first, reason="the prompts so far")
    for name, found in rivals.items():
        for where, text in found:
            tree.add(first | {name: text}, name, incumbent, where)
    return slots, tree


def _check_guidance_is_read(folder: Path, names: Sequence[str], frame: Path | None) -> None:
    """Raise ConfigError where guidance is searched under a frame that leaves it out: all its prompts would be equal."""
    unread = [str(folder / name) for name in names if name != FRAME]
    if frame is not None and unread and "guidance" not in placeholders(_text(frame)):
        raise ConfigError(
            f"--prompts: {', '.join(unread)} would reach nobody, since the frame {frame} has no {{guidance}}. Add "
            f"{{guidance}} to the frame, or take what is built in (--set game.prompts={{}})"
        )


def _read_prompts(path: Path) -> list[tuple[str, str]]:
    """(where it stands, text) of each prompt: of a folder's .txt files by name, or of one file.

    A file with lines ``---`` has its prompts between them; without, a prompt a line. Raises ConfigError.
    """
    if path.is_dir():
        found = [(str(file), _text(file)) for file in sorted(path.glob("*.txt"))]
    else:
        parts = re.split(r"^[ \t]*---[ \t]*$", text := _text(path), flags=re.MULTILINE)
        parts = parts if len(parts) > 1 else text.splitlines()
        found = [(f"{path}, prompt {n}", part.strip()) for n, part in enumerate(filter(str.strip, parts), start=1)]
    if not found:
        raise ConfigError(f"--prompts: {path} holds no prompt; write one a line, or several lines with --- between")
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: cannot read {file}: {error}") from error


def _check(slot: Slot, prompts: Sequence[tuple[str, str]]) -> None:
    if problems := [f"{where}: {problem}" for where, text in prompts if (problem := slot.problem_with(text))]:
        raise ConfigError("\n".join(problems))
