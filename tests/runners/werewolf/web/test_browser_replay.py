"""Replays in a real browser: every event by keys, clicks and links; and a game that tries to break out of the page."""

import json
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from runners.werewolf.game import EventKind, get_preset
from runners.werewolf.transcript import game_data
from tests.support.game.game_playing import play_brains
from tests.support.werewolf.browser import LAPTOP, PHONE, at_the_browser
from tests.support.werewolf.web_server import WebServer


def written(folder: Path, name: str, preset="12p_sheriff", seed=7):
    state = play_brains(get_preset(preset), seed)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(game_data(state)))
    return path, state


def index_of(state, kind, nth=0):
    return [number for number, event in enumerate(state.events) if event.kind is kind][nth]


def game(server, number=1, **query):
    return f"{server.url}/game?id=file:{number}&lang=zh" + "".join(f"&{name}={value}" for name, value in query.items())


async def test_a_game_is_replayed_to_its_end_by_keys_and_clicks(tmp_path, person):
    path, state = written(tmp_path, "game")
    last = len(state.events) - 1

    def visit(p):
        p.opens(game(server))
        start = index_of(state, EventKind.NIGHT_FALLS)
        assert p.sees(".place").text == f"{start + 1} / {last + 1}"
        p.presses(Keys.ARROW_RIGHT * 3)
        assert p.sees(".place").text == f"{start + 4} / {last + 1}"
        p.presses(Keys.ARROW_LEFT)
        assert p.sees(".place").text == f"{start + 3} / {last + 1}"
        p.clicks(".strip .day")
        assert int(p.sees(".place").text.split()[0]) - 1 == index_of(state, EventKind.DAY_BREAKS)
        count = index_of(state, EventKind.VOTE_COUNT, 1)
        p.run("document.querySelector('.scrubber').value = arguments[0];"
              "document.querySelector('.scrubber').dispatchEvent(new Event('input'))", count)  # fmt: skip
        cast = sum(e.kind is EventKind.VOTE and e.target is not None for e in state.events[:count])
        assert len(p.all(".arrows path.arrow-vote")) == cast > 5
        assert p.all(".count-mark") and p.all(".sheriff-mark")
        p.shot("replay-vote-laptop")
        p.presses(Keys.END)
        p.sees(".outcome", {"wolf": "狼人阵营胜利", "good": "好人阵营胜利"}[state.result])
        assert len(p.all(".seat.dead")) == len(state.roles) - len(state.living)
        assert len(p.all(".seat.is-wolf")) == 4
        p.presses(Keys.HOME)
        assert p.sees(".place").text.startswith("1 /")
        p.run("document.querySelector('.speed').value = '8';"
              "document.querySelector('.speed').dispatchEvent(new Event('change'))")  # fmt: skip
        p.presses(" ")
        p.until(lambda: int(p.sees(".place").text.split()[0]) > 15, "the game to play by itself")
        p.presses(" ")
        p.clicks(".keys button:last-child")
        p.sees(".outcome")
        assert p.overflow() <= 0
        assert p.complaints() == []

    async with WebServer(tmp_path, [path]) as server:
        await at_the_browser(visit, person)


async def test_after_the_run_off_no_candidate_is_tied_and_runs_are_named_without_their_hash(tmp_path, person):
    def visit(p):
        p.opens(f"{server.url}/?lang=zh")
        tied = "{kind: 'vote_tied', data: {seats: '1,2'}}"
        for after, size in (("{kind: 'speech', seat: 1}", 2), ("{kind: 'sheriff_elected', target: 1}", 0)):
            count = f"return import('/static/fold.js').then((it) => it.fold([{tied}, {after}], 1, 5).tied.size)"
            assert p.run(count) == size
        for run in ("demo-1a2b3c4d", "demo-1a2b3c4d-evaluation", "demo-evaluation-1a2b3c4d-evaluation"):
            name = f"return import('/static/words.js').then((it) => it.policyName('{run}.policy-000003'))"
            assert p.run(name) == "demo · 策略 v3"

    async with WebServer(tmp_path) as server:
        await at_the_browser(visit, person)


async def test_two_games_are_compared_by_keys(tmp_path, person):
    paths = [written(tmp_path, name, "5p_tiny", seed)[0] for name, seed in (("one", 7), ("other", 8))]

    def visit(p):
        p.opens(f"{server.url}/compare?a=file:1&b=file:2&lang=zh")
        p.sees(".notice", "不是同一副牌")
        places = lambda: [int(place.text.split()[0]) for place in p.all(".place")]  # noqa: E731
        p.run("document.querySelector('.check input').focus()")
        p.presses(" ")  # the box, not the game
        assert not p.run("return document.querySelector('.check input').checked")
        before = places()
        p.run("document.querySelectorAll('.scrubber')[1].focus()")
        p.presses(Keys.ARROW_RIGHT * 2)
        assert places() == [before[0], before[1] + 2]
        p.opens(f"{server.url}/compare?a=file:1&b=file:2&view=public&lang=zh")
        p.sees(".notice", "看不出两局")
        assert p.complaints() == []

    async with WebServer(tmp_path, paths) as server:
        await at_the_browser(visit, person)


HOSTILE = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "\"><svg onload='window.pwned=3'>",
    "javascript:window.pwned=4",
    "{{constructor.constructor('window.pwned=5')()}}",
    "\u202e狼是我\u202d\u2066 right to left",
    "Z" + "\u0351\u0321\u0316\u0348" * 400 + "algo",
    "长" * 100_000,
    "a" * 5_000,
    "\u0000\u0007\ufeff\u200b\ud83d",
    "好" + "\n" * 500 + "人",
]


async def test_a_hostile_game_stays_text_inside_its_box(tmp_path, person):
    path, _ = written(tmp_path, "game", "9p", 1)
    data = json.loads(path.read_text())
    speeches = [event for event in data["events"] if event["kind"] in ("speech", "last_words", "wolf_says")]
    for number, event in enumerate(speeches):
        event["text"] = HOSTILE[number % len(HOSTILE)]
    data["preset"] = HOSTILE[1]
    data["players"] = {"1": HOSTILE[0], "2": HOSTILE[7]}
    data["events"].append({"kind": HOSTILE[0], "day": 1, "text": HOSTILE[1]})
    data["events"].append({"kind": "exiled", "day": 99, "seat": 98, "target": 97, "data": {"seats": "1,<b>,999999"}})
    path = tmp_path / "<img src=x onerror=alert(1)>.json"
    path.write_text(json.dumps(data))

    def visit(p):
        for size in (LAPTOP, PHONE):
            p.resize(*size)
            p.opens(game(server))
            first = next(number for number, event in enumerate(data["events"]) if event["kind"] == "speech")
            for number, _ in enumerate(speeches[: len(HOSTILE) + 2]):
                p.opens(game(server, at=first + number))
                assert p.overflow() <= 0
                box = p.sees(".middle").rect
                board = p.sees(".board").rect
                assert box["height"] < board["height"]
            p.shot(f"hostile-{size[0]}")
        p.resize(*LAPTOP)
        for link in p.all(".log button.link")[:1]:
            p.run("arguments[0].click()", link)
        assert p.run("return window.pwned") is None
        assert p.run("return document.querySelectorAll('main script, main img, main iframe').length") == 0
        assert "<img src=x" in p.text("h1") and "<img src=x" in p.text(".subtitle")
        assert "\u202e" not in p.text("main")
        p.opens(f"{server.url}/?lang=zh")
        assert p.run("return document.querySelectorAll('main img').length") == 0
        assert p.complaints() == []

    async with WebServer(tmp_path, [path]) as server:
        await at_the_browser(visit, person)


CONTRAST = Path(__file__).with_name("contrast.js").read_text()


async def test_the_pages_can_be_read_and_used_by_keyboard_and_without_motion(tmp_path, person):
    path, state = written(tmp_path, "game")

    def visit(p):
        votes = game(server, at=index_of(state, EventKind.VOTE_COUNT))
        p.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
        )
        for theme in ("light", "dark"):
            for address in (votes, f"{server.url}/play?lang=zh", f"{server.url}/"):
                p.opens(address)
                p.run("document.documentElement.dataset.theme = arguments[0]", theme)
                assert p.run(CONTRAST) == [], (theme, address)
        p.opens(votes)
        assert p.all(".arrow")
        assert p.run(
            "return [...document.querySelectorAll('.arrow')].every(e => getComputedStyle(e).animationName === 'none')"
        )
        unnamed = p.run(
            "return [...document.querySelectorAll('button, a, input, select, [role=button]')].filter(e =>"
            "!(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label'))).map(e => e.outerHTML)"
        )
        assert unnamed == []
        reached = set()
        for _ in range(60):
            p.presses(Keys.TAB)
            reached.add(p.run("const e = document.activeElement; return e.getAttribute('aria-label') || e.className"))
        assert {"视角", "播放", "进度", "速度"} <= reached
        p.run("document.querySelector('.seat[tabindex]').focus()")
        p.presses(Keys.ENTER)  # a seat's own view
        p.until(lambda: p.run("return document.querySelector('.view-picker').value") == "1", "the first seat's view")

    async with WebServer(tmp_path, [path]) as server:
        await at_the_browser(visit, person)
