"""What a search is given: prompts and tasks in files, all checked before anything else is imported or played."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from algo.prompt_search.candidates import Slot, Tree, check_prompts, format_names, read_prompts
from configs.roles_and_decks import DECKS
from configs.section import ConfigError
from configs.sections.game import FRAME, PromptName, placeholders
from configs.werewolf import WerewolfConfig

SLOT = "template"
"""Agents find the prompt as the resource ``prompt_template``, as in agentlightning's own examples."""

_FEWEST = 4


def split(inputs: Sequence[object], held_out: float, seed: int) -> tuple[list[object], list[object]]:
    """(tasks to search with, tasks to confirm a winner with); drawn by the seed. Raises ConfigError for too few."""
    shuffled = list(inputs)
    random.Random(seed).shuffle(shuffled)
    count = round(len(shuffled) * held_out)
    if min(count, len(shuffled) - count) < _FEWEST:
        raise ConfigError(
            f"{len(shuffled)} tasks are too few: {_FEWEST} to search with and {_FEWEST} others to confirm a winner "
            f"with are the least (--held-out is {held_out:g})"
        )
    return shuffled[count:], shuffled[:count]


def agent_prompts(path: Path) -> tuple[dict[str, Slot], Tree]:
    """The prompts of a file; the first one's placeholders are those of all. Raises ConfigError."""
    prompts = read_prompts(path)
    try:
        names = format_names(prompts[0][1])
    except ValueError as error:
        raise ConfigError(f"{prompts[0][0]}: {error}") from error
    slot = Slot(SLOT, names, names, format_names)
    check_prompts(slot, prompts)
    tree = Tree()
    incumbent = tree.add({SLOT: prompts[0][1]}, reason=prompts[0][0])
    for where, text in prompts[1:]:
        tree.add({SLOT: text}, SLOT, incumbent, where)
    return {SLOT: slot}, tree


# What may be filled in repeats ``runners/werewolf/prompts_zh/system.py``; a test holds them together.
_SYSTEM_REQUIRES = frozenset({"reply_format", "seat", "role"})
_SYSTEM_ALLOWS = _SYSTEM_REQUIRES | {"rules", "guidance", "side"}
_GUIDANCE_ALLOWS = frozenset({"seat", "role", "side"})


def game_slot(name: str, preset: str) -> Slot:
    """The frame of the system prompt, or a role's guidance. Raises ConfigError for what the preset does not deal."""
    roles = sorted({role.value for role in DECKS[preset]})
    if name == FRAME:
        return Slot(name, _SYSTEM_REQUIRES, _SYSTEM_ALLOWS, placeholders)
    if name not in roles:
        known = ", ".join((FRAME, *roles))
        raise ConfigError(f"--prompts: {preset} has no prompt {name!r} to search; there are {known}")
    return Slot(name, frozenset(), _GUIDANCE_ALLOWS, placeholders)


ALL_SLOTS: tuple[str, ...] = get_args(PromptName)


def game_prompts(folder: Path, config: WerewolfConfig, with_proposer: bool) -> tuple[dict[str, Slot], Tree]:
    """The prompts of a folder of folders. Raises ConfigError."""
    names = [name for name in ALL_SLOTS if (folder / name).is_dir() or (folder / f"{name}.txt").is_file()]
    if not names:
        raise ConfigError(f"--prompts: {folder} has neither folders nor .txt files named {', '.join(ALL_SLOTS)}")
    slots = {name: game_slot(name, config.game.preset) for name in names}
    _check_guidance_is_read(folder, names, config)
    first = {name: _text(file) for name, file in config.game.prompts.items() if name in slots}
    rivals = {}
    for name, slot in slots.items():
        if (file := folder / f"{name}.txt").is_file():
            first[name] = _text(file)
        rivals[name] = read_prompts(folder / name) if (folder / name).is_dir() else []
        check_prompts(slot, [(str(file), first[name])] if name in first else [])
        check_prompts(slot, rivals[name])
        if with_proposer and name not in first:
            raise ConfigError(
                f"--prompts: the proposer needs a text to edit, and {file} is missing; write what is built in with "
                f"`python -m runners.werewolf.prompts_zh --preset {config.game.preset} --to {folder}`"
            )
    tree = Tree()
    incumbent = tree.add(first, reason="the prompts so far")
    for name, found in rivals.items():
        for where, text in found:
            tree.add(first | {name: text}, name, incumbent, where)
    return slots, tree


def _check_guidance_is_read(folder: Path, names: Sequence[str], config: WerewolfConfig) -> None:
    """Raise ConfigError where guidance is searched under a frame that leaves it out: all its prompts would be equal."""
    frames = (folder / f"{FRAME}.txt", config.game.prompts.get(FRAME))
    frame = next((file for file in frames if file is not None and file.is_file()), None)
    unread = [str(folder / name) for name in names if name != FRAME]
    if frame is not None and unread and "guidance" not in placeholders(_text(frame)):
        raise ConfigError(
            f"--prompts: {', '.join(unread)} would reach nobody, since the frame {frame} has no {{guidance}}: all such "
            f"prompts are read as the same text. Add {{guidance}} to the frame, or take what is built in "
            f"(--set game.prompts={{}})"
        )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: cannot read {file}: {error}") from error
