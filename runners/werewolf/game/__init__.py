"""The rules of the game: standard library only, no I/O, no clock, deterministic by seed.

A game is ``state = new_game(preset, seed)``; then, until ``winner(state)`` is a result, answer every
request of ``pending(state)`` and go on with ``apply(state, actions)``. Players see only
``observe(state, seat)``.
"""

from runners.werewolf.game.presets import PRESETS, Preset, WinRule, get_preset
from runners.werewolf.game.rules import GameState, apply, check, choices, deal, legal, new_game, pending, winner
from runners.werewolf.game.types import (
    Action,
    Decision,
    Event,
    EventKind,
    IllegalAction,
    Observation,
    Phase,
    Request,
    Result,
    Role,
    Side,
)
from runners.werewolf.game.view import observe

__all__ = [
    "PRESETS",
    "Action",
    "Decision",
    "Event",
    "EventKind",
    "GameState",
    "IllegalAction",
    "Observation",
    "Phase",
    "Preset",
    "Request",
    "Result",
    "Role",
    "Side",
    "WinRule",
    "apply",
    "check",
    "choices",
    "deal",
    "get_preset",
    "legal",
    "new_game",
    "observe",
    "pending",
    "winner",
]
