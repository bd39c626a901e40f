"""A run's pool over its steps: who joins when, which weights lie on the disk, what is served and what is told."""

import asyncio
import json
import logging

import pytest

from algo.league.league import League
from algo.league.pool import LeagueState
from algo.league.results import Match
from configs.section import ConfigError
from store.endpoints import ServedPolicy
from tests.support.settings import werewolf_config


class Served:
    """A fake of the run's servers: notes what it is given."""

    def __init__(self):
        self.folders = {}

    async def serve_past_selves(self, folders, held):
        assert all(folder.is_dir() for folder in folders.values())
        self.folders = {int(name.rpartition("-")[2]): folder for name, folder in folders.items()}

    def past(self, shares, held):
        return [
            ServedPolicy(name=name, endpoints=("http://e/v1",), model=name, share=share)
            for name, share in shares.items()
        ]


class Run:
    """What a league has around it. kept: versions that the newest checkpoint needs."""

    def __init__(self, folder, lag=0, rank=8, **league):
        (folder / "model").mkdir(exist_ok=True)
        config = werewolf_config(
            opponent="past",
            max_policy_lag=lag,
            league={"every_steps": 2, **league},
            model={"lora_rank": rank, "path": folder / "model"},
        )
        self.config = config.model_copy(update={"run": config.run.model_copy(update={"dir": folder})})
        self.folder = self.config.run_dir / "league"
        self.kept = set()
        self.wrote = []
        self.open(LeagueState())

    def open(self, state):
        async def write(version, folder):
            folder.mkdir(parents=True)
            self.wrote.append(version)

        self.served = Served()
        self.league = League(self.config, state, self.served, write, lambda: self.kept)

    def step(self, step, version, log_prob=None):
        async def log_probs():
            return [-float(version) if log_prob is None else log_prob]

        asyncio.run(self.league.prepare(step, version, log_probs))

    @property
    def members(self):
        return [member.version for member in self.league.state.members]

    @property
    def on_disk(self):
        return sorted(path.name for path in self.folder.glob("*"))


def test_the_policy_joins_at_the_start_and_then_every_so_many_steps(tmp_path):
    run = Run(tmp_path)
    assert run.league.policies() == []  # an evaluation before the first step asks
    # step, version: nothing was learned in the fourth, so runners already have the opponents of version 3.
    joined = []
    for step, version in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5)]:
        run.step(step, version)
        joined.append((step, run.members))
    assert [members for _, members in joined] == [[0], [0], [0, 2], [0, 2], [0, 2], [0, 2], [0, 2, 5]]
    assert run.wrote == [0, 2, 5] and run.on_disk == ["past-000000", "past-000002", "past-000005"]
    assert {version: folder.name for version, folder in run.served.folders.items()} == {
        0: "past-000000", 2: "past-000002", 5: "past-000005",
    }  # fmt: skip
    assert sum(policy.share for policy in run.league.policies()) == pytest.approx(1)
    assert [(row.first, row.last) for row in run.league.state.rows] == [(0, 0), (2, 2), (5, 5)]


def test_whole_weights_of_the_start_lie_where_the_model_does(tmp_path):
    run = Run(tmp_path, rank=0)
    run.step(0, 0)
    assert run.wrote == [] and run.served.folders == {0: tmp_path / "model"}


def test_weights_of_who_left_stay_as_long_as_a_checkpoint_may_need_them(tmp_path):
    run = Run(tmp_path, size=2, every_steps=1)
    run.step(0, 0)
    run.step(1, 1)
    run.kept = {0}  # the checkpoint after step 1 is still being written; it has version 1
    run.step(2, 2)
    assert run.members == [0, 2] and 1 not in run.served.folders
    assert run.on_disk == ["past-000000", "past-000001", "past-000002"]
    # It has failed, and the newest on the disk still is one of before; then comes one of after.
    run.kept = {0, 1}
    run.step(3, 3)
    assert run.on_disk == ["past-000000", "past-000001", "past-000002", "past-000003"]
    run.kept = {0, 3}
    run.step(4, 4)
    assert run.on_disk == ["past-000000", "past-000003", "past-000004"]


def test_games_in_flight_may_meet_a_former_member_if_it_is_an_adapter(tmp_path, monkeypatch):
    run = Run(tmp_path, size=2, every_steps=1, lag=1)
    for step in range(3):
        run.step(step, step)
    assert run.members == [0, 2] and [one.name for one in run.league.in_flight()] == [
        "past-000000", "past-000001", "past-000002"
    ]  # fmt: skip
    whole = Run(tmp_path, rank=0, servers=1)
    monkeypatch.setattr(whole.served, "past", lambda *given: 1 / 0)  # a pool has a server for each published member
    assert whole.league.in_flight() == []


def test_resumed_from_an_earlier_checkpoint_it_drops_who_joined_later_and_finds_the_others(tmp_path):
    run = Run(tmp_path, every_steps=1)
    run.step(0, 0)
    run.step(1, 1)
    checkpoint = run.league.state.model_dump_json()
    run.kept = {0, 1}
    run.step(2, 2)
    (run.folder / "unfinished-past-000003").mkdir()
    run.open(LeagueState.model_validate_json(checkpoint))
    assert run.on_disk == ["past-000000", "past-000001"]
    published = run.league.state.published
    run.step(1, 1)  # what the checkpoint had settled stays settled
    assert run.league.state.published == published and run.members == [0, 1]
    run.step(2, 2)
    assert run.members == [0, 1, 2] and run.wrote == [0, 1, 2, 2]
    (run.folder / "past-000001").rmdir()
    with pytest.raises(ConfigError, match=r"past-000001 is missing.*restore it"):
        run.open(LeagueState.model_validate_json(checkpoint))


def test_metrics_of_a_step(tmp_path, caplog):
    run = Run(tmp_path)
    run.step(0, 0)
    matches = [
        Match("past-000000", "wolf", 1.0),
        Match("past-000000", "wolf", 0.5),
        Match("past-000000", "good", 0.0),
        Match("scripted", "wolf", 1.0),
    ]
    run.config.run_dir.mkdir(exist_ok=True)
    metrics = run.league.count(matches, version=0, games=10)
    assert metrics == {
        "league/size": 1.0,
        "league/share/past": 0.3,
        "league/share/others": 0.1,
        "league/win_rate/wolf": 0.75,
        "league/win_rate/good": 0.0,
        "league/weaker_than_past": 0.0,
    }
    payoff = json.loads((run.config.run_dir / "payoff.json").read_text())
    assert payoff["players"] == ["policy 0", "past-000000", "scripted"]
    assert payoff["cells"][:2] == [
        {"wolf": "policy 0", "good": "past-000000", "games": 2, "wolf_wins": 1, "good_wins": 0, "draws": 1},
        {"wolf": "past-000000", "good": "policy 0", "games": 1, "good_wins": 0, "wolf_wins": 1, "draws": 0},
    ]
    with caplog.at_level(logging.WARNING):
        lost = [Match("past-000000", side, 0.0) for side in ("wolf", "good")] * 25
        metrics = run.league.count(lost, version=1, games=50)
    assert metrics["league/weaker_than_past"] == 1.0
    assert "policy 0-1 is weaker than its past self past-000000" in caplog.text
