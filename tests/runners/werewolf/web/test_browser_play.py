"""A person at a table, at a browser, that reloads its page."""

import asyncio
import random

from runners.werewolf.game import Phase, known_events, observe, pending
from runners.werewolf.web.folders import read_file
from runners.werewolf.web.seats import Seat
from runners.werewolf.web.views import read_game
from tests.support.game.game_scripts import twelve, until
from tests.support.werewolf.browser import PHONE, at_the_browser
from tests.support.werewolf.web_server import WebServer


def opens_a_table(p, server, **tabs):
    """By the form; its address and the link for the person. tabs: what is chosen by buttons."""
    p.opens(f"{server.url}/play?lang=zh")
    for name, value in ({"preset": "9p", "others": "scripted"} | tabs).items():
        p.clicks(f"[data-name={name}] [data-value='{value}']")
    for name, value in (("people", "1"), ("clock", "0"), ("seed", "12"), ("pace", "0")):
        p.run("const f = document.querySelector(`[name=${arguments[0]}]`); f.value = arguments[1]", name, value)
    p.clicks("button.primary")
    link = p.sees("a.seat-link").get_attribute("href")
    return p.driver.current_url, link


def answers(p, chance):
    """Answer what is asked, with a click on a button and with words; whether anything was."""
    if not p.all(".ask.mine .submit"):
        return False
    number = p.run("return document.querySelector('.ask').dataset.question")
    words = p.all(".ask textarea")
    if words and not words[0].get_attribute("value"):
        words[0].send_keys("我是好人，先听大家的。")
    buttons = [b for b in p.all(".ask .choices button") if b.get_attribute("data-value") not in ("explode", "withdraw")]
    if buttons and not words:
        chance.choice(buttons).click()
    p.clicks(".ask .submit")
    answered = "return document.querySelector('.ask')?.dataset.question !== arguments[0]"
    p.until(lambda: p.run(answered, number), f"the answer to question {number} to be taken")
    return True


def plays_on(p, chance):
    """Until the game is over."""

    def over_or_answered():
        if p.all(".replay-all"):
            return "over"
        return "answered" if answers(p, chance) else None

    while p.until(over_or_answered, "a question, or the end") != "over":
        pass


async def test_one_person_plays_a_whole_game_by_clicks_reloads_and_then_sees_it_all(tmp_path, person):
    def visit(p):
        host, link = opens_a_table(p, server)
        p.opens(link)
        p.sees(".identity h1", "村民")
        p.sees(".ask.mine textarea").send_keys("说到一半")
        p.shot("play-laptop")
        p.opens(link)  # a reload goes on where it was, with what was being written
        p.until(lambda: p.sees(".ask textarea").get_attribute("value") == "说到一半", "the draft")
        p.clicks(".ask .submit")
        p.resize(*PHONE)
        p.sees(".log", "说到一半")
        assert p.overflow() <= 0
        p.until(lambda: p.all(".ask.mine .choices button") or p.all(".replay-all"), "a vote")
        p.shot("play-phone")
        plays_on(p, random.Random(1))
        outcome = p.sees(".ask h2.outcome").text
        assert "村民" in outcome
        assert len(p.all(".seat.is-wolf")) == 3 and not p.all(".seat.is-unknown, .seat.tied")
        p.shot("play-end-phone")
        p.clicks(".replay-all")
        assert ("你赢了" in outcome) == ("好人阵营胜利" in p.sees(".result").text)
        assert p.complaints() == []
        p.opens(host)
        p.clicks("a", "看完整回放")
        p.sees(".replay .log")

    async with WebServer(tmp_path) as server:
        await at_the_browser(visit, person)
    (kept,) = (tmp_path / "kept").glob("*.json")
    game = read_game(read_file(kept))
    assert game.result and game.seats == 9 and list(game.players.values()).count("person") == 1
    assert any(event.get("text") == "说到一半" for event in game.events)


async def test_one_browser_holds_the_seats_of_a_whole_table(tmp_path, person):
    def visit(p):
        first, (_, link) = p.driver.current_window_handle, opens_a_table(p, server)
        for _ in range(8):  # a browser opens six connections to a server
            p.driver.switch_to.new_window("tab")
            p.opens(link)
            p.sees(".identity h1", "村民")
        for tab in set(p.driver.window_handles) - {first}:
            p.driver.switch_to.window(tab)
            p.driver.close()
        p.driver.switch_to.window(first)
        p.opens(link)
        plays_on(p, random.Random(1))

    async with WebServer(tmp_path) as server:
        await at_the_browser(visit, person)


async def test_a_question_says_in_english_whom_it_is_about(tmp_path, person):
    asked = (
        (twelve("night_actions: 9,10,11,12=5"), Phase.WITCH_ACTION, "5 was attacked tonight."),
        (twelve("sign_up: 1=run"), Phase.UNOPPOSED, "1 is about to be elected sheriff."),
    )
    async with WebServer(tmp_path) as server:
        table = server.tables.table((await server.tables.open({"preset": "12p_sheriff", "clock": 0}))["table"])
        table.phase = "playing"
        for begun, phase, told in asked:
            state = until(begun, phase)
            number = pending(state)[0].seat
            seat = server.tables._seats["secret"] = Seat(number, table)
            seat.known += known_events(state, number)
            deciding = asyncio.create_task(seat.decide(observe(state, number)))

            def visit(p, told=told):
                p.opens(f"{server.url}/seat/secret?lang=en")
                p.sees(".ask p", told)

            await at_the_browser(visit, person)
            deciding.cancel()
