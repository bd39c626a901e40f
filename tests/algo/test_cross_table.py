"""The cross table: every ordered pair once a deal, a player against itself included; counted right, kept, shown."""

import json
from collections import Counter

import pytest
from rich.console import Console

from algo.cross_table import main
from algo.evaluation.cross_table import (
    Cell,
    CrossTable,
    cells_of,
    cross_table_tasks,
    play_cross_table,
    show_cross_table,
)
from algo.run.folder import open_run
from algo.werewolf.matches import held_out_deals
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from store.schema import PolicyResources
from tests.algo.test_evaluate import runner_at
from tests.support.algo.evaluations import make_game
from tests.support.fakes import FakeVllm

PLAYERS = ("random", "scripted", "policy")


def make_config(tmp_path, **settings):
    return WerewolfConfig(
        run={"dir": tmp_path, "name": "run"},
        rollout={"max_attempts": 1, "context_tokens": 3072, "reply_tokens": 20},
        **settings,
    )


def seated(task):
    return tuple(next(name for rule in task.seating if rule.side == side for name in rule.players) for side in PAIR)


PAIR = ("wolf", "good")


def test_every_ordered_pair_plays_every_deal_once(tmp_path):
    tasks = cross_table_tasks(PLAYERS, make_config(tmp_path), 5, "name")
    games = Counter(seated(task) for task in tasks)
    assert games == {(wolf, good): 5 for wolf in PLAYERS for good in PLAYERS}
    for wolf in PLAYERS:
        for good in PLAYERS:
            deals = [task.seed for task in tasks if seated(task) == (wolf, good)]
            assert deals == held_out_deals(5, 1)
    assert len({task.game_id for task in tasks}) == len({task.sampling_seed for task in tasks}) == 45
    assert {task.trainable for task in tasks} == {frozenset()}


def test_cells_count_who_won_on_which_side_and_what_is_missing(tmp_path):
    players = ("random", "scripted")
    tasks = cross_table_tasks(players, make_config(tmp_path), 4, "name")
    games = [
        *(make_game(result, "random", "scripted") for result in ("wolf", "good", "good", "draw")),
        *(make_game(result, "scripted", "random") for result in ("wolf", "wolf", "wolf")),
        make_game("good", "scripted", "scripted"),
    ]
    cells = {(cell.wolf, cell.good): cell for cell in cells_of(players, tasks, games)}
    assert list(cells) == [(wolf, good) for wolf in players for good in players]
    counts = {
        pair: (cell.games, cell.wolf_wins, cell.good_wins, cell.draws, cell.not_finished)
        for pair, cell in cells.items()
    }
    assert counts == {
        ("random", "random"): (0, 0, 0, 0, 4),
        ("random", "scripted"): (4, 1, 2, 1, 0),
        ("scripted", "random"): (3, 3, 0, 0, 1),
        ("scripted", "scripted"): (1, 0, 1, 0, 3),
    }
    mixed = cells["random", "scripted"]
    assert (mixed.win_rate("wolf").value, mixed.win_rate("good").value) == (0.25, 0.5)
    assert mixed.win_rate("wolf").low < 0.1 and mixed.win_rate("wolf").high > 0.5
    assert cells["random", "random"].win_rate("wolf") is None


async def test_players_without_a_model_need_no_vllm(hub, client, tmp_path, monkeypatch):
    async def not_asked_for(*_):
        raise AssertionError("a vLLM was asked for")

    monkeypatch.setattr("algo.evaluation.players.Servers.open", not_asked_for)
    config = make_config(tmp_path, store={"url": hub.url}, evaluation={"seed": 7})
    async with runner_at(client):
        table, path = await play_cross_table(
            open_run(config, False, "-cross-table"), ["random", "scripted"], 6, tmp_path
        )
    assert path == tmp_path / "run-cross-table" / "cross_table.json" and CrossTable.read(path) == table
    assert (table.players, table.preset, table.seed, table.deals, table.model) == (
        ("random", "scripted"), "5p_tiny", 7, 6, "",
    )  # fmt: skip
    assert [(cell.games, cell.not_finished) for cell in table.cells] == [(6, 0)] * 4
    assert {rollout.mode for rollout in await client.query_rollouts()} == {"val"}


class FakeServing:
    """An attached vLLM that takes weights, unless they do not fit."""

    model = "policy"

    def __init__(self, endpoint="http://127.0.0.1:1", fits=True):
        self.endpoints, self.fits, self.pushed = (endpoint,), fits, []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def check_alive(self):
        return False

    async def push_weights(self, folder, version):
        if not self.fits:
            raise ValueError("it lacks 3 tensors")
        self.pushed.append((folder, version))

    async def open(self, config, progress):
        return self


ATTACHED = {"mode": "attach", "urls": ["http://127.0.0.1:1"]}


async def test_the_policy_plays_both_sides_of_its_own_cell(
    hub, client, tiny_tokenizer, tiny_model, tmp_path, monkeypatch
):
    vllm = FakeVllm(tiny_tokenizer, lambda prompt: "发言：我是好人。\n决定：1号", str(tiny_model))
    serving = FakeServing(await vllm.start())
    monkeypatch.setattr("algo.evaluation.players.Servers.open", serving.open)
    config = make_config(tmp_path, store={"url": hub.url}, serving=ATTACHED, evaluation={"temperature": 0.5})
    async with runner_at(client):
        table, _ = await play_cross_table(open_run(config, False), ["random", "policy"], 1, tiny_model)
    await vllm.stop()
    assert [(cell.wolf, cell.good, cell.games) for cell in table.cells] == [
        ("random", "random", 1), ("random", "policy", 1), ("policy", "random", 1), ("policy", "policy", 1),
    ]  # fmt: skip
    assert table.model == str(tiny_model) and serving.pushed == [(tiny_model, 0)]
    (resources,) = await client.query_resources()
    assert PolicyResources.decode(resources).sampling.temperature == 0.5


async def test_weights_that_do_not_fit_an_attached_vllm_are_named(hub, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr("algo.evaluation.players.Servers.open", FakeServing(fits=False).open)
    opened = open_run(make_config(tmp_path, store={"url": hub.url}, serving=ATTACHED), False)
    with pytest.raises(ConfigError, match="lacks 3 tensors"):
        await play_cross_table(opened, ["random", "policy"], 1, tiny_model)


def make_cell(wolf, good, wolf_wins=1, good_wins=2, draws=1, **changes):
    fields = dict(games=wolf_wins + good_wins + draws, wolf_wins=wolf_wins, good_wins=good_wins, draws=draws)
    return Cell(wolf=wolf, good=good, **(fields | changes))


def make_table(**changes):
    fields = dict(
        players=("a", "b"),
        preset="5p_tiny",
        seed=1,
        deals=4,
        model="",
        cells=(make_cell("a", "a"), make_cell("a", "b", 4, 0, 0), make_cell("b", "a"), make_cell("b", "b")),
    )
    return CrossTable(**{**fields, **changes})


def test_a_table_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="do not make 5 games"):
        make_cell("a", "b", games=5)
    with pytest.raises(ValueError, match="every pair"):
        make_table(cells=make_table().cells[1:])
    with pytest.raises(KeyError, match="players: a, b"):
        make_table().cell("a", "c")
    document = json.loads(make_table().model_dump_json())
    (tmp_path / "cross_table.json").write_text(json.dumps(document | {"preset": 3}))
    with pytest.raises(ValueError, match=r"cross_table.json is no cross table"):
        CrossTable.read(tmp_path / "cross_table.json")


def test_it_is_shown_with_the_wolves_in_the_rows(capsys):
    cells = (make_cell("a", "a", 0, 0, 0, not_finished=4), *make_table().cells[1:])
    show_cross_table(make_table(cells=cells), Console(width=100))
    shown = capsys.readouterr().out
    (row,) = (line for line in shown.splitlines() if line.split()[:1] == ["a"])
    assert row.split() == ["a", "–", "100", "%", "(51–100)"]
    assert "2 draws" in shown and "4 games did not finish" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "0 deals are nothing to play"),
        (["--deals", "1", "--players", "scriptd"], "did you mean 'scripted'"),
        (["--deals", "1", "--players", "random", "random"], "named twice"),
        (["--deals", "1", "--model", "not-there"], "not-there does not exist"),
    ],
)
def test_what_cannot_be_played_is_said_before_anything_starts(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["cross_table", "--set", f"run.dir={tmp_path}", *arguments])
    assert main() == 2
    assert message in capsys.readouterr().err and list(tmp_path.iterdir()) == []
