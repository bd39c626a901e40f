"""Mistakes of a public implementation, by reading it and by 2,000 random games against it: none is made here.

Each test's docstring says what went wrong there. The others are held by the scenarios of this folder, and the one about
training by tests/algo/advantages/test_estimators.py.
"""

import random

from agentscope.model import ChatResponse

from runners.policy.model import SampledTurn
from runners.werewolf.brains import RandomBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    EventKind,
    Option,
    Phase,
    Result,
    Role,
    Side,
    deal,
    get_preset,
    new_game,
    winner,
)
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.players import BrainPlayer, PolicyPlayer
from runners.werewolf.prompts_zh.record import render_events
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.token_spans import context_digest
from tests.support.game.game_playing import TEST_PRESETS, herd_steps
from tests.support.game.game_scripts import last, play, question, twelve, until
from tests.support.tasks import game_task

SHERIFF_6 = "sign_up: 6=run\ncampaign:"


def test_mistake_03_replies_are_not_searched_for_words_and_digits():
    """ "否，我不上警" counted as signing up, and 1号 was found inside 11号."""
    sign_up = question(until(twelve(""), Phase.SIGN_UP), 5)
    for reply in ("否，我不上警", "决定：不上警", "不上警"):
        try:
            assert parse_reply(reply, sign_up) == Action()
        except ReplyError:
            assert reply == "否，我不上警"  # not in the asked form: asked again, never guessed
    assert parse_reply("决定：上警", sign_up) == Action(Option.RUN)
    vote = question(until(twelve(""), Phase.EXILE_VOTE), 5)
    assert {1, 11} <= set(vote.targets)
    assert parse_reply("决定：11号", vote) == Action(11) and parse_reply("决定：1号", vote) == Action(1)


def test_mistake_04_a_prompt_carries_nothing_of_an_earlier_game():
    """The witch's prompt was changed on the class: 957 of 1,000 later games carried an earlier game's text."""
    nine, seven = PRESETS["9p"], PRESETS["7p"]
    fresh = {
        (preset.name, seat): system_prompt(preset, seat, Role.WITCH) for preset in (nine, seven) for seat in (1, 2)
    }
    assert "上一局" in system_prompt(nine, 1, Role.WITCH, {"witch": "上一局的话。"})
    assert {key: system_prompt(get_preset(key[0]), key[1], Role.WITCH) for key in fresh} == fresh
    assert len(set(fresh.values())) == 4


def test_mistake_07_nobody_is_never_a_name():
    """ "None得票最多" was announced; a night of 空刀 asked the witch to save "None" and burned the antidote."""
    state = twelve("night_actions: 9,10,11,12=pass", sheriff=False)
    assert question(state, 2).options == () and question(state, 2).subject is None
    state = play(state, "witch_action:\nexile_vote:")
    assert state.antidote and last(state, EventKind.VOTE_COUNT).data == {"count": ""}
    state = play(state, "night_actions: 9,10,11,12=5")
    assert question(state, 2).options == (Option.SAVE,) and question(state, 2).subject == 5
    for preset in TEST_PRESETS:
        *_, (_, _, finished) = herd_steps(preset, 3, 3)
        assert "None" not in render_events(finished.events)


def make_task(**changes):
    return game_task(**(dict(seed=4, sampling_seed=4, preset="9p", trainable=["wolf", "good"]) | changes))


async def test_mistake_11_no_private_reply_is_broadcast():
    """Private replies leaked through an auto-broadcast left on."""
    private = 0

    class Listener(BrainPlayer):
        async def observe(self, msg):
            nonlocal private
            # The referee alone speaks to the table; a reply passed on would be the player's own message.
            event = msg.metadata["event"]
            assert msg.role == "system" and event.visible_to(self.seat)
            private += event.audience is not None
            await super().observe(msg)

    task = make_task(preset="12p_sheriff", seating=dict.fromkeys(Side, "random"), trainable=[])
    await play_game(task, 0, lambda seat, role, name: Listener(seat, RandomBrain(random.Random(seat))), print)
    assert private > 50


class Mumbler:
    """A model that answers every question with the same words, which say nothing of what was asked."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self._context: list[int] = []

    async def __call__(self, conversation) -> ChatResponse:
        sampled = SampledTurn(
            0, len(self._context), context_digest(self._context), (1,), (2,), (-1.0,), "stop", 0.0, 0.0
        )
        self._context += [1, 2]
        return ChatResponse(content=[{"type": "text", "text": self._reply}], metadata={"sampled": sampled})


async def test_mistake_12_the_round_limit_is_a_draw_and_no_reply_stops_a_game():
    """Reaching the round limit made the rollout fail; a reply without structured data crashed the game."""
    task = make_task(rules={"round_limit": 2})
    players = {}

    def mumbling(seat, role, name):
        players[seat] = PolicyPlayer(seat, Mumbler("……嗯？"), system_prompt(PRESETS["9p"], seat, role))
        return players[seat]

    turns = []
    result = await play_game(task, 0, mumbling, lambda turn, started, ended: turns.append(turn))
    assert result.result == "draw" and result.days == 2
    assert {seat.outcome for seat in result.seats} == {0.0}
    assert all(seat.defaulted_decisions > 0 for seat in result.seats) and any(not turn.valid for turn in turns)
    assert winner(until(new_game(PRESETS["5p_tiny"], 0), Phase.GAME_OVER)) is Result.DRAW


async def test_mistake_13_roles_are_recorded_as_dealt_whatever_the_prompt_says():
    """Roles for the reward were parsed out of the decoded prompt."""

    def misled(seat, role, name):
        return PolicyPlayer(seat, Mumbler("我是狼人。"), system_prompt(PRESETS["9p"], seat, Role.WOLF))

    turns = []
    result = await play_game(make_task(rules={"round_limit": 1}), 0, misled, lambda turn, *times: turns.append(turn))
    roles = {seat: role.value for seat, role in enumerate(deal(PRESETS["9p"], 4), 1)}
    assert {seat.seat: seat.role for seat in result.seats} == roles
    assert {(turn.seat, turn.role, turn.side) for turn in turns} == {
        (seat, role, Role(role).side.value) for seat, role in roles.items()
    }
