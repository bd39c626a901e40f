"""Evaluation through a real hub: real games with sides swapped, nothing to train on, resumed and failed games."""

import json

import pytest
from rich.console import Console

from algo.evaluate import keep_evaluated
from algo.evaluation.actions import VOTES_FOR_WOLVES
from algo.evaluation.figures import figures_of, metrics_of
from algo.evaluation.page import show_tables
from algo.evaluation.play import evaluate
from algo.evaluation.record import EVALUATIONS_FILE, PAGE_FILE
from algo.evaluation.report import page_of, tables_of
from algo.rollouts.queue import RolloutQueue
from algo.werewolf.matches import held_out_deals
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from runners.werewolf.werewolf_play import WerewolfPlay
from store.schema import PolicyResources
from store.werewolf import GAME, GameTask
from tests.support.algo.made_games import made_evaluation, made_row
from tests.support.algo.playing import alive, playing
from tests.support.fakes import FakeVllm
from tests.support.werewolf.fakes_api import FakeChatApi

RESOURCES = PolicyResources(run_name="run-1", version=5, endpoints=("http://127.0.0.1:1/v1",), model="policy")


def runner_at(client):
    """A runner in this process."""
    return playing(client, WerewolfPlay(client))


@pytest.fixture
async def policy(tiny_tokenizer, tiny_model):
    """A served policy that always says the same; its resources."""
    async with FakeVllm(tiny_tokenizer, lambda prompt: "发言：我是狼人。\n决定：1号", str(tiny_model)) as vllm:
        yield RESOURCES.model_copy(update={"endpoints": (vllm.endpoint,)})


def make_config(tmp_path, players=(), **evaluation):
    return WerewolfConfig(
        run={"dir": tmp_path, "name": "run"},
        rollout={"max_attempts": 1, "context_tokens": 3072, "reply_tokens": 20},
        evaluation={"deals": 2, **evaluation},
        players={name: {"model": "fake-model"} for name in players},
    )


async def test_an_evaluation_plays_every_deal_on_both_sides_and_nothing_can_be_trained_on(
    client, policy, tiny_model, tmp_path
):
    config = make_config(tmp_path, temperature=0.5)
    games = RolloutQueue(client, GAME, config.rollout)
    async with runner_at(client):
        evaluation = await evaluate(config, games, policy, alive, "step 5", step=5)
        path = config.run_dir / EVALUATIONS_FILE
        lines = path.read_bytes().splitlines(keepends=True)
        again = await evaluate(config, games, policy, alive, "step 5", step=5, resumed=True)
        assert again == evaluation and path.read_bytes() == b"".join(lines)
        # Killed in mid-game: some rows and a half. What has a row is not played again, what has none is in the hub.
        path.write_bytes(b"".join(lines[:4]) + lines[4][:50])
        resumed = await evaluate(config, games, policy, alive, "step 5", step=5, resumed=True)
    assert resumed.rows == evaluation.rows and resumed.ended
    keep_evaluated(config, tiny_model, "step 5")
    kept = json.loads((config.run_dir / "evaluated/step-5/evaluated.json").read_text())
    assert (kept["label"], kept["model"]) == ("step 5", str(tiny_model))
    assert all(row.task_id.startswith(kept["games"]) for row in evaluation.rows)
    assert (config.run_dir / "evaluated/step-5/tokenizer.json").is_file()
    keep_evaluated(config, tiny_model, "step 5")
    with pytest.raises(ConfigError, match="'step-5': games of 'step 5'"):
        keep_evaluated(config, tiny_model, "step-5")
    keep_evaluated(config, tmp_path / "nothing-here", "attached")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="another tokenizer than 'step-5'"):
        keep_evaluated(config, tmp_path, "other")
    rollouts = await client.query_rollouts()
    assert len(rollouts) == len(evaluation.rows) == 8
    assert {rollout.mode for rollout in rollouts} == {"val"}
    resources = await client.query_resources()
    assert {found.resources_id for found in resources} == {"run-1-evaluation.policy-000005"}
    assert PolicyResources.decode(resources[0]).sampling.temperature == 0.5
    tasks = [GameTask.decode(rollout.input) for rollout in rollouts]
    assert {task.trainable for task in tasks} == {frozenset()}
    for number, opponent in enumerate(("scripted", "random")):
        rows = evaluation.rows[4 * number : 4 * number + 4]
        assert [(row.cluster, row.sides_of("policy")) for row in rows] == [
            (deal, [side]) for deal in held_out_deals(2, 1) for side in ("wolf", "good")
        ]
        assert all({opponent, "policy"} == {seat.player for seat in row.seats} for row in rows)
    header = evaluation.header
    assert (header.label, header.player, header.step) == ("step 5", "policy@5", 5)
    assert header.planned == {"scripted": 4, "random": 4}

    figures = figures_of(evaluation)
    assert (figures.conduct["both"].games, figures.all_games.games) == (8, 8)
    assert figures.conduct["wolf"].leaks > 0 and figures.conduct["both"].turns > 8
    actions = {(actions.player, actions.side): actions for actions in figures.actions}
    # It names seat 1 whatever the question, which is no wolf's in these deals, and cannot be claimed to be anything.
    assert actions["policy", "wolf"].counts["kills"].keys() <= {"villager", "seer", "nobody"}
    assert actions["policy", "good"].shares[VOTES_FOR_WOLVES].value == 0.0
    assert actions["policy", "wolf"].counts["roles that the wolf claims"].keys() == {"none"}
    for row in evaluation.rows:
        assert "夜" in row.sample.transcript
        assert {turn["reply"] for turn in row.sample.turns} == {"发言：我是狼人。\n决定：1号"}
        speakers = {turn["seat"] for turn in row.sample.turns}
        assert speakers == {seat.seat for seat in row.seats if seat.turns}
        assert all((seat.reward is not None) == (seat.player == "policy") for seat in row.seats if seat.turns)
    page = (config.run_dir / PAGE_FILE).read_text(encoding="utf-8")
    assert "Win rates" in page and header.digest in page


async def test_games_that_fail_are_counted_and_not_taken_for_losses(client, policy, tmp_path):
    async with FakeChatApi(lambda messages: "") as away:
        strong = away.endpoint(tries=1)
    policy = policy.model_copy(update={"players": {"strong": strong}})
    config = make_config(tmp_path, players=["strong"], deals=1, opponents=["random", "strong"])
    async with runner_at(client):
        evaluation = await evaluate(config, RolloutQueue(client, GAME, config.rollout), policy, alive, "first")
    assert len(evaluation.rows) == 2 and evaluation.header.planned == {"random": 2, "strong": 2}
    (reason,) = evaluation.failures
    assert evaluation.failures[reason] == 2 and "EndpointUnavailable" in reason
    figures = figures_of(evaluation)
    strong = figures.opponents["strong"]
    assert (strong.not_finished, strong.both_sides.games, strong.both_sides.win_rate) == (2, 0, None)
    metrics = metrics_of(evaluation, figures)
    assert metrics["evaluation/games/not_finished"] == 2 and "evaluation/win_rate/both/vs/strong" not in metrics


def test_what_models_and_programs_wrote_is_no_markup_on_page_and_terminal(tmp_path, capsys):
    evaluation = made_evaluation([made_row()], planned={"scripted": 4}).model_copy(
        update={"failures": {"CannotPlay: [red]no[/] <script>": 1}}
    )
    show_tables(tables_of(evaluation), Console(width=120))
    shown = capsys.readouterr().out
    assert "CannotPlay: [red]no[/] <script>" in shown and "100 % (21–100)" in shown
    page = page_of("<b>run</b>", [evaluation]).write(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>" not in page and "<b>run" not in page and "&lt;script&gt;" in page
