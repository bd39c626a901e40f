"""Scripted players with tricks that exploit scripted players, and the gain of these tricks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations

from runners.werewolf.brains import NewBrain
from runners.werewolf.brains.habits import Habit, HabitBrain, claims, decoy, may_claim, pose, self_kill
from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.scripted import BALLOTS
from runners.werewolf.game import Action, Observation, Option, Preset, Result, Role, Side
from runners.werewolf.local import play_locally, seeded_brains
from runners.werewolf.prompts_zh.names import ROLE_NAMES


def _late_pose(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """Another does from the second day on, where no wolf has."""
    memory.resolves["send a poser", 0] = memory.resolves["pose", 0] = 1.0
    if action is None and seen.day > 1 and memory.poser is None and not memory.team & memory.claims.keys():
        memory.poser = max(memory.team - memory.gone)
    return action


def _all_pose(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    if action is None:
        memory.poser = seen.seat
    return action


def _god_claims(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """Each wolf calls itself another of the hidden 神职 in every speech."""
    gods = [role for role in (Role.HUNTER, Role.WITCH, Role.GUARD) if role in seen.deck]
    if not gods or action is None or not may_claim(seen, action):
        return action
    return claims(seen, action, f"我是{ROLE_NAMES[gods[sorted(memory.team).index(seen.seat) % len(gods)]]}。")


def _false_witch(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """The last wolf calls itself the witch, who saved the first."""
    mate = min(memory.team)
    if Role.WITCH not in seen.deck or seen.seat != max(memory.team) or action is None or not may_claim(seen, action):
        return action
    peaceful = seen.seat != mate and all(day > 1 for day, _ in memory.night_deaths.values())
    return claims(seen, action, f"我是女巫。我救了{mate}号，是银水。" if peaceful else "我是女巫。")


def _silent(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    return action and (replace(action, text="") if seen.question.is_public else action)


def _block_vote(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """All wolves vote for the same good seat: the seer, else whom most others accuse."""
    if action is None or action.choice is Option.EXPLODE or seen.question.decision not in BALLOTS:
        return action
    accused = Counter(seat for speaker, seat in memory.accusations if speaker not in memory.team)
    targets = [seat for seat in seen.question.targets if seat not in memory.team]
    return Action(max(targets, key=lambda seat: (seat in memory.claims, accused[seat], seat), default=action.choice))


def _explode_twice(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """A wolf explodes as soon as the seer has spoken, on the first two days."""
    explodes = Option.EXPLODE in seen.question.options and seen.day < 3 and memory.claims.keys() - memory.team
    return action and (Action(Option.EXPLODE) if explodes else action)


def _hidden_seer(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """The seer says nothing of itself until it has found a wolf or is exiled."""
    hides = seen.role is Role.SEER and Side.WOLF not in memory.found.values() and seen.question.is_public
    return replace(action, text="我是好人。") if action and hides and action.text else action


TRICKS: Mapping[str, tuple[Side, Habit]] = {
    "self-kill": (Side.WOLF, self_kill),
    "pose": (Side.WOLF, pose),
    "late pose": (Side.WOLF, _late_pose),
    "god claims": (Side.WOLF, _god_claims),
    "false witch": (Side.WOLF, _false_witch),
    "all pose": (Side.WOLF, _all_pose),
    "silent": (Side.WOLF, _silent),
    "block vote": (Side.WOLF, _block_vote),
    "explode twice": (Side.WOLF, _explode_twice),
    "decoy": (Side.GOOD, decoy),
    "hidden seer": (Side.GOOD, _hidden_seer),
}
SMALLEST = 7
"""Presets of so many seats or more: at a smaller table a lone wolf has few tricks, and posing always pays."""
CELLS: tuple[tuple[str, ...], ...] = tuple(
    names for count in (1, 2) for names in combinations(TRICKS, count) if len({TRICKS[name][0] for name in names}) == 1
)
"""Each trick, and each pair of tricks of one side."""


def _good_wins(preset: Preset, wolf: str | NewBrain, good: str | NewBrain, seed: int) -> bool:
    brains = seeded_brains(preset, seed, {Side.WOLF: wolf, Side.GOOD: good})
    return play_locally(preset, seed, brains).result is Result.GOOD


_usual = cache(_good_wins)


def changes_by_deal(preset: Preset, names: Sequence[str], other: str, deals: Sequence[int]) -> list[int]:
    """For each deal, 1 if the side with the tricks wins against ``other`` only by them, -1 if only without, else 0."""
    player = partial(HabitBrain, habits=[TRICKS[name] for name in names])
    if TRICKS[names[0]][0] is Side.GOOD:
        return [_good_wins(preset, other, player, seed) - _usual(preset, other, "scripted", seed) for seed in deals]
    return [_usual(preset, "scripted", other, seed) - _good_wins(preset, player, other, seed) for seed in deals]


def mean_and_error(changes: Sequence[int]) -> tuple[float, float]:
    """(mean, its standard error)."""
    mean = sum(changes) / len(changes)
    return mean, math.sqrt(sum((change - mean) ** 2 for change in changes)) / len(changes)
