"""Evaluation through a real hub: real games with sides swapped, nothing to train on, resumed and failed games."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
from rich.console import Console

from algo.evaluate import keep_evaluated, main
from algo.evaluation.labels import default_label
from algo.evaluation.model_folder import file_of, show_evaluation
from algo.evaluation.outcomes import EVALUATIONS_FOLDER, read_evaluations, with_ratings
from algo.evaluation.play import evaluate
from algo.machine.ports import free_port
from algo.rollouts.queue import RolloutQueue
from algo.sequences.trajectories import build_trajectories
from algo.werewolf.behaviour import Behaviour
from algo.werewolf.game_statistics import score_of_both_sides
from algo.werewolf.matches import held_out_deals, match_tasks, record_games
from algo.werewolf.rewards import game_rewards
from configs.sections.rewards import RewardConfig
from configs.werewolf import WerewolfConfig
from runners.werewolf.agent import WerewolfPlay
from runners.worker import Worker
from store.schema import PolicyResources
from store.werewolf import GAME, GameTask
from tests.support.algo.evaluations import make_evaluation
from tests.support.fakes import FakeVllm
from tests.support.werewolf.fakes_api import FakeChatApi

RESOURCES = PolicyResources(run_name="run-1", version=5, endpoints=("http://127.0.0.1:1/v1",), model="policy")


async def alive():
    pass


@asynccontextmanager
async def runner_at(client):
    """A runner in this process, and the algorithm's side of the hub."""
    play = WerewolfPlay(client)
    worker = Worker(client, play, "w")
    working = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.hand_back()
        await working
        await play.close()


@pytest.fixture
async def policy(tiny_tokenizer, tiny_model):
    """A served policy that always says the same; its resources."""
    vllm = FakeVllm(tiny_tokenizer, lambda prompt: "发言：我是狼人。\n决定：1号", str(tiny_model))
    yield RESOURCES.model_copy(update={"endpoints": (await vllm.start(),)})
    await vllm.stop()


def make_config(tmp_path, players=(), **evaluation):
    return WerewolfConfig(
        run={"dir": tmp_path, "name": "run"},
        rollout={"max_attempts": 1, "context_tokens": 3072, "reply_tokens": 20},
        evaluation={"deals": 2, **evaluation},
        players={name: {"model": "fake-model"} for name in players},
    )


async def test_an_evaluation_plays_every_deal_on_both_sides_and_nothing_can_be_trained_on(client, policy, tmp_path):
    config = make_config(tmp_path, temperature=0.5)
    make_evaluation("step 0", 0).write(config.run_dir / EVALUATIONS_FOLDER / "step-000000.json")
    make_evaluation("step 5", 5).write(config.run_dir / EVALUATIONS_FOLDER / "step-000005.json")
    make_evaluation("step 9", 9).write(config.run_dir / EVALUATIONS_FOLDER / "step-000009.json")
    games, seen = RolloutQueue(client, GAME, config.rollout), []
    async with runner_at(client):
        evaluation = await evaluate(config, games, policy, alive, seen.append, "step 5")
        again = await evaluate(config, games, policy, alive, seen.append, "step 5", resumed=True)
    assert again == evaluation  # not one game was played a second time
    rollouts = await client.query_rollouts()
    keep_evaluated(config, None, "step 5", "-evaluation")
    kept = json.loads((config.run_dir / "evaluated/step-5/evaluated.json").read_text())
    assert kept["label"] == "step 5" and all(game.game_id.startswith(kept["games"]) for game in evaluation.games)
    assert len(rollouts) == len(evaluation.games) == seen[-1].finished == 8
    assert {rollout.mode for rollout in rollouts} == {"val"}
    (resources,) = await client.query_resources()
    assert resources.resources_id == "run-1-evaluation.policy-000005"
    assert PolicyResources.decode(resources).sampling.temperature == 0.5

    tasks = [GameTask.decode(rollout.input) for rollout in rollouts]
    assert {task.trainable for task in tasks} == {frozenset()}
    for opponent in ("scripted", "random"):
        lineup = [(game.deal, game.sides_of("policy")) for game in evaluation.against(opponent)]
        assert lineup == [(deal, [side]) for deal in held_out_deals(2, 1) for side in ("wolf", "good")]

    statistics = evaluation.statistics()
    assert (statistics.conduct.games, statistics.all_games.games) == (8, 8)
    assert statistics.conduct_by_side["wolf"].leaks > 0 and statistics.conduct.turns > 8
    assert (evaluation.label, evaluation.player, evaluation.temperature) == ("step 5", "policy@5", 0.5)
    assert evaluation.opponents == {"scripted": 4, "random": 4}
    assert {side: behaviour.games for side, behaviour in evaluation.behaviour.items()} == {"wolf": 4, "good": 4}
    wolves, good = evaluation.behaviour["wolf"], evaluation.behaviour["good"]
    # It names seat 1 whatever it is asked, which is no wolf's in these deals, and cannot be claimed to be anything.
    assert set(wolves.kills) <= {"villager", "seer"} and wolves.kills and set(good.votes) == {"good"}
    assert set(wolves.claims["wolf"]) == {"none"} == set(good.claims["villager"])
    assert [game.game_id for game in evaluation.samples] == [
        game.game_id
        for opponent in ("scripted", "random")
        for side in ("wolf", "good")
        for game in evaluation.against(opponent)
        if game.sides_of("policy") == [side]
    ]
    for sample in evaluation.samples:
        assert "夜" in sample.transcript
        for seat in sample.seats:
            own = seat.policy == "policy"
            assert own == (sample.players[seat.side] == "policy") == (seat.reward is not None) == bool(seat.turns)
            assert {turn.reply for turn in seat.turns} <= {"发言：我是狼人。\n决定：1号"}
    # With what the run played before, but neither an earlier try of this evaluation nor what came of later weights.
    assert set(evaluation.ratings) == {"policy@0", "policy@5", "scripted", "random"}
    assert evaluation.ratings["scripted"].games == 8


async def test_turns_of_a_match_give_no_trajectory(client, policy, tmp_path):
    config = make_config(tmp_path)
    tasks = match_tasks("policy", "random", held_out_deals(1, 1), config, "match")
    async with runner_at(client):
        played = await RolloutQueue(client, GAME, config.rollout).play(
            tasks, policy, alive, lambda now: None, mode="val"
        )
    found = build_trajectories(played.finished, partial(game_rewards, weights=RewardConfig()), 100_000)
    assert played.turns_stored > 0
    assert (found.trajectories, found.left_out) == ((), {"not_trainable": played.turns_stored})


async def test_any_two_players_can_be_matched(client, tmp_path):
    config = make_config(tmp_path)
    tasks = match_tasks("scripted", "random", held_out_deals(4, 1), config, "match")
    async with runner_at(client):
        played = await RolloutQueue(client, GAME, config.rollout).play(
            tasks, RESOURCES, alive, lambda now: None, mode="val"
        )
    records = record_games(tasks, played.finished)
    scores = [score_of_both_sides(records, name, seed=1) for name in ("scripted", "random")]
    assert [score.games for score in scores] == [8, 8] and scores[0].wins == scores[1].losses
    assert {seat.turns for game in records for seat in game.seats} == {0}


async def test_games_that_fail_are_counted_and_not_taken_for_losses(client, policy, tmp_path):
    away = FakeChatApi(lambda messages: "")
    await away.start()
    strong = away.endpoint(tries=1)
    await away.stop()
    policy = policy.model_copy(update={"players": {"strong": strong}})
    config = make_config(tmp_path, players=["strong"], deals=1, opponents=["random", "strong"])
    async with runner_at(client):
        evaluation = await evaluate(
            config, RolloutQueue(client, GAME, config.rollout), policy, alive, lambda now: None, "first"
        )
    assert len(evaluation.games) == 2 and evaluation.opponents == {"random": 2, "strong": 2}
    (reason,) = evaluation.failures
    assert evaluation.failures[reason] == 2 and "EndpointUnavailable" in reason
    strong = evaluation.statistics().by_opponent["strong"]
    assert (strong.not_finished, strong.both_sides.games, strong.both_sides.win_rate) == (2, 0, None)
    metrics = evaluation.metrics()
    assert metrics["evaluation/games/not_finished"] == 2 and "evaluation/win_rate/both/vs/strong" not in metrics


async def test_what_cannot_be_evaluated_is_refused_before_a_game_is_played(client, tmp_path):
    games = RolloutQueue(client, GAME, make_config(tmp_path).rollout)
    for config, label, message in (
        (
            make_config(tmp_path, opponents=["initial"]),
            "a",
            "'initial' is not served; there are expert, patient, random, scripted",
        ),
        (make_config(tmp_path), "a/b", "'a/b' cannot label"),
        (make_config(tmp_path, deals=0), "a", "evaluation.deals"),
    ):
        with pytest.raises(ValueError, match=message):
            await evaluate(config, games, RESOURCES, alive, lambda now: None, label)
    unreadable = make_config(tmp_path).run_dir / EVALUATIONS_FOLDER / "step-000000.json"
    unreadable.parent.mkdir(parents=True)
    unreadable.write_text("{}")
    with pytest.raises(ValueError, match=r"step-000000.json is no evaluation"):
        await evaluate(make_config(tmp_path), games, RESOURCES, alive, lambda now: None, "a")
    assert (await client.query_rollouts()).total == 0


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_model_goes_by_its_folder_or_its_checkpoint(tmp_path):
    assert default_label(tmp_path / "qwen3-8b") == "qwen3-8b"
    assert default_label(tmp_path / "checkpoints" / "step-000003" / "huggingface") == "step-000003"
    assert default_label(tmp_path / ".cache" / "狼,人") == "狼-人"
    assert default_label(tmp_path / "...") == "model"


def test_the_evaluated_folders_tokenizer_is_kept_with_its_label(tmp_path):
    config = make_config(tmp_path)
    folder = tmp_path / "other/checkpoints/step-000002/huggingface"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    keep_evaluated(config, folder, "step-000002", "")
    kept = config.run_dir / "evaluated/step-000002"
    about = json.loads((kept / "evaluated.json").read_text())
    assert about == {"label": "step-000002", "model": str(folder), "games": "run-step-000002-"}
    assert (kept / "tokenizer.json").read_text() == "{}"
    keep_evaluated(config, tmp_path / "nothing-here", "attached", "")
    assert [file.name for file in (config.run_dir / "evaluated/attached").iterdir()] == ["evaluated.json"]


def test_a_further_evaluation_sorts_behind_the_others_and_a_repeated_one_replaces_itself(tmp_path):
    files = []
    for label in ("step 10", "step 3", "step 10"):
        files.append(file_of(tmp_path, label))
        make_evaluation(label).write(files[-1])
    assert [file.name for file in files] == ["0000-step-10.json", "0001-step-3.json", "0000-step-10.json"]
    assert [evaluation.label for evaluation in read_evaluations(tmp_path)] == ["step 10", "step 3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "evaluation.deals is 0"),
        (["--set", "evaluation.deals=1", "--label", "a/b"], "'a/b' cannot label"),
        (["--set", "evaluation.deals=1", "--model", "not-there"], "not-there does not exist"),
        (["--set", "evaluation.opponents=[policy]"], "cannot be its own opponent"),
        (["--set", "evaluation.opponents=[random, random]"], "named twice"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_starts(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["evaluate", "--set", f"run.dir={tmp_path}", *arguments])
    assert main() == 2
    assert message in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_hub_that_is_not_there_ends_the_command_by_its_name(tiny_model, tmp_path, caplog, monkeypatch):
    address = f"http://127.0.0.1:{free_port()}"
    settings = [f"run.dir={tmp_path}", "evaluation.deals=1", f"store.url={address}", "store.patience_seconds=0.1"]
    settings.append(f"model.path={tiny_model}")
    monkeypatch.setattr("sys.argv", ["evaluate", *(part for one in settings for part in ("--set", one))])
    monkeypatch.setattr("algo.run.command_line.set_up_logging", lambda level, file: None)
    assert main() == 1
    assert f"no hub answers at {address}" in caplog.text
    assert list(tmp_path.glob("*/evaluations")) == []


def test_tables_show_what_was_found_and_what_was_not(capsys):
    behaviour = {"good": Behaviour(games=2, votes={"wolf": 3, "good": 1}, claims={"seer": {"seer": 2}})}
    reasons = {"CannotPlay: [red]no[/]": 1}
    evaluation = make_evaluation(opponents=("scripted", "random"), failures=reasons, behaviour=behaviour)
    (evaluation,) = with_ratings([evaluation.model_copy(update={"games": evaluation.against("scripted")})])
    show_evaluation(evaluation, Console(width=80))
    shown = capsys.readouterr().out
    deeds = [line.split() for line in shown.splitlines() if line.strip().startswith("good")]
    assert deeds == [
        ["good", "votes", "wolf", "75", "%,", "good", "25", "%", "of", "4"],
        ["good", "claims", "as", "seer", "seer", "100", "%", "of", "2"],
    ]
    assert "50 % (9–91)" in shown and "CannotPlay: [red]no[/]" in shown
    (random,) = (line for line in shown.splitlines() if "random" in line)
    assert random.split() == ["random", "–", "–", "–", "0", "0", "4"]
    assert "policy@5" in shown and all(len(line) <= 80 for line in shown.splitlines())
