"""What deaths bring with them: last words, shots, the badge, and the end of the game."""

from dataclasses import replace

import pytest

from runners.werewolf.game import (
    Action,
    Decision,
    EventKind,
    GameState,
    IllegalAction,
    Phase,
    Result,
    WinRule,
    apply,
    known_events,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.game.aftermath import outcome
from tests.support.game.game_playing import GUNS, NINE, TINY, TWELVE, deck
from tests.support.game.game_scripts import TWELVE_DEAL, all_of, asked, kinds, last, play, question, twelve, until

HUNTED = "night_actions: 9,10,11,12=3\nwitch_action:"
"""The wolves hit the hunter in the first night."""

ELECTED = "sign_up: {}=run\ncampaign:"
"""One candidate, elected without a vote."""


def night(script: str, seed: int = 0, **rules: object) -> GameState:
    """Twelve players without an election: 1 seer, 2 witch, 3 hunter, 4 guard, 9 to 11 wolves, 12 wolf king."""
    return twelve(script, seed, sheriff=False, **rules)


def shots(state: GameState) -> list[tuple[int | None, int | None]]:
    return [(event.seat, event.target) for event in all_of(state, EventKind.SHOT)]


# --- the order of things ----------------------------------------------------------------------------------------------


def test_first_night_deaths_speak_last_words_in_the_order_of_their_seats():
    state = night("night_actions: 9,10,11,12=7\nwitch_action: 2=1\nlast_words: 1=「一」 7=「七」")
    assert [(event.seat, event.text) for event in all_of(state, EventKind.LAST_WORDS)] == [(1, "一"), (7, "七")]
    assert all(event.audience is None for event in all_of(state, EventKind.LAST_WORDS))


def test_later_night_deaths_have_no_last_words():
    state = night("exile_vote:\nnight_actions: 9,10,11,12=7\nwitch_action:")
    assert state.phase is Phase.DISCUSSION and 7 not in state.living


@pytest.mark.parametrize("day", [1, 2])
def test_every_exiled_seat_speaks_last_words_before_night_falls(day):
    state = night("exile_vote:\n" * (day - 1) + "exile_vote: 1,2=5")
    assert last(state, EventKind.EXILED).target == 5 and 5 not in state.living
    (request,) = pending(state)
    assert (request.seat, request.decision, request.options) == (5, Decision.LAST_WORDS, ())
    state = play(state, "last_words: 5=「再见」")
    assert state.day == day + 1 and kinds(state)[-2:] == [EventKind.LAST_WORDS, EventKind.NIGHT_FALLS]


def test_who_is_shot_has_no_last_words():
    state = night(f"{HUNTED}\nlast_words:\nshot: 3=5")
    assert [event.seat for event in all_of(state, EventKind.LAST_WORDS)] == [3] and state.phase is Phase.DISCUSSION


# --- shots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "shooter"),
    [
        (HUNTED, 3),
        ("exile_vote:\n" + HUNTED, 3),
        ("exile_vote: 1,2=3", 3),
        ("exile_vote: 1,2=12", 12),
        ("night_actions: 9,10,11,12=12\nwitch_action:", 12),
        ("night_actions: 4=3 9,10,11,12=3\nwitch_action: 2=save", 3),  # 同守同救 is not poison
    ],
    ids=["hit", "hit on night 2", "exiled", "king exiled", "king hit by its own", "guarded and saved"],
)
def test_a_hit_or_exiled_hunter_or_wolf_king_may_shoot_any_living_seat_or_nobody(script, shooter):
    state = until(night(script), Phase.SHOT)
    request = question(state, shooter)
    assert request.targets == tuple(sorted(state.living)) and request.may_pass and request.options == ()
    state = play(state, f"shot: {shooter}=5")
    assert shots(state) == [(shooter, 5)] and 5 not in state.living
    assert last(state, EventKind.SHOT).audience is None


def test_not_to_shoot_is_not_announced():
    state = until(night(HUNTED), Phase.SHOT)
    known = len(state.events)
    state = play(state, "shot: 3=pass")
    assert [event.kind for event in state.events[known:]] == [EventKind.SPEAKING_ORDER]


@pytest.mark.parametrize(
    ("script", "phase", "newest", "living"),
    [
        (HUNTED, Phase.LAST_WORDS, EventKind.DEATHS_ANNOUNCED, 11),
        ("exile_vote:\nnight_actions: 9,10,11,12=3\nwitch_action:", Phase.NIGHTFALL, EventKind.NIGHT_FALLS, 12),
        ("exile_vote: 1,2=3", Phase.LAST_WORDS, EventKind.EXILED, 11),
    ],
    ids=["first night", "later night", "exile"],
)
def test_while_somebody_may_shoot_the_others_see_what_they_saw_before(script, phase, newest, living):
    """A caller that polls must not learn that there is a hunter to wait for, nor that it hit a wolf king."""
    hunter = until(night(script), Phase.SHOT)
    wolf_king = apply(hunter, {3: Action(12)})
    for state, shooter in ((hunter, 3), (wolf_king, 12)):
        assert asked(state) == [shooter] and observe(state, shooter).phase is Phase.SHOT
        for seat in (5, 6, 7, 8):
            view = observe(state, seat)
            assert (view.phase, view.request, len(view.living)) == (phase, None, living)
            assert known_events(state, seat)[-1].kind is newest
    settled = apply(wolf_king, {12: Action()})
    assert [event.kind for event in known_events(settled, 5)].count(EventKind.SHOT) == 1


@pytest.mark.parametrize("hit", [3, 5])
def test_a_poisoned_hunter_may_not_shoot(hit):
    state = night(f"night_actions: 9,10,11,12={hit}\nwitch_action: 2=3\nlast_words:")
    assert state.phase is Phase.DISCUSSION and 3 not in state.living and shots(state) == []


def test_a_poisoned_wolf_king_may_not_shoot():
    state = night("night_actions:\nwitch_action: 2=12\nlast_words:")
    assert state.phase is Phase.DISCUSSION and 12 not in state.living


def test_a_poisoned_villager_does_not_keep_a_hunter_from_shooting():
    assert until(night("night_actions: 9,10,11,12=3\nwitch_action: 2=5"), Phase.SHOT).waiting == (3,)


def test_who_was_poisoned_in_an_earlier_night_does_not_matter_to_an_exiled_hunter():
    state = night("night_actions:\nwitch_action: 2=5\nexile_vote: 1,2=3\nlast_words:")
    assert (state.phase, asked(state)) == (Phase.SHOT, [3])


def test_everybody_who_may_shoot_does_so_once_however_long_the_chain():
    state = new_game(replace(GUNS, sheriff=False), 0, deck(wolf=1, wolf_king=2, witch=1, hunter=3, villager=2))
    state = play(state, "night_actions: 1,2,3=5\nwitch_action:\nlast_words:\nshot: 5=2 2=6 6=3 3=7 7=8")
    assert shots(state) == [(5, 2), (2, 6), (6, 3), (3, 7), (7, 8)]
    assert state.living == {1, 4, 9} and state.phase is Phase.DISCUSSION


def test_beside_a_poisoned_hunter_one_that_was_hit_shoots_alone_and_not_at_the_dead():
    state = new_game(replace(GUNS, sheriff=False), 0, deck(wolf=1, wolf_king=2, witch=1, hunter=3, villager=2))
    state = play(state, "night_actions: 1,2,3=6\nwitch_action: 4=5\nlast_words:")
    assert asked(state) == [6] and question(state, 6).targets == (1, 2, 3, 4, 7, 8, 9)
    assert play(state, "shot: 6=1").phase is Phase.DISCUSSION


def test_a_dead_seat_cannot_be_shot():
    with pytest.raises(IllegalAction, match="seat 3 may not answer shot"):
        night(f"{HUNTED}\nshot: 3=3")


# --- badge ------------------------------------------------------------------------------------------------------------

DEAD_SHERIFFS = {
    "hit before it was elected": ("night_actions: 9,10,11,12=6", "", 6),
    "poisoned": ("night_actions:\nwitch_action: 2=6", "", 6),
    "hit on night 2": ("", "exile_vote:\nnight_actions: 9,10,11,12=6\nwitch_action:", 6),
    "exiled": ("", "exile_vote: 1,2=6", 6),
    "shot": (HUNTED, "shot: 3=6", 6),
    "a hunter itself": ("", "exile_vote: 1,2=3\nshot: 3=5", 3),
}


@pytest.mark.parametrize(("first", "then", "sheriff"), DEAD_SHERIFFS.values(), ids=DEAD_SHERIFFS.keys())
def test_a_dead_sheriff_passes_its_badge_or_tears_it(first, then, sheriff):
    state = until(twelve(f"{first}\n{ELECTED.format(sheriff)}\n{then}"), Phase.BADGE)
    assert asked(state) == [sheriff] and observe(state, 1).sheriff == sheriff
    assert question(state, sheriff).targets == tuple(sorted(state.living)) and question(state, sheriff).may_pass
    passed, torn = play(state, f"badge: {sheriff}=8"), play(state, f"badge: {sheriff}=pass")
    event = last(passed, EventKind.BADGE_PASSED)
    assert (event.seat, event.target, event.audience, passed.sheriff) == (sheriff, 8, None, 8)
    assert last(torn, EventKind.BADGE_TORN).seat == sheriff and torn.sheriff is None
    assert until(passed, Phase.SPEAKING_ORDER).waiting == (8,)
    assert last(until(torn, Phase.EXILE_VOTE), EventKind.SPEAKING_ORDER).seat is None


def test_the_badge_does_not_move_before_the_death_is_announced():
    state = twelve(f"{ELECTED.format(6)}\nexile_vote:\nnight_actions: 9,10,11,12=6\nwitch_action:")
    shown = kinds(state, since=EventKind.NIGHT_FALLS)
    assert EventKind.DEATHS_ANNOUNCED in shown and EventKind.BADGE_PASSED not in shown
    assert (state.phase, state.sheriff) == (Phase.BADGE, 6)


def test_a_badge_is_not_passed_to_the_dead():
    with pytest.raises(IllegalAction, match="seat 6 may not answer badge"):
        twelve(f"{HUNTED}\n{ELECTED.format(6)}\nshot: 3=6\nbadge: 6=3")


# --- the end ----------------------------------------------------------------------------------------------------------

W, WK, S, H, V = deck(wolf=1, wolf_king=1, seer=1, hunter=1, villager=1)


@pytest.mark.parametrize(
    ("rule", "living", "result"),
    [
        (WinRule.PARITY, (1, 2, 3), None),
        (WinRule.PARITY, (1, 3), Result.WOLF),
        (WinRule.PARITY, (2, 3), Result.GOOD),
        (WinRule.PARITY, (), Result.GOOD),
        (WinRule.WIPE_A_KIND, (1, 2, 3), None),
        (WinRule.WIPE_A_KIND, (1, 3, 4, 5), Result.WOLF),
        (WinRule.WIPE_A_KIND, (1, 2), Result.WOLF),
        (WinRule.WIPE_A_KIND, (2, 3), Result.GOOD),
        (WinRule.WIPE_A_KIND, (3, 4), Result.WOLF),  # both conditions hold: 狼刀在先
        (WinRule.WIPE_A_KIND, (), Result.WOLF),
    ],
)
def test_who_has_won(rule, living, result):
    assert outcome(rule, (W, S, V, V, V), frozenset(living)) is result


def test_only_kinds_that_were_dealt_can_be_wiped_out():
    assert outcome(WinRule.WIPE_A_KIND, (W, V, V), frozenset({1, 2})) is None
    assert outcome(WinRule.WIPE_A_KIND, (W, S, H), frozenset({1, 2})) is None


def test_a_win_by_night_is_announced_before_the_game_ends():
    state = new_game(TINY, 0, (W, S, V, V, V))
    state = play(state, "night_actions: 1=3\nexile_vote: 1,2=4\nnight_actions: 1=5")
    assert kinds(state)[-3:] == [EventKind.DAY_BREAKS, EventKind.DEATHS_ANNOUNCED, EventKind.GAME_OVER]
    assert last(state, EventKind.DEATHS_ANNOUNCED).data == {"seats": "5"}
    assert winner(state) is Result.WOLF and pending(state) == () and state.phase is Phase.GAME_OVER


def test_an_exile_that_decides_the_game_ends_it_without_last_words_and_badge():
    state = new_game(replace(TINY, sheriff=True), 0, (W, S, V, V, V))
    state = play(state, "sign_up: 1=run\ncampaign:\nexile_vote: 2,3,4=1")
    assert kinds(state)[-2:] == [EventKind.EXILED, EventKind.GAME_OVER]
    assert winner(state) is Result.GOOD
    assert last(state, EventKind.GAME_OVER).data == {"result": "good"}


def nine(script: str) -> GameState:
    """9p: 1 seer, 2 witch, 3 hunter, 4 to 6 villagers, 7 to 9 wolves."""
    return play(new_game(NINE, 0, deck(seer=1, witch=1, hunter=1, villager=3, wolf=3)), script)


GODS_BUT_ONE = "night_actions: 7,8,9=1\nwitch_action:\nexile_vote: 4,5=2\n"
"""Seer and witch die; the hunter is the last god."""


def test_a_pending_shot_is_taken_before_the_win_is_looked_at():
    state = nine(GODS_BUT_ONE + "night_actions: 7,8,9=3")
    assert (winner(state), state.phase, asked(state)) == (None, Phase.SHOT, [3])
    state = play(state, "shot: 3=7")
    assert winner(state) is Result.WOLF
    assert kinds(state)[-2:] == [EventKind.SHOT, EventKind.GAME_OVER]


def test_a_shot_may_turn_a_win_into_a_game_that_goes_on():
    parity = replace(NINE, win_rule=WinRule.PARITY)
    state = play(
        new_game(parity, 0, deck(seer=1, witch=1, hunter=1, villager=3, wolf=3)),
        "night_actions: 7,8,9=1\nwitch_action:\nexile_vote: 2,4=5\nnight_actions: 7,8,9=3\nwitch_action:",
    )
    # Three wolves, and three others once the hunter is dead.
    assert (winner(state), state.living, asked(state)) == (None, {2, 4, 6, 7, 8, 9}, [3])
    assert winner(play(state, "shot: 3=pass")) is Result.WOLF
    assert play(state, "shot: 3=7").phase is Phase.DISCUSSION


def test_a_shot_wins_for_the_good_side_when_the_last_wolf_falls():
    state = nine("exile_vote: 1,2=7\nexile_vote: 1,2=8\nexile_vote: 1,2=3\nshot: 3=9")
    assert winner(state) is Result.GOOD and state.living == {1, 2, 4, 5, 6}


def test_last_words_are_spoken_before_a_shot_that_decides():
    state = nine("exile_vote: 1,2=7\nexile_vote: 1,2=8\nexile_vote: 1,2=3\nlast_words: 3=「带走9号」\nshot: 3=9")
    assert kinds(state)[-4:] == [EventKind.EXILED, EventKind.LAST_WORDS, EventKind.SHOT, EventKind.GAME_OVER]


def test_at_the_round_limit_the_dead_still_get_their_shot_and_pass_the_badge():
    state = play(
        new_game(replace(TWELVE, round_limit=1), 0, TWELVE_DEAL),
        f"{ELECTED.format(3)}\nexile_vote: 1,2=3\nshot: 3=9\nbadge: 3=1",
    )
    assert winner(state) is Result.DRAW and state.living == set(range(1, 13)) - {3, 9} and state.sheriff == 1
