"""The warm start: which replies are imitated, and that a model fine-tuned on them has learned them."""

import asyncio
import json
import re
from collections import Counter, defaultdict

import pytest
import torch
from transformers import AutoTokenizer, Qwen3Config

from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.rollouts.triplets import read_attempt
from algo.run.folder import open_run
from algo.sequences.selection import NOT_SAMPLED, ROLE_NOT_SELECTED
from algo.sequences.trajectories import NOT_TRAINABLE
from algo.werewolf.demonstrations import (
    CUT_REPLY,
    NothingToImitate,
    StoredGames,
    demonstration_tasks,
    demonstrations_of,
    split_by_deal,
    stored_games,
)
from algo.werewolf.imitation import (
    check_tokenizer,
    check_warm_start,
    imitation_batch,
    listening_of,
    run_id_of,
    warm_start,
)
from algo.werewolf.matches import held_out_deals
from algo.werewolf.resources import game_resources
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.warm_start import WarmStartConfig
from runners.werewolf.agent import WerewolfGames
from runners.werewolf.prompts_zh.names import ROLE_NAMES
from runners.werewolf.werewolf_play import WerewolfPlay
from runners.worker import Worker
from store.players import SCRIPTED_PLAYER
from store.token_spans import to_span
from store.werewolf import GAME, seat_name
from tests.support.small_models import load_model, plain_log_probs
from tests.support.tasks import HERE


def make_config(tiny_model, **overrides):
    settings = {
        "run.name": "start", "model.path": tiny_model, "rollout.reply_tokens": 60, "rollout.context_tokens": 6000,
        "warm_start.games": 5, "warm_start.held_out_games": 2, "warm_start.epochs": 2, "log.transcripts_per_step": 1,
    }  # fmt: skip
    return load_config(None, [f"{name}={value}" for name, value in (settings | overrides).items()])


def played(config):
    """The warm start's games, played without a hub."""

    async def play():
        resources = policy_resources(config, "run", str(config.model.path), **game_resources(config))
        games, finished = WerewolfGames(HERE), []
        for task in demonstration_tasks(config):
            records = []
            result = await games.play(task, resources, lambda turn, *times, records=records: records.append(turn))
            spans = [
                to_span(each, rollout_id=task.game_id, attempt_id="a", sequence_id=number, start_time=0.0, end_time=0.0)
                for number, each in enumerate([*records, result])
            ]
            finished.append(read_attempt(GAME, task.game_id, "a", spans))
        await games.close()
        return finished

    return asyncio.run(play())


@pytest.fixture(scope="module")
def games(tiny_model):
    return played(make_config(tiny_model))


def turns_of(games):
    return [triplet for game in games for triplet in game.triplets]


def test_games_of_the_small_table_cost_half_a_token_a_character(tiny_model):
    """As long as the tokenizer's corpus (TABLE_TALK) has the words of the prompts and of scripted players."""
    config = make_config(
        tiny_model, **{"game.prompts": "{system: configs/prompts/brief.txt}", "game.preset": "5p_tiny"}
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    trajectories = demonstrations_of(played(config), config).trajectories
    characters = sum(len(tokenizer.decode(each.token_ids, skip_special_tokens=True)) for each in trajectories)
    assert 0.2 < sum(len(each.token_ids) for each in trajectories) / characters < 0.5


def test_every_game_has_a_deal_of_its_own_that_no_evaluation_plays(tiny_model):
    config = make_config(tiny_model, **{"warm_start.games": 300})
    tasks = demonstration_tasks(config)
    assert len(tasks) == len({task.seed for task in tasks}) == len({task.game_id for task in tasks}) == 302
    assert not any(task.seed % 2 for task in tasks) and all(deal % 2 for deal in held_out_deals(300, config.run.seed))
    assert all(task.demonstrators == {SCRIPTED_PLAYER} and task.trainable == {"wolf", "good"} for task in tasks)
    assert tasks == demonstration_tasks(config)


def test_winners_are_imitated_in_every_reply_and_all_other_turns_are_counted(tiny_model, games):
    found = demonstrations_of(games, make_config(tiny_model))
    outcomes = {
        (game.outcome.task, seat_name(seat.seat)): seat.outcome for game in games for seat in game.outcome.seats
    }
    assert {outcomes[each.task_id, each.actor] for each in found.trajectories} == {1.0}
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    imitated = Counter()
    for trajectory in found.trajectories:
        starts = [0, *trajectory.turn_ends]
        for start, end in zip(starts, trajectory.turn_ends, strict=False):
            ids = [trajectory.token_ids[at] for at in range(start, end) if trajectory.loss_mask[at]]
            assert ids[-1] == tokenizer.eos_token_id
            imitated[trajectory.task_id, trajectory.actor, tokenizer.decode(ids[:-1])] += 1
    assert imitated == Counter(
        (turn.metadata["task"], turn.metadata["actor"], turn.metadata["reply"])
        for turn in turns_of(games)
        if outcomes[turn.metadata["task"], turn.metadata["actor"]] == 1.0
    )
    assert found.turns + found.left_out.total() == len(turns_of(games)) and found.left_out[NOT_SAMPLED[-1.0]]
    assert found.reply_tokens == sum(sum(each.loss_mask) for each in found.trajectories)


@pytest.mark.parametrize(("weigh", "prompt_weight"), [("reply", 0.0), ("reply", 0.05), ("token", 0.5)])
def test_replies_or_tokens_weigh_alike_and_given_tokens_as_they_are_told(tiny_model, games, weigh, prompt_weight):
    found = demonstrations_of(games, make_config(tiny_model))
    batch = imitation_batch(found, WarmStartConfig(weigh=weigh, prompt_weight=prompt_weight))
    for weights, trajectory in zip(batch["loss_mask"].unbind(), found.trajectories, strict=True):
        is_reply = torch.tensor(trajectory.loss_mask).bool()
        replies = len(trajectory.turn_ends) if weigh == "reply" else int(is_reply.sum())
        assert weights[is_reply].sum().item() == pytest.approx(replies)
        assert weights[0] == 0 and torch.all(weights[~is_reply][1:] == torch.tensor(prompt_weight))


def test_votes_weigh_what_the_settings_say_and_a_question_that_nobody_was_asked_is_named(tiny_model, games, caplog):
    found = demonstrations_of(games, make_config(tiny_model))
    batch = imitation_batch(found, WarmStartConfig(question_weights={"exile_vote": 4.0}))
    weighed = defaultdict(set)
    for weights, trajectory in zip(batch["loss_mask"].unbind(), found.trajectories, strict=True):
        for (start, end), question in zip(trajectory.turn_spans(), trajectory.turn_questions, strict=True):
            weighed[question].add(round(weights[start:end].sum().item(), 5))
    assert weighed.pop("exile_vote") == {4.0}
    assert "speech" in weighed and set.union(*weighed.values()) == {1.0}
    imitation_batch(found, WarmStartConfig(question_weights={"exile_vot": 4.0}))
    (said,) = caplog.messages
    assert "names exile_vot, which no imitated reply answers; they answer: exile_vote" in said


def test_who_shows_how_to_play_is_noted_what_the_policy_would_be_asked_and_the_truth_is_learned(tiny_model, games):
    assert listening_of(games, make_config(tiny_model, **{"probes.listening": 0.0})) == []
    config = make_config(tiny_model, **{"probes.listening": 2.0})
    asked = played(config)
    assert [turn.prompt for turn in turns_of(asked)] == [turn.prompt for turn in turns_of(games)]  # the same games
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    rows = {}
    for game in asked:
        roles = {seat.seat: ROLE_NAMES[seat.role] for seat in game.outcome.seats}
        for row in listening_of([game], config):
            start = next(place for place, weight in enumerate(row.weights) if weight)
            question, answer = (tokenizer.decode(ids) for ids in (row.token_ids[:start], row.token_ids[start:]))
            (target,) = re.findall(r"你认为(\d+)号的身份", question)
            assert answer == roles[int(target)]
            rows[row] = answer
        for one in (one for note in game.notes for belief in note.beliefs for one in belief.asked):
            # A question follows a conversation that the seat has had so far, to the token.
            assert one.context_tokens in {
                len(turn.prompt["token_ids"]) + len(turn.response["token_ids"])
                for turn in game.triplets
                if turn.metadata["segment"] == one.segment
            }
    assert len(rows) > 20 and len(set(rows.values())) > 2

    found, listening = demonstrations_of(asked, config), list(rows)
    batch = imitation_batch(found, config.warm_start, listening, 2.0)
    weights = batch["loss_mask"].unbind()
    assert len(weights) == len(found.trajectories) + len(rows)
    assert all(of_row.sum().item() == pytest.approx(2.0) for of_row in weights[len(found.trajectories) :])


def test_roles_and_sides_are_chosen(tiny_model, games):
    chosen = {"warm_start.selection": "{roles: [seer], losers: 1.0, draws: 1.0}"}
    found = demonstrations_of(games, make_config(tiny_model, **chosen))
    assert {each.role for each in found.trajectories} == {"seer"} and found.left_out[ROLE_NOT_SELECTED]
    config = make_config(tiny_model, **{"game.train_sides": "[wolf]", "game.opponent": "scripted"})
    found = demonstrations_of(played(config), config)
    assert {each.side for each in found.trajectories} == {"wolf"} and found.left_out[NOT_TRAINABLE]


def test_replies_that_are_cut_or_unusable_are_only_context(tiny_model):
    config = make_config(
        tiny_model, **{"rollout.reply_tokens": 12, "warm_start.selection": "{losers: 1.0, draws: 1.0}"}
    )
    games = played(config)
    found = demonstrations_of(games, config)
    cut = [turn for turn in turns_of(games) if turn.metadata["finish_reason"] == "length" and turn.metadata["valid"]]
    assert found.left_out[CUT_REPLY] == len(cut) > 0
    assert found.turns + found.left_out.total() == len(turns_of(games))
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    inside = 0
    for trajectory in found.trajectories:
        ids = zip(trajectory.token_ids, trajectory.loss_mask, strict=True)
        given = tokenizer.decode([token for token, is_reply in ids if not is_reply])
        inside += sum(
            turn.metadata["reply"] in given
            for turn in cut
            if (turn.metadata["task"], turn.metadata["actor"]) == (trajectory.task_id, trajectory.actor)
        )
    assert inside > 0  # later replies of the seat were given after them


def test_a_deal_is_learned_from_or_held_out_never_both(games):
    twice = [*games, *games]
    learn, measure = split_by_deal(twice, 3, seed=1)
    assert len(measure) == 4 and len(learn) + len(measure) == len(twice)
    assert not {game.outcome.seed for game in learn} & {game.outcome.seed for game in measure}
    assert split_by_deal(twice, 3, seed=1) == (learn, measure)
    with pytest.raises(NothingToImitate, match="held_out_games"):
        split_by_deal(games, len(games), seed=1)


def test_nothing_to_imitate_is_reported_with_the_reasons(tiny_model, games):
    config = make_config(tiny_model, **{"training.max_sequence_tokens": 300, "rollout.context_tokens": 300})
    with pytest.raises(NothingToImitate, match="too_long"):
        demonstrations_of(games, config)


def test_games_of_another_tokenizer_are_refused(tiny_model, games, tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    check_tokenizer(games, tiny_model)
    words = {f"w{number}": number for number in range(2000)}
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")))
    other.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="another tokenizer"):
        check_tokenizer(games, tmp_path)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("warm_start.demonstrator", "policy", "--from-run"),
        ("warm_start.selection.roles", "[witch]", r"warm_start\.selection\.roles has 'witch'"),
        ("rollout.thinking", "true", "--from-run"),
        ("model.path", "/nowhere", "/nowhere"),
    ],
)
def test_what_cannot_work_is_refused_by_name(tiny_model, setting, value, message):
    with pytest.raises(ConfigError, match=message):
        check_warm_start(make_config(tiny_model, **{setting: value}), stored=None)


def test_a_model_that_does_not_fit_the_machine_is_refused_before_anything_loads(tmp_path):
    """Its config.json is enough to tell: nothing of its hundreds of GB of weights is there."""
    layers = dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=160, num_attention_heads=64)
    Qwen3Config(vocab_size=151936, num_key_value_heads=8, head_dim=128, **layers).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")  # whole, and of no tensors
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(ConfigError, match=r"the machine needs \d{4}.*Adam's moments"):
        check_warm_start(make_config(tmp_path), stored=None)


def test_games_of_a_run_that_thought_may_be_taken(tiny_model):
    check_warm_start(make_config(tiny_model, **{"rollout.thinking": "true"}), stored=StoredGames("run-1"))


def test_a_run_is_named_by_its_folder_or_its_id(tiny_model, tmp_path):
    config = make_config(tiny_model, **{"run.dir": tmp_path})
    opened = open_run(config, False)
    assert run_id_of(config, "start") == opened.state.run_id
    assert run_id_of(config, opened.state.run_id) == opened.state.run_id


async def with_runner(client, work):
    play = WerewolfPlay(client)
    worker = Worker(client, play, "w", max_concurrent=4)
    working = asyncio.create_task(worker.run())
    try:
        return await work
    finally:
        worker.hand_back()
        await working
        await play.close()


async def nothing():
    pass


async def test_games_of_a_run_are_found_again_in_the_hub(client, tiny_model):
    config = make_config(tiny_model)

    def play(run_id):
        resources = policy_resources(config, run_id, str(tiny_model))
        return RolloutQueue(client, GAME, config.rollout).play(
            demonstration_tasks(config), resources, nothing, lambda now: None
        )

    mine, _ = await with_runner(client, asyncio.gather(play("mine"), play("others")))
    found = await stored_games(client, StoredGames("mine"), newest=100)
    assert {game.rollout_id for game in found.finished} == {game.rollout_id for game in mine.finished}
    by_id = {game.outcome.game_id: game for game in found.finished}
    assert [by_id[game.outcome.game_id].triplets for game in mine.finished] == [game.triplets for game in mine.finished]
    assert len((await stored_games(client, StoredGames("mine"), newest=3)).finished) == 3
    with pytest.raises(NothingToImitate, match="run 'nobodys'"):
        await stored_games(client, StoredGames("nobodys"), newest=3)


@pytest.mark.timeout(400)
async def test_what_was_imitated_is_learned_and_the_exported_model_has_learned_it(
    ray_cluster, hub, client, tiny_model, tmp_path
):
    config = make_config(
        tiny_model,
        **{
            "run.dir": tmp_path, "store.url": hub.url, "training.mini_batch_size": 4,
            "training.lr_schedule": "cosine", "warm_start.learning_rate": 0.003, "probes.listening": 1.0,
        },
    )  # fmt: skip
    opened = open_run(config, False)
    summary = await with_runner(client, warm_start(opened, None))
    before, *_, after = summary["held_out_loss"]
    assert after < before - 1.0
    assert summary["answers"] > 20 and summary["held_out_answer_loss"][-1] < summary["held_out_answer_loss"][0] - 1.0

    stored = await stored_games(client, StoredGames(opened.state.run_id), newest=7)
    _, held_out = split_by_deal(stored.finished, 2, config.run.seed)
    trajectories = demonstrations_of(held_out, config).trajectories
    model = load_model(summary["model"])
    with torch.no_grad():
        rows = [(plain_log_probs(model, each, temperature=1.0), torch.tensor(each.loss_mask)) for each in trajectories]
    loss = -sum((row * mask).sum() for row, mask in rows) / sum(mask.sum() for _, mask in rows)
    assert loss.item() == pytest.approx(after, abs=1e-4)

    metrics = [json.loads(line)["data"] for line in (opened.config.run_dir / "metrics.jsonl").read_text().splitlines()]
    first, last = metrics[1]["imitation/lr"], metrics[2]["imitation/lr"]
    assert 0.003 > first > last > 0.0  # the schedule moves on with every optimizer step, not every epoch
    assert summary["optimizer_steps"] == sum(each["imitation/optimizer_steps"] for each in metrics[1:])
