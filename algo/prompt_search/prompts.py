"""Candidate prompts: read from files, validated before the first rollout, kept as a tree of edits."""

import difflib
import hashlib
import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from configs.roles_and_decks import DECKS, Role
from configs.section import ConfigError
from configs.sections.game import FRAME, placeholders
from configs.werewolf import WerewolfConfig

TEMPLATE = "template"
"""The slot of an agent's prompt, agentlightning's resource ``prompt_template``."""
GAME_SLOTS: tuple[str, ...] = (FRAME, *(role.value for role in Role))

# The placeholders of ``runners/werewolf/prompts_zh/system.py``; a test compares both.
_FRAME_REQUIRES = frozenset({"reply_format", "seat", "role"})
_FRAME_ALLOWS = _FRAME_REQUIRES | {"rules", "guidance", "side"}
_GUIDANCE_ALLOWS = frozenset({"seat", "role", "side"})


@dataclass(frozen=True)
class Slot:
    """A searched prompt. required, allowed: placeholders that a text must, and may, have.

    names_in: returns the placeholders of a text; raises ValueError for an invalid one.
    """

    name: str
    required: frozenset[str]
    allowed: frozenset[str]
    names_in: Callable[[str], frozenset[str]]

    def problem_with(self, text: str) -> str:
        """Problem of a text, naming all wrong placeholders and the valid ones; empty for a valid text."""
        if not text.strip():
            return "it is empty"
        try:
            used = self.names_in(text)
        except ValueError as error:
            return f"its braces are invalid ({error}); write a literal brace twice"
        wrong = [("uses unknown", used - self.allowed), ("lacks", self.required - used)]
        problems = " and ".join(f"it {verb} {in_braces(names)}" for verb, names in wrong if names)
        return problems and f"{problems}; valid: {in_braces(self.allowed) or 'none'}"

    def check(self, prompts: Sequence[tuple[str, str]]) -> None:
        """Raise ConfigError for invalid texts. prompts: (location, text) of each."""
        if problems := [f"{where}: {problem}" for where, text in prompts if (problem := self.problem_with(text))]:
            raise ConfigError("\n".join(problems))


Slots = Mapping[str, Slot]


def in_braces(names: frozenset[str]) -> str:
    """ "{role}, {seat}"."""
    return ", ".join(f"{{{name}}}" for name in sorted(names))


def format_names(text: str) -> frozenset[str]:
    """The names that ``str.format`` replaces. Raises ValueError for anything but plain names."""
    names = set()
    for _, name, form, conversion in string.Formatter().parse(text):
        if name is not None:
            if form or conversion or not name.isidentifier():
                raise ValueError(f"the placeholder {{{name}}} must be a plain name, without a format or conversion")
            names.add(name)
    return frozenset(names)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One set of prompts.

    number: 0 is the baseline. templates: slot -> text; missing slots use the built-in text. slot: the one that differs
    from the parent; None for several. parent: number of the edited candidate. reason: of the edit.
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

    @property
    def digest(self) -> int:
        """Of the templates. A search that is resumed with other limits of the proposer may number them otherwise."""
        texts = json.dumps(dict(self.templates), sort_keys=True).encode()
        return int.from_bytes(hashlib.blake2b(texts, digest_size=4).digest())

    @property
    def title(self) -> str:
        """ "#3, from #1: the answers were too long"."""
        return f"{self.name}{'' if self.parent is None else f', from #{self.parent}'}: {self.reason}"


@dataclass
class Tree:
    """All candidates of a search, in order of creation; the first is the baseline. rejected: edits and problems."""

    candidates: list[Candidate] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)

    @property
    def incumbent(self) -> Candidate:
        return self.candidates[0]

    def entrants(self, slot: str) -> list[Candidate]:
        """The baseline, and the alternatives of this prompt from files."""
        return [self.incumbent, *(one for one in self.candidates if one.slot == slot and one.parent == 0)]

    def known(self, templates: Mapping[str, str]) -> Candidate | None:
        """The candidate with equal texts."""
        return next((one for one in self.candidates if one.templates == templates), None)

    def add(
        self, templates: Mapping[str, str], slot: str | None = None, parent: Candidate | None = None, reason: str = ""
    ) -> Candidate:
        """Add a candidate, or return the one with equal texts."""
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
            before, after = (one.templates.get(slot, "").splitlines() for one in (base, candidate))
            lines += difflib.unified_diff(before, after, f"{base.name} {slot}", f"{candidate.name} {slot}", lineterm="")
        return "\n".join(lines)


def agent_prompts(path: Path) -> tuple[Slots, Tree]:
    """The prompts of a file; all must have the placeholders of the first. Raises ConfigError."""
    first, *others = _read_prompts(path)
    try:
        names = format_names(first[1])
    except ValueError:
        names = frozenset()  # rejected with the others
    return _compete({TEMPLATE: Slot(TEMPLATE, names, names, format_names)}, {TEMPLATE: first}, {TEMPLATE: others})


def game_slot(name: str, preset: str, *, shows_guidance: bool = False) -> Slot:
    """The frame of the system prompt, or a role's guidance. Raises ConfigError for a role outside the preset.

    shows_guidance: whether the frame must contain ``{guidance}``, without which guidance has no effect.
    """
    if name == FRAME:
        required = _FRAME_REQUIRES | {"guidance"} if shows_guidance else _FRAME_REQUIRES
        return Slot(name, required, _FRAME_ALLOWS, placeholders)
    roles = sorted({role.value for role in DECKS[preset]})
    if name not in roles:
        raise ConfigError(f"--prompts: {preset} has no prompt {name!r}; there are {', '.join((FRAME, *roles))}")
    return Slot(name, frozenset(), _GUIDANCE_ALLOWS, placeholders)


def game_prompts(folder: Path, config: WerewolfConfig, with_proposer: bool) -> tuple[Slots, Tree]:
    """The prompts of a folder of folders. Raises ConfigError."""
    preset, configured = config.game.preset, config.game.prompts
    baselines = {name: file for name in GAME_SLOTS if (file := folder / f"{name}.txt").is_file()}
    rivals = {
        name: _read_prompts(folder / name) if (folder / name).is_dir() else []
        for name in GAME_SLOTS
        if name in baselines or (folder / name).is_dir()
    }
    if not rivals:
        raise ConfigError(f"--prompts: {folder} has neither folders nor .txt files named {', '.join(GAME_SLOTS)}")
    slots = {name: game_slot(name, preset, shows_guidance=set(rivals) != {FRAME}) for name in rivals}
    if FRAME not in slots and (frame := configured.get(FRAME)):
        game_slot(FRAME, preset, shows_guidance=True).check([(str(frame), _text(frame))])
    files = {name: file for name, file in (configured | baselines).items() if name in slots}
    if with_proposer and (missing := [name for name in slots if name not in files]):
        raise ConfigError(
            f"--prompts: the proposer needs texts to edit, and {folder} has no {', '.join(missing)}.txt; write "
            f"the built-in texts with `python -m runners.werewolf.prompts_zh --preset {preset} --to {folder}`"
        )
    return _compete(slots, {name: (str(file), _text(file)) for name, file in files.items()}, rivals)


def _compete(
    slots: Slots, first: Mapping[str, tuple[str, str]], rivals: Mapping[str, Sequence[tuple[str, str]]]
) -> tuple[Slots, Tree]:
    """The slots, with the baseline and its rivals as a tree. first, rivals: location and text of each."""
    for name, slot in slots.items():
        slot.check([*([first[name]] if name in first else []), *rivals[name]])
    tree, templates = Tree(), {name: text for name, (_, text) in first.items()}
    incumbent = tree.add(templates, reason="the baseline")
    for name, prompts in rivals.items():
        for where, text in prompts:
            tree.add(templates | {name: text}, name, incumbent, where)
    return slots, tree


def _read_prompts(path: Path) -> list[tuple[str, str]]:
    """(location, text) of each prompt: of a folder's .txt files by name, or of one file.

    In a file, lines ``---`` separate prompts; without them each line is a prompt. Raises ConfigError.
    """
    if path.is_dir():
        found = [(str(file), _text(file)) for file in sorted(path.glob("*.txt"))]
    else:
        parts = re.split(r"^[ \t]*---[ \t]*$", text := _text(path), flags=re.MULTILINE)
        parts = parts if len(parts) > 1 else text.splitlines()
        found = [(f"{path}, prompt {n}", part.strip()) for n, part in enumerate(filter(str.strip, parts), start=1)]
    if not found:
        raise ConfigError(f"--prompts: {path} has no prompt; write one per line, or --- lines between")
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig").strip()  # Windows' editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: cannot read {file}: {error}") from error
