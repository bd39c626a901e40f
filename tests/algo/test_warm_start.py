"""The warm start: which replies are imitated, and that a model fine-tuned on them has learned them."""

import asyncio
import json
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.rollouts.triplets import read_attempt
from algo.run.folder import open_run
from algo.sequences.selection import NOT_SELECTED, ROLE_NOT_SELECTED
from algo.sequences.trajectories import NOT_TRAINABLE
from algo.werewolf.demonstrations import (
    CUT_REPLY,
    NoUsableGames,
    StoredGames,
    demonstration_tasks,
    demonstrations_of,
    split_by_deal,
    stored_games,
)
from algo.werewolf.imitation import games_in_tokens_of, imitation_batch, run_id_of, warm_start
from algo.werewolf.resources import game_resources
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.warm_start import WarmStartConfig
from runners.werewolf.agent import WerewolfGames
from store.werewolf import EVALUATION, GAME, PEOPLE, seat_name
from tests.algo.test_evaluate import runner_at
from tests.support.algo.playing import alive
from tests.support.fakes import spans_of
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
            finished.append(read_attempt(GAME, task.game_id, "a", spans_of([*records, result], task.game_id, "a")))
        await games.close()
        return finished

    return asyncio.run(play())


@pytest.fixture(scope="module")
def games(tiny_model):
    return played(make_config(tiny_model))


def turns_of(games):
    return [triplet for game in games for triplet in game.triplets]


def test_every_game_has_a_deal_of_its_own_that_no_evaluation_plays(tiny_model):
    config = make_config(tiny_model, **{"warm_start.games": 300})
    tasks = demonstration_tasks(config)
    assert len(tasks) == len({task.seed for task in tasks}) == len({task.game_id for task in tasks}) == 302
    assert not any(task.seed % 2 for task in tasks)
    assert all(task.demonstrators == {"scripted"} and task.trainable == {"wolf", "good"} for task in tasks)
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
    assert found.turns + found.left_out.total() == len(turns_of(games)) and found.left_out[NOT_SELECTED[-1.0]]
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
    only_checks = dict.fromkeys((*weighed, "exile_vote"), 0.0) | {"seer_check": 1.0}
    checking = imitation_batch(found, WarmStartConfig(question_weights=only_checks))
    assert 0 < len(checking) < len(found.trajectories) and all(row.any() for row in checking["loss_mask"].unbind())
    with pytest.raises(ConfigError, match="weigh no token above 0"):
        imitation_batch(found, WarmStartConfig(question_weights=only_checks | {"seer_check": 0.0}))
    caplog.clear()
    imitation_batch(found, WarmStartConfig(question_weights={"exile_vot": 4.0}))
    (said,) = caplog.messages
    assert "names exile_vot, which no imitated reply answers; they answer: exile_vote" in said


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
    batch, inside = imitation_batch(found, WarmStartConfig(prompt_weight=0.5)), 0
    for trajectory, weights in zip(found.trajectories, batch["loss_mask"].unbind(), strict=True):
        given = zip(trajectory.token_ids, weights.tolist(), trajectory.loss_mask, strict=True)
        given = [(token, weight) for token, weight, is_reply in given if not is_reply]
        context = tokenizer.decode([token for token, _ in given])
        learned = tokenizer.decode([token for token, weight in given if weight])
        for turn in cut:
            reply, seat = turn.metadata["reply"], (turn.metadata["task"], turn.metadata["actor"])
            if seat == (trajectory.task_id, trajectory.actor) and reply in context:
                inside += 1
                assert learned.count(reply) == context.count(reply) - 1  # the record repeats what was said
    assert inside > 0  # later replies of the seat were given after them


def test_a_deal_is_learned_from_or_held_out_never_both(games):
    twice = [*games, *games]
    learn, measure = split_by_deal(twice, 3, seed=1)
    assert len(measure) == 4 and len(learn) + len(measure) == len(twice)
    assert not {game.outcome.seed for game in learn} & {game.outcome.seed for game in measure}
    assert split_by_deal(twice, 3, seed=1) == (learn, measure)
    with pytest.raises(NoUsableGames, match="held_out_games"):
        split_by_deal(games, len(games), seed=1)


def test_a_run_is_named_by_its_folder_or_its_id(tiny_model, tmp_path):
    config = make_config(tiny_model, **{"run.dir": tmp_path})
    opened = open_run(config, False)
    assert run_id_of(config, "start") == opened.state.run_id
    assert run_id_of(config, opened.state.run_id) == opened.state.run_id


async def test_games_of_a_run_are_found_again_in_the_hub(client, tiny_model):
    config = make_config(tiny_model)

    def play(run_id):
        resources = policy_resources(config, run_id, str(tiny_model))
        return RolloutQueue(client, GAME, config.rollout).play(
            demonstration_tasks(config), resources, alive, lambda now: None
        )

    async with runner_at(client):
        mine, _ = await asyncio.gather(play("mine"), play("others"))
    found = await stored_games(client, StoredGames("mine"), newest=100)
    assert {game.rollout_id for game in found.finished} == {game.rollout_id for game in mine.finished}
    by_id = {game.outcome.game_id: game for game in found.finished}
    assert [by_id[game.outcome.game_id].triplets for game in mine.finished] == [game.triplets for game in mine.finished]
    assert len((await stored_games(client, StoredGames("mine"), newest=3)).finished) == 3
    with pytest.raises(NoUsableGames, match="run 'nobodys'"):
        await stored_games(client, StoredGames("nobodys"), newest=3)


def test_games_of_people_during_an_evaluation_count_for_its_run():
    of_first = StoredGames("first-0123abcd", EVALUATION)
    for policy, counts in (("first-0123abcd", True), ("first-0123abcd-evaluation", True), ("second-0123abcd", False)):
        rollout = SimpleNamespace(metadata={PEOPLE: EVALUATION}, resources_id=f"{policy}.policy-000003")
        assert of_first.includes(rollout) is counts


def test_games_in_another_tokenizers_ids_are_left_out(tiny_model, tiny_tokenizer, caplog):
    def game(shift):
        ids = [token + shift for token in tiny_tokenizer.encode("我是好人，过。")]
        triplet = SimpleNamespace(metadata={"trainable": True, "reply": "我是好人，过。"}, response={"token_ids": ids})
        return SimpleNamespace(triplets=(triplet,))

    own, other = game(0), game(100_000)
    assert games_in_tokens_of(tiny_model, [own, other, own]) == (own, own)
    assert "1 of 3 games" in caplog.text
    with pytest.raises(ConfigError, match="none of 1 games"):
        games_in_tokens_of(tiny_model, [other])


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
    async with runner_at(client):
        summary = await warm_start(opened, None)
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
