"""Fourteen mistakes of a public implementation, by reading it and by 2,000 random games against it: none is made here.

Each test's docstring says what went wrong there. The fourteenth, about training, is in
tests/algo/advantages/test_group_of_one.py.
"""

import random

import pytest
from agentscope.model import ChatResponse

from runners.policy.model import SampledTurn
from runners.werewolf.brains import RandomBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    EventKind,
    IllegalAction,
    Option,
    Phase,
    Result,
    Role,
    Side,
    deal,
    get_preset,
    new_game,
    observe,
    winner,
)
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.players import BrainPlayer, PolicyPlayer
from runners.werewolf.prompts_zh.record import render_events
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.token_spans import context_digest
from tests.support.game.game_playing import TEST_PRESETS, TWELVE, herd_steps
from tests.support.game.game_scripts import all_of, asked, kinds, last, play, question, twelve, until
from tests.support.tasks import game_task

SHERIFF_6 = "sign_up: 6=run\ncampaign:"


def test_mistake_01_a_clear_first_ballot_installs_the_sheriff():
    """0 of 1,232 elections with a clear first ballot installed a sheriff: the branch hung on the wrong else."""
    assert twelve("sign_up: 1,5=run\nsheriff_vote: 2,3=1 4=5").sheriff == 1
    clear_ballots = 0
    for seed in range(60):
        *_, (_, _, state) = herd_steps(TWELVE, seed, seed)
        shown = kinds(state)
        for number, event in enumerate(state.events):
            first = event.kind is EventKind.VOTE_COUNT and shown[number - 1] is EventKind.SHERIFF_VOTE
            if first and event.data["count"] and shown[number + 1] is not EventKind.VOTE_TIED:
                clear_ballots += 1
                assert shown[number + 1] is EventKind.SHERIFF_ELECTED
    assert clear_ballots > 20


def test_mistake_02_the_sheriffs_weight_stays_with_the_sheriff_when_others_abstain_and_in_the_pk():
    """Votes were zipped with voters once abstentions were dropped: the 1.5 went to another seat. The PK forgot it."""
    state = twelve(f"{SHERIFF_6}\nexile_vote: 1,2,3,4=pass 5,7=9 6=8 8,9,10,11,12=pass")
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "9:2,8:1.5"}
    state = twelve(f"{SHERIFF_6}\nexile_vote: 1,2=9 3,4=8\npk_vote: 1,2,3,4,5=pass 6=8 7=9")
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "8:1.5,9:1"}
    assert last(state, EventKind.EXILED).target == 8


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


def test_mistake_05_a_shot_after_any_night_is_announced():
    """Night shots after the first night were never announced (628 of 1,789)."""
    for quiet_days in range(3):
        state = twelve("exile_vote:\n" * quiet_days + "night_actions: 9,10,11,12=3\nshot: 3=9", sheriff=False)
        shot = last(state, EventKind.SHOT)
        assert (shot.day, shot.seat, shot.target, shot.audience) == (quiet_days + 1, 3, 9, None)
        assert 9 not in observe(state, 5).living


def test_mistake_06_every_dead_sheriff_passes_its_badge_on():
    """An elected first-night victim kept it; explosions in a PK skipped it; a sheriff exploding in 归票 crashed."""
    elected = twelve(f"night_actions: 9,10,11,12=6\n{SHERIFF_6}\nlast_words:")
    assert (elected.phase, asked(elected)) == (Phase.BADGE, [6])
    for explosion in (
        "exile_vote: 1,2=9 3,4=5\npk_speech: 9=explode",
        "exile_vote: 1,2=6 3,4=5\npk_vote: 9=explode",
        "discussion: 9=explode",
    ):
        state = twelve(f"sign_up: 9=run\n{explosion}")
        assert (state.phase, asked(state)) == (Phase.BADGE, [9])
        assert play(state, "badge: 9=10").sheriff == 10


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


def test_mistake_08_orders_can_be_reversed_and_replayed():
    """Counter-clockwise orders were not reversed; the order came from the wall clock, so no game could be replayed."""
    orders = [twelve(f"{SHERIFF_6}\nspeaking_order: 6=sheriff_{side}") for side in ("left", "right")]
    rising, falling = (last(state, EventKind.SPEAKING_ORDER).seats[:-1] for state in orders)
    assert rising == falling[::-1] == (7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5)
    drawn = {
        last(until(new_game(TWELVE, seed), Phase.DISCUSSION), EventKind.SPEAKING_ORDER).seats for seed in range(40)
    }
    assert any(order[0] < order[1] < order[2] for order in drawn) and any(o[0] > o[1] > o[2] for o in drawn)
    assert until(new_game(TWELVE, 5), Phase.EXILE_VOTE) == until(new_game(TWELVE, 5), Phase.EXILE_VOTE)


def test_mistake_09_each_seat_has_its_part_in_the_election_once_and_the_dead_theirs():
    """Withdrawn candidates voted, PK candidates spoke twice, the night's dead voted in the first ballot only."""
    state = twelve("night_actions: 9,10,11,12=5\nsign_up: 1,7,8=run\ncampaign: 8=withdraw\nwithdrawal:")
    assert asked(state) == [2, 3, 4, 5, 6, 9, 10, 11, 12]
    state = play(state, "sheriff_vote: 2=1 3=7\nsheriff_pk_speech:")
    assert sorted(event.seat for event in all_of(state, EventKind.SHERIFF_PK_SPEECH)) == [1, 7]
    assert asked(state) == [2, 3, 4, 5, 6, 8, 9, 10, 11, 12]


def test_mistake_10_a_refused_choice_costs_nothing_and_nobody_is_its_own_target():
    """A refused repeat cleared the guard's memory; seer and witch could pick themselves; no target spent the poison."""
    state = until(twelve("night_actions: 4=5\nexile_vote:", sheriff=False), Phase.NIGHT_ACTIONS)
    with pytest.raises(IllegalAction):
        play(state, "night_actions: 4=5")
    assert 5 not in question(state, 4).targets and 1 not in question(state, 1).targets
    state = play(state, "night_actions:")
    assert 2 not in question(state, 2).targets
    state = play(state, "witch_action: 2=pass\nexile_vote:\nnight_actions:")
    assert question(state, 2).targets == (1, *range(3, 13))


def test_mistake_11_the_badge_stays_until_the_announcement():
    """The badge moved at night, before the deaths were announced."""
    state = twelve(f"{SHERIFF_6}\nexile_vote:\nnight_actions: 9,10,11,12=6\nwitch_action:\nbadge: 6=7")
    assert kinds(state, since=EventKind.NIGHT_FALLS)[-3:] == [
        EventKind.DAY_BREAKS,
        EventKind.DEATHS_ANNOUNCED,
        EventKind.BADGE_PASSED,
    ]


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
