"""Scripted players with one trick each, which a side that knows how scripted players think would try."""

import math
import random
from collections import defaultdict

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import SPEECHES, Action, Decision, Observation, Role, Side
from runners.werewolf.language.speech import understand
from runners.werewolf.prompts_zh.names import ROLE_NAMES
from tests.support.werewolf.speech_classifier import SpeechClassifier


class KnifesItself(ScriptedBrain):
    """As a wolf, hits one of the wolves in the first night, for the witch to save."""

    def act(self, observation: Observation) -> Action:
        action = super().act(observation)
        request = observation.request
        if request.decision not in (Decision.WOLF_TALK, Decision.WOLF_KILL) or request.day > 1:
            return action
        own = [seat for seat in request.targets if seat in self._memory.team]
        text = f"自刀{own[0]}号。" if own and request.speaks else ""
        return Action(own[0], text) if own else action


class ClaimsToBeAGod(ScriptedBrain):
    """As a wolf, calls itself the hunter, the witch or the guard in every speech, each wolf another."""

    def act(self, observation: Observation) -> Action:
        action = super().act(observation)
        request = observation.request
        if not request.speaks or request.decision is Decision.WOLF_TALK or observation.side is not Side.WOLF:
            return action
        gods = [role for role in (Role.HUNTER, Role.WITCH, Role.GUARD) if role in observation.deck]
        if not gods or action.choice is not None or understand(action.text).claimed is Role.SEER:
            return action
        role = gods[sorted(self._memory.team).index(observation.seat) % len(gods)]
        return Action(None, f"我是{ROLE_NAMES[role]}。{action.text}"[: request.speech_chars])


class AlwaysPoses(ScriptedBrain):
    """As a wolf, sees to it that one of the wolves poses as the seer in every game."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._memory.resolves |= {("send a poser", 0): 0.0, ("pose", 0): 0.0}


class ReadsPhrases(ScriptedBrain):
    """As a good seat, suspects whoever sounds like a wolf to a classifier of speeches."""

    def __init__(self, rng: random.Random, classifier: SpeechClassifier) -> None:
        super().__init__(rng)
        self._classifier = classifier
        self._heard: defaultdict[int, float] = defaultdict(float)

    def act(self, observation: Observation) -> Action:
        spoken = [event for event in observation.events if event.kind in SPEECHES and event.text]
        if observation.side is Side.GOOD and spoken:
            for event, score in zip(spoken, self._classifier.scores([event.text for event in spoken]), strict=True):
                self._heard[event.seat] += float(score)
            for seat, sound in self._heard.items():
                self._memory.hunches[seat] = 0.5 + 2.0 * math.tanh(sound)
        return super().act(observation)


class BelievesPlans(ScriptedBrain):
    """As a good seat, believes to be the seer whoever says whom it will check next (警徽流), and nobody else."""

    def act(self, observation: Observation) -> Action:
        if observation.side is Side.GOOD:
            for event in observation.events:
                if event.kind in SPEECHES and understand(event.text).claimed is Role.SEER:
                    self._memory.hunches[event.seat] = -2.0 if understand(event.text).next_checks else 3.0
        return super().act(observation)
