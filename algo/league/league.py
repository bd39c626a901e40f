"""A run's pool of past selves, as the training loop uses it."""

import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from algo.league.pool import LeagueState
from algo.league.results import Match, Strengths, is_past, past_name
from algo.machine.atomic_files import write_atomically
from algo.serving.policies import PolicyServers
from configs.schema import Config
from configs.section import ConfigError
from store.endpoints import ServedPolicy

logger = logging.getLogger(__name__)

PAYOFF_FILE = "payoff.json"
"""Win table in a run's folder, read by ``runners.werewolf.web.run_numbers``."""


class League:
    """The pool of one run. ``state`` is changed in place; the run's checkpoints hold it.

    Weights are in the run's folder under ``league/past-000010/`` as long as a checkpoint has the member; whole weights
    of version 0 are in ``model.path``.
    """

    def __init__(
        self,
        config: Config,
        state: LeagueState,
        serving: PolicyServers,
        write: Callable[[int, Path], Awaitable[None]],
        in_checkpoints: Callable[[], Collection[int]],
    ):
        """write: (version, new folder) writes the policy's current weights, atomically.

        in_checkpoints: versions that any checkpoint needs. Raises ConfigError if weights of a member are missing.
        """
        assert config.pool is not None
        self._config = config
        self._settings = config.pool
        self.state = state
        self._serving = serving
        self._write = write
        self._in_checkpoints = in_checkpoints
        folders_of(config, state)
        self._drop_folders(state.needed)  # of steps lost in a crash

    async def prepare(self, step: int, version: int, log_probs: Callable[[], Awaitable[Sequence[float]]]) -> None:
        """Before a step's games: let the policy join if it is due, and serve the published members.

        step: steps made. version: of the policy. log_probs: of the probe under the current weights; empty without one.
        Raises ServingError, and the errors of ``write``.
        """
        state, settings, config = self.state, self._settings, self._config
        needed = state.needed
        assert settings.every_steps is not None
        # Runners keep the opponents that are published with a version: after a step without an update none joins.
        is_new = state.published is None or state.published.version < version
        due = step % settings.every_steps == 0 and is_new
        if not state.members or (due and state.members[-1].version < version):
            folder = _folder(config, version)
            if not folder.is_dir():
                await self._write(version, folder)
            state.join(version, await log_probs(), settings.size)
            logger.info("version %d joins the pool of past selves (%d members)", version, len(state.members))
        state.drop_left(version, config.rollout.max_policy_lag)
        servers = 0 if config.model.lora_rank else settings.servers
        published = state.publish(version, settings, servers, config.run.seed)
        folders = folders_of(config, state)
        held = [(one, folders[one]) for one in published.servers]
        await self._serving.serve_past_selves({past_name(one): folder for one, folder in folders.items()}, held)
        if needed != state.needed:
            self._drop_folders(needed | state.needed)  # a checkpoint with the old pool may be in progress

    def set_log_probs(self, version: int, log_probs: Sequence[float]) -> None:
        """Set the probe's log-probs of a member that joined without them, in the first step."""
        for member in self.state.members:
            if member.version == version and not member.log_probs:
                member.log_probs = list(log_probs)

    def policies(self) -> list[ServedPolicy]:
        """Published members; none before the first step."""
        published = self.state.published
        return [] if published is None else self._serving.past(published.shares, map(past_name, published.servers))

    def in_flight(self) -> list[ServedPolicy]:
        """Every member that open games may meet, at its present server. With whole weights none: lag is 0."""
        if not self._config.model.lora_rank:
            return []
        return self._serving.past(dict.fromkeys(map(past_name, sorted(self.state.needed)), 0.0), ())

    def count(self, matches: Sequence[Match], version: int, games: int) -> dict[str, float]:
        """Add a step's games, and write ``payoff.json``; returns metrics ``league/…``.

        matches: of the policy against one other player. version: of the policy. games: number of finished games.
        """
        self.state.count(matches, version)
        strengths = self.state.strengths()
        self._write_payoff(strengths)
        past = [match for match in matches if is_past(match.opponent)]
        stronger = self.state.strongest_past_self(strengths)
        if stronger is not None:
            name, ahead = stronger
            logger.warning(
                "%s is weaker than its past self %s: by %.2f (%.2f to %.2f) log-odds of a win",
                *(self.state.rows[-1].name, name, ahead.value, ahead.low, ahead.high),
            )
        metrics = {
            "league/size": float(len(self.state.members)),
            "league/share/past": len(past) / games,
            "league/share/others": (len(matches) - len(past)) / games,
            "league/weaker_than_past": float(stronger is not None),
        }
        for side in sorted({match.side for match in past}):
            scores = [match.score for match in past if match.side == side]
            metrics[f"league/win_rate/{side}"] = sum(scores) / len(scores)
        return metrics

    def _write_payoff(self, strengths: Strengths | None) -> None:
        found = self.state.cells()
        players = list(dict.fromkeys(name for cell in found for name in (cell["wolf"], cell["good"])))
        table: dict[str, object] = {"players": players, "cells": found}
        if strengths is not None:
            # Relative to the newest row with games.
            present = next(row.name for row in reversed(self.state.rows) if row.name in strengths.names)
            table["strengths"] = {name: strengths.difference(name, present).model_dump() for name in strengths.names}
        write_atomically(self._config.run_dir / PAYOFF_FILE, json.dumps(table, indent=1) + "\n")

    def _drop_folders(self, needed: Collection[int]) -> None:
        kept = {past_name(version) for version in {*needed, *self._in_checkpoints()}}
        for folder in (self._config.run_dir / "league").glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder)


def folders_of(config: Config, state: LeagueState) -> dict[int, Path]:
    """Version -> folder of its weights, for all needed versions. Raises ConfigError if one is missing."""
    folders = {version: _folder(config, version) for version in sorted(state.needed)}
    if missing := [folder for folder in folders.values() if not folder.is_dir()]:
        raise ConfigError(
            f"{missing[0]} is missing, and the checkpoint's pool of past selves needs it: restore it, or start a "
            f"new run"
        )
    return folders


def _folder(config: Config, version: int) -> Path:
    if version == 0 and not config.model.lora_rank:
        return config.model.path
    return config.run_dir / "league" / past_name(version)
