"""The rules of the game: standard library only, no I/O, no clock, deterministic by seed.

A game is ``state = new_game(preset, seed)``; then, until ``winner(state)`` is a result, answer every
request of ``pending(state)`` and continue with ``apply(state, actions)``. Players see only
``observe(state, seat)``: new events and the request; ``known_events(state, seat)`` has all events of a seat.
"""

from runners.werewolf.game.decisions import check, choices, legal
from runners.werewolf.game.presets import OPTIONS, PRESETS, Preset, WinRule, get_preset
from runners.werewolf.game.rules import apply, asked, new_game, pending, winner
from runners.werewolf.game.state import GameState
from runners.werewolf.game.types import (
    SPEECHES,
    Action,
    BadgeLost,
    Choice,
    Decision,
    Event,
    EventKind,
    IllegalAction,
    Observation,
    Option,
    Phase,
    Request,
    Result,
    Role,
    Side,
    Unsaved,
)
from runners.werewolf.game.view import known_events, observe
