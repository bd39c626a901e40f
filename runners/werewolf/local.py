"""``python -m runners.werewolf play``: one game on this machine, without a hub or a model.

Players without a model play all seats; a person may take one. The seed determines deal and players, so a game without a
person is reproducible.
"""

import argparse
import io
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from runners.werewolf.brains import BRAINS, Brain, NewBrain
from runners.werewolf.game import (
    OPTIONS,
    PRESETS,
    Action,
    GameState,
    Observation,
    Preset,
    Request,
    Side,
    apply,
    asked,
    get_preset,
    new_game,
    observe,
    winner,
)
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.prompts_zh.names import DECISION_MARKER
from runners.werewolf.prompts_zh.questions import render_question, render_reply_error, render_turn
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.transcript import game_data, game_text


def play_locally(preset: Preset, seed: int, brains: Mapping[int, Brain]) -> GameState:
    """Play a game to its end. brains: seat -> brain."""
    state = new_game(preset, seed)
    while winner(state) is None:
        state = apply(state, {seat: brains[seat].act(observe(state, seat)) for seat in asked(state)})
    return state


def seeded_brains(preset: Preset, seed: int, players: Mapping[Side, str | NewBrain]) -> dict[int, Brain]:
    """A brain for each seat of the deal of ``seed``. players: side -> name in ``BRAINS``, or a factory."""
    roles = new_game(preset, seed).roles
    makers = {side: BRAINS[player] if isinstance(player, str) else player for side, player in players.items()}
    return {
        seat: makers[role.side](random.Random(f"{seed}/{seat}")) for seat, role in zip(preset.seats, roles, strict=True)
    }


class PersonLeft(Exception):
    """The person at the terminal ended the input."""


class Person:
    """A seat played at a terminal, with the same prompts and parser as a model."""

    def __init__(self, preset: Preset, ask: Callable[[str], str] = input, show: Callable[[str], None] = print):
        self._preset = preset
        self._ask = ask
        self._show = show
        self._introduced = False

    def act(self, observation: Observation) -> Action:
        """Show news, and ask until the answer is valid. Raises PersonLeft at the end of input."""
        request = observation.question
        if not self._introduced:
            self._show(system_prompt(self._preset, observation.seat, observation.role))
            self._introduced = True
        self._show("\n" + render_turn(observation.events, render_question(request)))
        while True:
            try:
                return parse_reply(self._answer(request), request)
            except ReplyError as error:
                self._show(render_reply_error(error, request))
            except EOFError as end:
                raise PersonLeft from end

    def _answer(self, request: Request) -> str:
        if not request.speaks:
            return f"{DECISION_MARKER}：{self._ask(f'{DECISION_MARKER}> ').removeprefix(f'{DECISION_MARKER}：')}"
        speech = self._ask("发言> ")
        rides_along = bool(request.targets or request.options)
        choice = self._ask(f"{DECISION_MARKER}（可留空）> ") if rides_along else ""
        return f"{speech}\n{DECISION_MARKER}：{choice}" if choice.strip() else speech


def add_play_command(commands: Any) -> None:
    """Add ``play`` to the subcommands of ``python -m runners.werewolf``."""
    parser = commands.add_parser(
        "play",
        help="play one game on this machine and print it, without a hub or a model",
        description="Play one game on this machine, without a hub or a model, and print it in Chinese.",
    )
    parser.add_argument("--preset", choices=list(PRESETS), default="12p_sheriff", help="rules (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of deal and players (default: %(default)s)")
    parser.add_argument(
        "--players",
        type=_brains_by_side,
        default=_brains_by_side("scripted"),
        metavar="NAMES",
        help=f"players: {', '.join(BRAINS)}; by side: wolf=random,good=scripted (default: scripted)",
    )
    parser.add_argument("--human", type=int, metavar="SEAT", help="play this seat yourself, at the terminal")
    parser.add_argument(
        "--rule",
        type=_rule,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"override a rule, e.g. win_rule=parity; may be repeated; names: {', '.join(OPTIONS)}",
    )
    parser.add_argument(
        "--view", type=int, metavar="SEAT", help="print the game from this seat's view (default: everything)"
    )
    parser.add_argument(
        "--format", choices=["text", "json"], default="text", help="output format (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="output file (default: standard output)")
    parser.set_defaults(run=play)


def play(options: argparse.Namespace) -> int:
    """Play one game by the command line; returns the exit status."""
    made = options.output is not None and not options.output.exists()
    try:
        preset = get_preset(options.preset, dict(options.rule))
        for seat in (options.human, options.view):
            if seat is not None and seat not in preset.seats:
                raise ValueError(f"preset {preset.name!r} has seats 1 to {len(preset.seats)}, not {seat}")
        if options.output is not None:
            options.output.open("a").close()  # fail before the game, not after it
        brains = seeded_brains(preset, options.seed, options.players)
        if options.human is not None:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")  # a half character that a terminal sends must not end the game
            brains[options.human] = Person(preset)
        state = play_locally(preset, options.seed, brains)
    except (ValueError, OSError) as error:
        if made:
            options.output.unlink(missing_ok=True)
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (PersonLeft, KeyboardInterrupt):
        if made:
            options.output.unlink(missing_ok=True)
        print("\nthe game was interrupted", file=sys.stderr)
        return 130
    if options.format == "json":
        written = json.dumps(game_data(state, options.view), ensure_ascii=False, indent=1) + "\n"
    else:
        written = game_text(state, options.view)
    if options.output is None:
        sys.stdout.write(written)
        return 0
    try:
        options.output.write_text(written, encoding="utf-8")
    except OSError as error:
        print(f"error: {options.output} could not be written: {error.strerror}", file=sys.stderr)
        return 2
    print(f"written to {options.output}", file=sys.stderr)
    return 0


def players_by_side(text: str) -> dict[Side, str]:
    """Parse players: one name for both sides, or one for each. Raises argparse.ArgumentTypeError."""
    named = dict(part.partition("=")[::2] for part in text.split(",")) if "=" in text else dict.fromkeys(Side, text)
    sides = {str(side): side for side in Side}
    if set(named) != set(sides) or not all(named.values()):
        raise argparse.ArgumentTypeError(
            f"must be a player's name, or one for each side, e.g. wolf=random,good=scripted; got {text!r}"
        )
    return {sides[side]: name for side, name in named.items()}


def _brains_by_side(text: str) -> dict[Side, str]:
    players = players_by_side(text)
    if unknown := sorted(set(players.values()) - set(BRAINS)):
        raise argparse.ArgumentTypeError(f"unknown players {unknown}; known: {', '.join(BRAINS)}")
    return players


def _rule(text: str) -> tuple[str, object]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"must be of the form name=value, got {text!r}")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"the value of {text!r} is not valid YAML") from error
