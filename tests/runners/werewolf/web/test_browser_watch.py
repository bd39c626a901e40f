"""Watching in a real browser: a game of a real hub and a real runner as it is played, its tokens, and a run's page.

The policy's server is a fake, so that the test decides when it answers.
"""

import asyncio
import json
import re
from itertools import product

from runners.werewolf.game import new_game
from runners.werewolf.transcript import event_data, game_data
from runners.werewolf.web.views import ShownGame
from runners.werewolf.werewolf_play import WerewolfPlay
from tests.support.algo.playing import playing
from tests.support.fakes import make_turn
from tests.support.game.game_playing import TINY, play_brains
from tests.support.hub.asking import enqueue_one, enqueue_tasks
from tests.support.tasks import game_task
from tests.support.werewolf.browser import LAPTOP, PHONE, at_the_browser
from tests.support.werewolf.seat_players import reply_to
from tests.support.werewolf.web_server import WebServer

CUT_OFF = """
    return [...document.querySelectorAll(".chart text")].filter((text) => {
        const { x, y, width } = text.getBBox();
        return x < 0 || y < 0 || x + width > text.ownerSVGElement.viewBox.baseVal.width;
    }).map((text) => text.textContent);
"""
CHINESE = re.compile(r"[\u4e00-\u9fff]")


async def test_a_game_is_watched_as_it_is_played_and_its_tokens_opened(
    hub, client, vllm, policy, tiny_model, tmp_path, person
):
    vllm.answer, loop = reply_to, asyncio.get_running_loop()
    vllm.gate.clear()
    limits = {"context_tokens": 20_000, "reply_tokens": 200}
    task = game_task("run-step0007-deal00-game00", seed=4, trainable=["wolf", "good"], limits=limits)
    await enqueue_one(client, {"kind": "agent", "question": "1+1"}, mode="train")
    policy = policy.model_copy(update={"run_name": "run-0123abcd", "version": 7})
    await enqueue_tasks(client, policy, [task])

    def opens_the_list(p):
        p.opens(f"{web.url}/?lang=zh")
        p.sees("h2 .faint", "1 局")  # the hub's total also counts the agent's rollout
        p.sees(".featured .live", "直播")
        assert task.game_id not in p.text("main")
        p.clicks(".playing a", "5人局 · 进行中")
        p.sees(".live", "直播")
        assert p.sees(".middle .asking")  # whom it waits for
        assert p.all(".seat.asked")
        p.shot("watch-live")
        return p.sees(".place").text

    def sees_it_go_on(p):
        loop.call_soon_threadsafe(vllm.gate.set)
        p.sees(".result")  # it was played to its end, and the page was never loaded anew
        p.clicks(".keys button:last-child")
        p.sees(".outcome")
        p.sees(".thought", "先看看大家怎么说")
        assert p.all(".turn.bad")  # a reply that could not be used
        p.shot("watch-finished")
        chip = next(e for e in p.all(".turn .chip"))
        p.run("arguments[0].click()", chip)
        p.sees("dialog .token.sampled")
        assert "对数概率" in p.text("dialog .known .yes") and "奖励、优势" in p.text("dialog .known .no")
        p.run("document.querySelector('dialog .current .token.sampled').focus()")
        assert "log p -0.1000" in p.sees(".token-detail").text and "未知" in p.sees(".token-detail").text
        assert not any("+" in key.text for key in p.all(".legend .sampled"))  # a log-prob is never above 0
        p.shot("tokens")
        p.resize(*PHONE)
        assert p.overflow() <= 0
        assert p.complaints() == []

    async with playing(client, WerewolfPlay(client), 1), WebServer(tmp_path, hub=hub.url, tokenizer=tiny_model) as web:
        await asyncio.wait_for(vllm.asked.wait(), 60)
        await at_the_browser(opens_the_list, person)
        await at_the_browser(sees_it_go_on, person)


def attempt_that_says(text, times):
    """A running game whose attempt is named after its speeches."""
    speech = {"kind": "speech", "day": 1, "seat": 1, "text": text}
    events = [*map(event_data, new_game(TINY, 4).events), *[speech] * times]
    return ShownGame(id="hub:x", preset=TINY.name, events=events, attempt=text, live=True)


class RetriedGame:
    """Stands for a hub's games: one that is retried while a page has lost its connection."""

    url = "http://hub"

    def __init__(self):
        self.states = [attempt_that_says("", 0), attempt_that_says("第一回", 3), attempt_that_says("第二回", 5)]

    async def game(self, game_id):
        return self.states[0]

    async def follow(self, game_id):
        yield self.states[0]
        if len(self.states) > 1:
            yield self.states[1]
            del self.states[:2]
            raise ConnectionError

    async def close(self):
        pass


async def test_a_page_shows_a_new_attempt_alone_and_stays_at_its_end(tmp_path, person):
    games = RetriedGame()

    def visit(p):
        p.opens(f"{server.url}/game?id=hub:x&lang=zh")
        p.sees(".log", "第一回")
        assert "第一回" not in p.sees(".log", "第二回").text
        events = len(games.states[0].events)
        p.sees(".place", f"{events} / {events}")

    async with WebServer(tmp_path, games=games) as server:
        await at_the_browser(visit, person)


class GrowingGame(RetriedGame):
    """The same, of one attempt with more speeches once ``spoken`` is set."""

    def __init__(self):
        first, second = attempt_that_says("第一句", 1), attempt_that_says("第一句", 2)
        changes = {"attempt": "one", "players": {1: "scripted"}}
        self.states = [state.model_copy(update=changes) for state in (first, second)]
        self.spoken = asyncio.Event()

    async def game(self, game_id):
        return self.states[self.spoken.is_set()]

    async def follow(self, game_id):
        yield self.states[0]
        await self.spoken.wait()
        yield self.states[1]
        await asyncio.Event().wait()


async def test_new_events_leave_what_a_person_has_opened_and_focused(tmp_path, person):
    games = GrowingGame()
    loop = asyncio.get_running_loop()

    def visit(p):
        first, second = (f"{len(state.events)} / {len(state.events)}" for state in games.states)
        p.opens(f"{server.url}/game?id=hub:x&lang=zh")
        p.sees(".place", first)
        p.clicks(".about summary")
        p.run(
            "const low = new CSSStyleSheet(); low.replaceSync('.log { max-height: 40px }');"
            "document.adoptedStyleSheets = [low];"
            "document.querySelector('.log').scrollTop = 0;"
            "document.querySelector('.log [tabindex], .log button').focus()"
        )
        loop.call_soon_threadsafe(games.spoken.set)
        p.sees(".place", second)
        assert p.run("return document.querySelector('.about').open")
        assert p.run("const log = document.querySelector('.log'); return log.contains(document.activeElement)")
        assert p.run("return document.querySelector('.log').scrollTop") == 0

    async with WebServer(tmp_path, games=games) as server:
        await at_the_browser(visit, person)


async def test_whoever_is_at_the_end_of_a_live_game_stays_there_in_another_view_and_after_a_reload(tmp_path, person):
    games = GrowingGame()
    loop = asyncio.get_running_loop()

    def visit(p):
        events = len(games.states[0].events)
        first = f"{events} / {events}"
        p.opens(f"{server.url}/game?id=hub:x&lang=zh")
        p.sees(".place", first)
        assert "at=" not in p.run("return location.search")
        p.opens(p.run("return location.href"))
        p.sees(".place", first)
        p.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'v', bubbles: true}))")
        loop.call_soon_threadsafe(games.spoken.set)
        public = sum("audience" not in event for event in games.states[1].events)
        p.sees(".place", f"{public} / {public}")

    async with WebServer(tmp_path, games=games) as server:
        await at_the_browser(visit, person)


class FailingGame(GrowingGame):
    """The same, which ends without a result."""

    def __init__(self):
        super().__init__()
        self.states[1] = self.states[1].model_copy(update={"live": False, "notice": "failed"})


async def test_a_live_game_that_fails_is_live_no_more(tmp_path, person):
    games = FailingGame()
    loop = asyncio.get_running_loop()

    def visit(p):
        p.opens(f"{server.url}/game?id=hub:x&lang=zh")
        p.sees(".heading .live", "直播")
        loop.call_soon_threadsafe(games.spoken.set)
        p.sees(".replay > .notice", "没有打完")
        assert not p.all(".heading .live")

    async with WebServer(tmp_path, games=games) as server:
        await at_the_browser(visit, person)


def make_run(folder):
    run = folder / "first"
    (run / "transcripts" / "step-0001").mkdir(parents=True)
    (run / "batches").mkdir()
    (run / "config.yaml").write_text("run: {name: first}\n")
    for step in range(3):
        log(run, step, 0.3 + 0.1 * step)
    return run


def make_imitation(folder):
    """Of a recipe; the name of its page."""
    run = folder / "demo-20260102-030405" / "seed-1-imitate-warm-start"
    run.mkdir(parents=True)
    (run.parent / "recipe.json").write_text("{}")
    (run / "config.yaml").write_text("run: {name: seed-1-imitate-warm-start}\n")
    (run / "summary.json").write_text(json.dumps({"games": {"learned_from": 300, "failed": {"cut": 2, "lost": 1}}}))
    (run / "metrics.jsonl").write_text('{"step": 1, "data": {"imitation/loss": "no number"}}\n' * 2)
    return f"{run.name}@{run.parent.name}"


def log(run, step, win_rate):
    data = {"evaluation/win_rate": win_rate, "evaluation/win_rate/low": win_rate - 0.1,
            "evaluation/win_rate/high": win_rate + 0.1, "reward/wolf": -0.1 * step, "turns/valid_share": 0.9,
            "wolves/actor/entropy": 0.3, "villagers/actor/entropy": 0.6,
            "odd/<b>metric": -5.3e-10 * (step + 1)}  # fmt: skip
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "data": data}) + "\n")


async def test_a_runs_page_follows_it_and_a_kept_games_tokens_show_what_training_made_of_them(
    tmp_path, person, tiny_model, tiny_tokenizer
):
    run = make_run(tmp_path)
    state = play_brains(TINY, 2)
    prompt, reply = (tiny_tokenizer.encode(text, add_special_tokens=False) for text in ("轮到你发言。", "我是好人。"))
    before, speaker = next((n, event.seat) for n, event in enumerate(state.events) if event.kind == "speech")
    turn = make_turn(seat=speaker, turn=0, prompt_ids=prompt, response_ids=reply, logprobs=[-0.5] * len(reply))
    turns = [turn.model_copy(update={"events_before": before}).as_data()]
    (run / "transcripts" / "step-0001" / "first-step0001-deal00-game00.json").write_text(
        json.dumps(game_data(state) | {"turns": turns})
    )
    ids = [*prompt, *reply]
    mask = [0] * len(prompt) + [1] * len(reply)
    row = {
        "task_id": "first-step0001-deal00-game00", "group_id": "d", "actor": f"seat {speaker:02d}",
        "role": "villager", "side": "good",
        "segment": 0, "token_ids": ids, "loss_mask": mask, "logprobs": [-0.5 * m for m in mask],
        "turn_ends": [len(ids)], "turn_versions": [3], "reward": 0.75, "turn_questions": ["speech"],
        "turn_rewards": [0.75], "dimensions": {}, "advantages": [1.25 * m for m in mask],
        "trainer_logprobs": [-0.4 * m for m in mask],
    }  # fmt: skip
    (run / "batches" / "step-0001.jsonl").write_text(json.dumps(row) + "\n")

    def visit(p):
        p.opens(f"{server.url}/run/first?lang=zh")
        p.sees(".numbers b", "50 %")
        p.sees(".chart figcaption", "评估胜率")
        p.sees("td", "1.250 ± 0.000")  # the advantages of the batch
        p.sees("td", "1.1052 (1.105–1.105)")  # the ratio: exp(0.1)
        p.shot("run-laptop")
        p.resize(*PHONE)
        assert p.overflow() <= 0
        p.shot("run-phone")
        p.resize(*LAPTOP)
        log(run, 3, 0.75)
        p.sees(".numbers b", "75 %")  # without a reload
        p.clicks("details.card summary", "优化与速度")
        p.sees(".chart figcaption", "熵, wolves")
        p.clicks("details.card summary", "其他所有曲线")
        p.sees(".chart figcaption", "odd/<b>metric")
        p.clicks(".games a", "第1步")
        p.sees(".turn .chip")
        p.run("document.querySelector('.turn .chip').click()")
        p.sees("dialog .token.sampled")
        assert "奖励、优势" in p.text("dialog .known .yes")
        p.clicks("dialog .tabs button", "优势")
        assert [key.text for key in p.all(".legend .sampled")][-1] == "+1.25"
        p.run("document.querySelector('dialog .current .token.sampled').focus()")
        told = p.sees(".token-detail").text
        assert "1.2500" in told and "log p -0.5000" in told and "1.105" in told  # exp(0.1): the ratio
        assert "0.750" in p.text("dialog")
        p.shot("tokens-of-a-batch")
        assert p.complaints() == []

    async with WebServer(tmp_path, runs=tmp_path, tokenizer=tiny_model) as server:
        await at_the_browser(visit, person)


async def test_every_page_in_both_languages_on_a_laptop_and_a_phone(tmp_path, person):
    make_run(tmp_path)
    imitation = f"/run/{make_imitation(tmp_path)}"
    game = tmp_path / "game.json"
    game.write_text(json.dumps(game_data(play_brains(TINY, 2))))
    pages = "/ /runs /run/first /play /game?id=file:1 /compare?a=file:1&b=golden:1 /game?id=file:9 /nowhere"

    def visit(p, table):
        for path, size, language in product((*pages.split(), imitation, table), (LAPTOP, PHONE), ("zh", "en")):
            p.resize(*size)
            p.opens(f"{server.url}{path}{'&' if '?' in path else '?'}lang={language}")
            p.sees("h1")
            assert p.overflow() <= 0, (path, size)
            p.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
            assert p.run(CUT_OFF) == [] and "[object" not in p.text("main")
            if path == imitation:
                assert p.sees("h1").text == {"zh": "demo · 种子 1 · 模仿", "en": "demo · seed 1 · imitation"}[language]
                assert [number.text for number in p.all(".numbers b")] == ["300", "3"]
            read = p.text("h1, h2, h3, summary, figcaption, label, button, .tag, .mark, .hint, .problem")
            if language == "en":
                assert not CHINESE.search(read.replace("中文", "")), (path, read)
            else:
                assert CHINESE.search(read), path
            # What is not there is answered with 404, which a browser notes.
            assert p.complaints() == [] or path in ("/game?id=file:9", "/nowhere")
        p.shot("nowhere-phone")

    async with WebServer(tmp_path, [game], runs=tmp_path) as server:
        table = (await server.tables.open({"preset": "9p", "people": 2}))["table"]
        await asyncio.to_thread(visit, person, f"/table/{table}")
