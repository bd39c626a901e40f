"""Whom people play, and what becomes of it: demonstrations that are imitated, evaluations that are counted.

The vLLM and the chat endpoint here are fakes; ``tests/end_to_end/test_web.py`` has a real vLLM.
"""

import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack

import pytest
import torch
from safetensors.torch import load_file

from algo import evaluate
from algo import publish as publish_command
from algo.evaluation.people import PeopleScores
from algo.publish import publish
from algo.run.checkpoints import RunState
from algo.serve import parse_arguments as serve_arguments
from algo.serve import served_checkpoint
from algo.serving.launch import policy_launches
from algo.werewolf.demonstrations import (
    OTHER_PLAYER,
    NoUsableGames,
    StoredGames,
    demonstrations_of,
    stored_games,
)
from configs.loading import as_yaml, load_config
from configs.roles_and_decks import Role
from configs.section import ConfigError
from runners.policy.connections import endpoint_of
from runners.werewolf.web.folders import RunFolders
from runners.werewolf.web.opponents import Opponents
from runners.werewolf.web.run_numbers import RunNumbers
from runners.werewolf.web.seats import UnusableTable
from store.endpoints import ServedPolicy
from store.schema import ChatEndpoint, PolicyResources
from store.werewolf import DEMONSTRATION, PERSON
from tests.support.fakes import FakeVllm
from tests.support.hub.hub_process import HubProcess
from tests.support.processes import exit_status
from tests.support.werewolf.seat_players import open_table, play_seat, reply_to
from tests.support.werewolf.web_server import WebServer


@pytest.fixture
async def policy(tiny_tokenizer):
    """``await policy(root)``: the address of a fake vLLM that serves a folder."""
    async with AsyncExitStack() as stack:

        async def serve(root):
            server = await stack.enter_async_context(FakeVllm(tiny_tokenizer, reply_to, str(root)))
            server.context_tokens = 6000
            return server.endpoint

        yield serve


def make_checkpoint(runs, tiny_model):
    run = runs / "first"
    checkpoint = run / "checkpoints" / "step-000024"
    checkpoint.mkdir(parents=True)
    (checkpoint / "huggingface").symlink_to(tiny_model)
    (run / "prompt.txt").write_text("你是{seat}号。")
    (run / "config.yaml").write_text(f"game: {{prompts: {{wolf: {run}/prompt.txt}}}}\nrollout: {{temperature: 0.5}}\n")
    state = {"run_id": "first-0123abcd", "policy_version": 24, "step": 24}
    (checkpoint / "state.json").write_text(json.dumps(state))
    (run / "run.json").write_text(json.dumps(state | {"policy_version": 0, "step": 0}))
    return checkpoint / "huggingface"


async def test_a_demonstration_is_imitated_and_no_one_elses_turns(hub, client, policy, tiny_model, tmp_path):
    runs = tmp_path / "runs"
    url = await policy(make_checkpoint(runs, tiny_model))
    config = load_config(None, [f"model.path={tiny_model}", "warm_start.selection={losers: 1.0, draws: 1.0}"])
    with pytest.raises(NoUsableGames, match="play some with"):
        await stored_games(client, StoredGames(kept_for=DEMONSTRATION), 9)
    async with WebServer(tmp_path, runs=runs, hub=hub.url, tokenizer=tiny_model, model_url=url) as server:
        _, (seat,) = await open_table(server.session, preset="5p_tiny", seed=4, others="policy", record=DEMONSTRATION)
        page = await play_seat(server.session, seat, "我说的是人话。")
        _, replay = await server.get("/api/game", id=page["replay"], view="god")
    found = await stored_games(client, StoredGames(kept_for=DEMONSTRATION), 9)
    (game,) = found.finished
    assert {seat.policy for seat in game.outcome.seats} == {PERSON, "policy"}
    imitated = demonstrations_of(found.finished, config, PERSON)
    (trajectory,) = imitated.trajectories
    assert trajectory.actor == f"seat {page['seat']:02d}"
    of_person = [turn for turn in game.turns if turn.policy == PERSON]
    assert imitated.turns == len(of_person) and "我说的是人话。" in {turn.reply for turn in of_person}
    assert imitated.left_out[OTHER_PLAYER] == sum(turn.policy == "policy" for turn in game.turns) > 0
    assert len(demonstrations_of(found.finished, config).trajectories) == 5  # else the policy would imitate itself
    assert replay["about"]["version"] == 24 and replay["about"]["run"] == "first-0123abcd"
    assert len(replay["turns"]) == len(game.turns)


@pytest.fixture
async def own_hub(tmp_path):
    """A hub of ours, which never had the run of the checkpoint."""
    hub = await HubProcess(tmp_path).start()
    yield hub
    hub.kill()


async def test_people_against_step_24_are_counted_and_stand_on_the_runs_page(
    own_hub, policy, tiny_model, tmp_path, capsys
):
    runs = tmp_path / "runs"
    url = await policy(make_checkpoint(runs, tiny_model))
    results = []
    async with WebServer(tmp_path, runs=runs, hub=own_hub.url, model_url=url) as server:
        for seed, side in ((1, "wolf"), (2, "good"), (3, "good")):
            wanted = dict(preset="5p_tiny", seed=seed, others="policy", side=side, record="evaluation")
            _, (seat,) = await open_table(server.session, **wanted)
            results.append((side, (await play_seat(server.session, seat))["game"]["result"]))
        _, (seat,) = await open_table(server.session, preset="5p_tiny", seed=4, others="policy")  # not kept
        await play_seat(server.session, seat)
        rows = (await server.get("/api/games", people="1"))[1]["rows"]
        assert [(row["mode"], row["version"], row["people"]) for row in rows] == [("val", 24, True)] * 3
    config = load_config(None, [f"run.dir={runs}", f"store.url={own_hub.url}", f"model.path={tiny_model}"])
    options = evaluate.parse_arguments(["--people", "first"])
    code = await asyncio.to_thread(evaluate.run_people, config, options)
    assert code == 0 and "people against" in capsys.readouterr().out
    (against,) = PeopleScores.model_validate_json((runs / "first" / "people.json").read_text()).against
    assert (against.player, against.policy_version, len(against.games)) == ("policy", 24, 3)
    for side in ("wolf", "good"):
        of_side = [result for played, result in results if played == side]
        assert (against.by_side[side].games, against.by_side[side].wins) == (len(of_side), of_side.count(side))
    assert RunNumbers(RunFolders(runs)).of("first", 0)["people"][0]["label"] == "version 24"


async def test_a_checkpoint_is_played_with_its_prompts_and_under_its_runs_name(policy, tiny_model, tmp_path):
    url = await policy(make_checkpoint(tmp_path, tiny_model))
    found = await Opponents(runs=RunFolders(tmp_path), model_url=url.removesuffix("/v1") + "/").newest()
    assert found.resources_id == "first-0123abcd.policy-000024" and found.endpoints == (url,)
    assert (found.sampling.temperature, found.prompt_templates) == (0.5, {"wolf": "你是{seat}号。"})
    other = await Opponents(model_url=await policy("/nowhere")).newest()
    assert other.resources_id.startswith("web-") and other.model == "policy"
    # Another model behind the same address has connections and a tokenizer of its own.
    assert (await Opponents(model_url=await policy("/elsewhere")).newest()).run_name != other.run_name


async def test_a_published_policy_of_one_side_plays_that_side_of_the_games_it_trained_with(
    policy, tiny_model, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    checkpoint = make_checkpoint(tmp_path / "runs", tiny_model)
    checkpoint.unlink()  # a link to a folder of other tests
    shutil.copytree(tiny_model, checkpoint)
    (checkpoint / "additional_chat_templates").mkdir()
    run = checkpoint.parents[2]
    game = "preset: 7p, train_sides: [wolf], opponent: a, rules: {speech_chars: 40, sheriff: null}"
    game += ", prompts: {wolf: runs/first/prompt.txt}"
    config = f"run: {{}}\nmodel: {{}}\ngame: {{{game}}}\nplayers: {{a: {{model: b}}}}\n"
    config += "serving: {mode: attach, urls: [http://10.0.0.1:8000], devices: [3]}\n"
    config += "training: {device: cpu, sequence_parallel: 4}\n"
    (run / "config.yaml").write_text(config)
    published = publish(run, tmp_path / "models" / "wolves")
    assert str(tmp_path) not in (published.parents[2] / "config.yaml").read_text()
    text = (published.parents[2] / "config.yaml").read_text()
    assert "serving: {}" in text and "sequence_parallel" not in text  # without addresses and sizes of this machine
    again = tmp_path / "models" / "_我的 狼 #1.2"
    for folder, code in ((again, 0), ("/dev/null/x", 2)):
        monkeypatch.setattr(sys, "argv", ["publish", str(tmp_path / "models" / "wolves"), str(folder)])
        assert exit_status(publish_command.main) == code
    assert capsys.readouterr().out.endswith(f"make play MODEL='{again}'\n")
    served, _ = served_checkpoint(serve_arguments([str(again)]))
    assert load_config(again / "config.yaml").run.name == "1-2" and served.model.path.is_relative_to(again)
    assert json.loads((served.model.path / "config.json").read_text())["dtype"] == "bfloat16"
    league = "model: {lora_rank: 8}\nleague: {every_steps: 1}\ngame: {opponent: past}\nrollout: {max_policy_lag: 1}\n"
    (again / "config.yaml").write_text(league)  # valid with adapters only
    assert served_checkpoint(serve_arguments([str(again)]))[0].model.path == served.model.path
    (again / "config.yaml").write_text("agents: {}\n")
    with pytest.raises(ConfigError, match=r"trained an agent, which plays no game; its model is .*huggingface"):
        served_checkpoint(serve_arguments([str(again)]))
    shutil.rmtree(again)
    assert load_file(published / "model.safetensors")["lm_head.weight"].dtype is torch.bfloat16
    with pytest.raises(FileExistsError, match="name another folder"):
        publish(run, tmp_path / "models" / "wolves")
    shutil.copytree(published, tmp_path / "imitated" / "huggingface")
    start = publish(tmp_path / "imitated", tmp_path / "models" / "start")
    assert {file.name for file in start.iterdir()} == {file.name for file in published.iterdir()}
    (run / "config.yaml").write_text("agents: {}\nreward: {weights: {correct: 1.0}}\n")
    agent = publish(run, tmp_path / "models" / "agent")
    assert {file.name for file in agent.iterdir()} == {file.name for file in published.iterdir()}
    shutil.rmtree(run)
    served, version = served_checkpoint(serve_arguments([str(tmp_path / "models" / "wolves")]))
    assert (served.model.path, version, served.game.preset) == (published.absolute(), 24, "7p")
    async with WebServer(tmp_path, runs=tmp_path / "models", model_url=await policy(published)) as server:
        choices = (await server.get("/api/tables"))[1]
        assert choices["practice"] == {"preset": "7p", "sides": ["wolf"]}
        assert choices["policy"] == "wolves.policy-000024"
        _, (seat,) = await open_table(server.session, preset="7p", seed=4, others="policy", side="good")
        page = await play_seat(server.session, seat)
        _, replay = await server.get("/api/game", id=page["replay"], view="god")
    roles, players = replay["roles"], replay["players"]
    seats = {(Role(roles[seat]).side, player) for seat, player in players.items()}
    assert seats == {("wolf", "policy"), ("good", "scripted"), ("good", PERSON)}
    spoken = [event["text"] for event in replay["events"] if event["kind"] == "speech"]
    assert spoken and max(map(len, spoken)) <= 40


@pytest.mark.parametrize(
    "settings",
    [
        ("serving.mode=attach", "serving.urls=[http://gpus:8000, http://gpus:8001]"),
        ("training.device=cuda", "serving.servers=2", "serving.devices=[2, 3]"),
        ("training.device=cuda", "serving.share_gpus=true", "serving.weight_transfer=ipc"),
    ],
)
def test_a_checkpoint_is_served_however_its_run_served_its_policy(tmp_path, settings):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine", *settings])
    checkpoint = config.run_dir / "checkpoints" / "step-000003"
    checkpoint.mkdir(parents=True)
    (config.run_dir / "config.yaml").write_text(as_yaml(config), encoding="utf-8")
    (checkpoint / "state.json").write_text(RunState(run_id="mine-1", step=3, policy_version=3).model_dump_json())
    served, version = served_checkpoint(serve_arguments([str(config.run_dir)]))
    (launch,) = policy_launches(served)
    assert (launch.model, launch.devices, version) == (checkpoint / "huggingface", (0,), 3)


async def test_the_policy_of_a_run_is_found_among_those_of_a_hub(hub, client, caplog):
    for run, version in (("old-00000001", 5), ("old-00000001", 6), ("new-00000002", 1), ("older-00000003", 9)):
        resources = PolicyResources(run_name=run, version=version, endpoints=("http://127.0.0.1:1/v1",), model="m")
        await client.update_resources(resources.resources_id, resources.encode())
    assert (await Opponents(client).newest()).run_name == "older-00000003"
    assert (await Opponents(client, run="old").newest()).resources_id == "old-00000001.policy-000006"
    assert not (await Opponents(client, run="nobodys").newest()).endpoints
    assert "no policy of the run nobodys" in caplog.text


async def test_a_policy_at_an_address_plays_in_place_of_those_that_learned_together(hub, client, policy):
    url, gone = await policy("/nowhere"), ("http://127.0.0.1:1/v1",)
    team = tuple(ServedPolicy(name=name, player="policy", endpoints=gone, model="m") for name in ("wolves", "goods"))
    resources = PolicyResources(run_name="team-00000001", version=1, endpoints=gone, model="m", policies=team)
    await client.update_resources(resources.resources_id, resources.encode())
    found = await Opponents(client, run="team", model_url=url).newest()
    assert endpoint_of(found, "policy", "game/1") == (url, "policy")


@pytest.mark.parametrize(
    "named",
    [
        {"endpoints": ("http://169.254.1.1/v1",)},
        {"players": {"api": ChatEndpoint(endpoint="http://169.254.1.1/v1", model="m")}},
    ],
    ids=lambda named: next(iter(named)),
)
async def test_no_table_is_opened_that_calls_an_address_which_only_the_hub_names(hub, client, tmp_path, named):
    resources = PolicyResources(run_name="run", version=0, **({"endpoints": (), "model": "m"} | named))
    await client.update_resources(resources.resources_id, resources.encode())
    wanted = {"preset": "5p_tiny", "people": 1, "clock": 0, "others": "api" if "players" in named else "policy"}
    async with WebServer(tmp_path, hub=hub.url) as server:
        with pytest.raises(UnusableTable, match=r"--allow-address http://169\.254\.1\.1"):
            await server.tables.open(wanted)
        assert (await server.tables.open(wanted | {"others": "scripted"}))["seats"]  # calls no model
    own = {"allowed": ["http://169.254.1.1"], "chat_models": ["own=m@https://8.8.8.8/v1"]}
    opponents = Opponents(client, hub=hub.url, **own)
    await opponents.addresses.check(await opponents.newest())


async def test_players_and_a_judge_that_need_a_runners_key_are_not_used(hub, client):
    keyed = ChatEndpoint(endpoint="https://8.8.8.8/v1", model="m", api_key_env="OTHERS_API_KEY")
    free = keyed.model_copy(update={"api_key_env": None})
    named = {"players": {"keyed": keyed, "free": free}, "judge": keyed}
    resources = PolicyResources(run_name="run", version=0, endpoints=(), model="m", **named)
    await client.update_resources(resources.resources_id, resources.encode())
    found = await Opponents(client).newest()
    assert (list(found.players), found.judge) == (["free"], None)
    with pytest.raises(ValueError, match="built-in player"):
        Opponents(chat_models=["expert=m@https://8.8.8.8/v1"])


async def test_a_chat_model_plays_with_its_key_and_is_asked_nowhere_else(tmp_path, monkeypatch, chat_api):
    monkeypatch.setenv("FAKE_API_KEY", "secret-of-the-test")
    chat_api.answer, chat_api.key = lambda messages: reply_to(messages[-1]["content"]), "secret-of-the-test"
    chat = f"fake=fake-model@{chat_api.url}/v1"
    async with WebServer(tmp_path, chat_models=[chat]) as server:
        _, (seat,) = await open_table(server.session, preset="5p_tiny", seed=4, others="fake")
        page = await play_seat(server.session, seat)
        assert page["phase"] == "over" and len(chat_api.requests) > 4
        (kept,) = (tmp_path / "kept").glob("*.json")
        assert "secret-of-the-test" not in kept.read_text()
        assert sorted(set(json.loads(kept.read_text())["players"].values())) == ["fake", PERSON]
        chat_api.key = "another"
        _, (seat,) = await open_table(server.session, preset="5p_tiny", seed=4, others="fake")
        page = await play_seat(server.session, seat)
        assert page["phase"] == "failed" and "401" in page["problem"]
        assert "secret-of-the-test" not in json.dumps(page)
    with pytest.raises(ValueError, match="https"):
        Opponents(chat_models=["fake=m@http://models.example/v1"])


async def test_an_unreachable_policy_is_reported_before_the_game(tmp_path, hub, client):
    resources = PolicyResources(run_name="r-1", version=1, endpoints=("http://127.0.0.1:9/v1",), model="policy")
    await client.update_resources(resources.resources_id, resources.encode())
    async with WebServer(tmp_path, hub=hub.url) as server:
        with pytest.raises(UnusableTable, match=r"127\.0\.0\.1:9"):
            await server.tables.open({"others": "policy"})
    async with WebServer(tmp_path, model_url="http://127.0.0.1:9") as server:
        assert (await server.get("/api/tables"))[0] == 400
        assert (await server.get("/api/config"))[0] == 200  # the games are there all the same


async def test_a_game_that_cannot_be_kept_is_reported_before_it_begins(tmp_path, hub):
    for record, given, remedy in (("evaluation", {}, "--store"), ("demonstration", {"hub": hub.url}, "--tokenizer")):
        async with WebServer(tmp_path, **given) as server:
            with pytest.raises(UnusableTable, match=remedy):
                await server.tables.open({"record": record})


async def test_a_hub_that_is_away_at_the_end_costs_no_game(tmp_path, hub):
    async with WebServer(tmp_path, hub=hub.url, retry_seconds=0.1) as server:
        _, (seat,) = await open_table(server.session, preset="5p_tiny", seed=4, record="evaluation")
        await hub.stop()
        page = await play_seat(server.session, seat)
        assert page["phase"] == "over" and "stored as a file" in page["problem"] and page["replay"].startswith("table:")
