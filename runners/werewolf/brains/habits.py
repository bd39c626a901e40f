"""Scripted players with one habit that no training opponent has: held-out opponents of an evaluation."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.game import Action, Decision, Observation, Option, Role, Side
from runners.werewolf.language.saying import fit_together
from runners.werewolf.language.speech import understand

_EXILES = frozenset({Decision.EXILE_VOTE, Decision.PK_VOTE})

Habit = Callable[[TableMemory, Observation, Action | None], Action | None]
"""Called before the answer, with None, to change the player's memory, and after it, to change the answer."""


class HabitBrain(ScriptedBrain):
    """A scripted player with the habits of its side.

    habits: (side, habit); the habits of a side apply in this order.
    """

    def __init__(self, rng: random.Random, habits: Sequence[tuple[Side, Habit]]) -> None:
        super().__init__(rng)
        self._habits = habits

    def act(self, observation: Observation) -> Action:
        habits = [habit for side, habit in self._habits if side is observation.side]
        self._memory.learn(observation.events, observation.seat, observation.deck)
        for habit in habits:
            habit(self._memory, observation, None)
        action = super().act(observation)
        for habit in habits:
            action = habit(self._memory, observation, action) or action
        return action


def self_kill(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """自刀: with a witch in the deck, wolves attack the first of their own in the first night, for her to save."""
    wolf_choice = seen.question.decision in (Decision.WOLF_TALK, Decision.WOLF_KILL)
    if action is None or not wolf_choice or seen.day > 1 or Role.WITCH not in seen.deck:
        return action
    if min(memory.team) not in seen.question.targets:
        return action
    return Action(min(memory.team), fit_together([f"自刀{min(memory.team)}号。"], seen.question.speech_chars))


def pose(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """悍跳: the first wolf claims to be the seer in every game."""
    if action is None and Role.SEER in seen.deck:
        memory.poser = min(memory.team)
    return action


def decoy(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """About one villager claims to be the seer on the first day, to be attacked in its place."""
    chosen = seen.role is Role.VILLAGER and seen.seat <= len(seen.deck) / seen.deck.count(Role.VILLAGER)
    checked = min(seat for seat in seen.living if seat != seen.seat)
    if action is None or not chosen or seen.day > 1 or not may_claim(seen, action):
        return action
    return claims(seen, action, f"我是预言家。第1夜查验{checked}号，是好人。")


def follow(memory: TableMemory, seen: Observation, action: Action | None) -> Action | None:
    """跟票: votes for the seat that most others accuse today, as a wolf even for a teammate."""
    if action is None or action.choice is Option.EXPLODE or seen.question.decision not in _EXILES:
        return action
    accused = Counter(seat for speaker, seat in memory.accusations if speaker != seen.seat)
    most = max((accused[seat] for seat in seen.question.targets), default=0)
    return Action(min(seat for seat in seen.question.targets if accused[seat] == most)) if most else action


def may_claim(seen: Observation, action: Action) -> bool:
    """Whether the answer is a public speech that does not claim to be the seer."""
    return (
        action.choice is None
        and bool(action.text)
        and seen.question.is_public
        and understand(action.text).claimed is not Role.SEER
    )


def claims(seen: Observation, action: Action, words: str) -> Action:
    """The answer with ``words`` before its speech, at the speech's limit."""
    return replace(action, text=(words + action.text)[: seen.question.speech_chars])


class PoserBrain(HabitBrain):
    """Wolves attack one of their own, who then claims to be the seer; on the good side a villager claims it."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, [(Side.WOLF, self_kill), (Side.WOLF, pose), (Side.GOOD, decoy)])


class FollowerBrain(HabitBrain):
    """Votes with the majority of accusations, on both sides."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, [(side, follow) for side in Side])
