"""The night, rule by rule: guard, wolves, seer, witch, and who dies of it."""

import pytest

from runners.werewolf.game import (
    Action,
    Decision,
    EventKind,
    GameState,
    IllegalAction,
    Option,
    Phase,
    Side,
    apply,
    new_game,
    observe,
    pending,
)
from tests.support.game.game_playing import SEVEN, STRICT, TINY, deck
from tests.support.game.game_scripts import all_of, asked, kinds, last, play, question, twelve, until

SEVEN_DEAL = deck(wolf=2, seer=1, villager=4)


def night(script: str, seed: int = 0, **rules: object) -> GameState:
    """Twelve players without an election: 1 seer, 2 witch, 3 hunter, 4 guard, 9 to 11 wolves, 12 wolf king."""
    return twelve(script, seed, sheriff=False, **rules)


def deaths(state: GameState) -> tuple[int, ...]:
    return last(state, EventKind.DEATHS_ANNOUNCED).seats


# --- guard ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "witch", "dead"),
    [
        ("4=5", "", ()),
        ("", "2=save", ()),
        ("4=6", "", (5,)),
        ("", "", (5,)),
        ("4=5", "2=save", (5,)),  # 同守同救
        ("4=6", "2=save", ()),
        ("4=5", "2=5", (5,)),  # poison ignores the guard
        ("4=6", "2=6", (5, 6)),
        ("", "2=5", (5,)),
        ("", "2=1", (1, 5)),
    ],
)
def test_who_dies_of_a_night_in_which_the_wolves_hit_5(guard, witch, dead):
    assert deaths(night(f"night_actions: {guard} 9,10,11,12=5\nwitch_action: {witch}")) == dead


def test_the_guard_may_not_guard_a_seat_two_nights_running():
    state = until(night("night_actions: 4=5\nexile_vote:"), Phase.NIGHT_ACTIONS)
    assert question(state, 4).targets == (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12)
    with pytest.raises(IllegalAction, match="seat 4 may not answer guard"):
        play(state, "night_actions: 4=5")


@pytest.mark.parametrize("between", ["4=6", "4=pass"])
def test_after_a_night_between_the_guard_may_guard_the_seat_again(between):
    state = night(f"night_actions: 4=5\nexile_vote:\nnight_actions: {between}\nexile_vote:")
    assert 5 in question(until(state, Phase.NIGHT_ACTIONS), 4).targets


def test_a_refused_repeat_does_not_clear_the_guards_memory():
    state = until(night("night_actions: 4=5\nexile_vote:"), Phase.NIGHT_ACTIONS)
    for _ in range(2):
        with pytest.raises(IllegalAction):
            play(state, "night_actions: 4=5")
    assert 5 not in question(state, 4).targets


# --- wolves -----------------------------------------------------------------------------------------------------------


def test_a_lone_wolf_does_not_talk_and_wolf_and_seer_are_asked_at_once():
    state = new_game(TINY, 0, deck(wolf=1, seer=1, villager=3))
    assert [(r.seat, r.decision) for r in pending(state)] == [(1, Decision.WOLF_KILL), (2, Decision.SEER_CHECK)]
    assert pending(state)[0].targets == (2, 3, 4, 5)
    assert pending(state)[1].targets == (1, 3, 4, 5)


def test_guard_wolves_and_seer_are_asked_at_once_and_before_the_witch():
    state = until(night(""), Phase.NIGHT_ACTIONS)
    assert asked(state) == [1, 4, 9, 10, 11, 12]
    assert asked(play(state, "night_actions: 9=5")) == [2]


def test_wolves_talk_in_turn_and_only_wolves_hear():
    state = new_game(SEVEN, 3, SEVEN_DEAL)
    speakers = []
    while state.phase is Phase.WOLF_TALK:
        (request,) = pending(state)
        speakers.append(request.seat)
        assert all(observe(state, seat).phase is Phase.NIGHTFALL for seat in range(1, 8) if seat != request.seat)
        state = apply(state, {request.seat: Action(request.seat + 2, "刀他")})
    assert sorted(speakers) == [1, 1, 2, 2] and speakers[:2] == speakers[2:]
    assert last(state, EventKind.WOLF_SAYS).audience == {1, 2} and last(state, EventKind.WOLF_SAYS).text == "刀他"
    assert asked(state) == [1, 2, 3]


def test_agreement_in_a_later_round_ends_the_talk_there():
    state = night("wolf_talk: 9,10=5 11,12=6/5", wolf_talk_rounds=3)
    assert len(all_of(state, EventKind.WOLF_SAYS)) == 8 and asked(state) == [1, 4]


def test_agreement_counts_within_a_round_only():
    state = new_game(SEVEN, 3, SEVEN_DEAL)
    first, second = state.waiting[:2]
    # The last proposal of the first round and the first of the second are the same; no round is unanimous.
    state = play(state, f"wolf_talk: {first}=4/5 {second}=5/6")
    assert len(all_of(state, EventKind.WOLF_SAYS)) == 4 and asked(state) == [1, 2, 3]


def test_wolves_that_all_propose_nobody_have_not_agreed():
    state = until(night("wolf_talk: 9,10,11,12=pass"), Phase.NIGHT_ACTIONS)
    assert len(all_of(state, EventKind.WOLF_SAYS)) == 8 and asked(state) == [1, 4, 9, 10, 11, 12]


def test_an_agreement_holds_for_one_night():
    state = night("wolf_talk: 9,10,11,12=5\nexile_vote:")
    assert asked(until(state, Phase.NIGHT_ACTIONS)) == [1, 4, 9, 10, 11, 12]


def test_a_wolf_left_alone_no_longer_talks():
    state = play(new_game(SEVEN, 3, SEVEN_DEAL), "exile_vote: 3=1\nlast_words:")
    assert state.day == 2 and state.phase is Phase.NIGHT_ACTIONS


def test_a_dead_wolf_hears_no_more_of_what_the_wolves_do():
    state = night("exile_vote: 1,2=9\nwolf_talk: 10,11,12=5")
    for kind in (EventKind.WOLF_SAYS, EventKind.WOLF_TARGET):
        assert last(state, kind).audience == {10, 11, 12}
    state = night("exile_vote: 1,2=9\nnight_actions: 10,11,12=5")
    for kind in (EventKind.WOLF_VOTE, EventKind.WOLF_TARGET):
        assert last(state, kind).audience == {10, 11, 12}


def test_without_talk_the_wolves_only_vote():
    state = night("", wolf_talk_rounds=0)
    assert state.phase is Phase.NIGHT_ACTIONS and asked(state) == [1, 4, 9, 10, 11, 12]


def test_most_wolves_decide_and_all_of_them_learn_how_each_voted():
    state = night("night_actions: 9,12=5 10=6 11=pass\nwitch_action:")
    assert deaths(state) == (5,)
    votes = all_of(state, EventKind.WOLF_VOTE)
    assert [(event.seat, event.target) for event in votes] == [(9, 5), (10, 6), (11, None), (12, 5)]
    assert all(event.audience == {9, 10, 11, 12} for event in votes)


def test_ties_among_wolves_fall_to_a_seeded_draw_between_the_tied():
    victims = []
    for seed in range(40):
        state = play(new_game(SEVEN, seed, SEVEN_DEAL), "wolf_talk:")
        actions = {1: Action(4), 2: Action(None), 3: Action(5)}
        assert apply(state, actions).events == apply(state, actions).events
        victims.append(last(apply(state, actions), EventKind.WOLF_TARGET).target)
    assert set(victims) == {4, None} and 5 < victims.count(4) < 35


def test_the_wolves_may_hit_nobody():
    state = night("night_actions: 9,10,11=pass 12=5\nwitch_action:")
    assert last(state, EventKind.WOLF_TARGET).target is None and deaths(state) == ()


def test_wolves_may_hit_their_own_only_where_the_preset_says_so():
    assert deaths(night("night_actions: 9,10,11,12=9\nwitch_action:")) == (9,)
    with pytest.raises(IllegalAction):
        play(new_game(TINY, 0, deck(wolf=1, seer=1, villager=3)), "night_actions: 1=1")
    talk = pending(night("", wolves_may_hit_wolves=False))[0]
    assert talk.decision is Decision.WOLF_TALK and talk.targets == (1, 2, 3, 4, 5, 6, 7, 8)


def test_wolves_that_must_hit_somebody_may_not_pass():
    state = new_game(STRICT, 0, deck(wolf=2, seer=1, villager=3))
    assert not question(state, 1).may_pass and question(state, 1).default.choice in (3, 4, 5, 6)
    with pytest.raises(IllegalAction, match=r"legal: \[3, 4, 5, 6\], no speech"):
        play(state, "night_actions: 1,2=pass")


# --- seer -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "side"), [(2, Side.GOOD), (8, Side.GOOD), (9, Side.WOLF), (12, Side.WOLF)])
def test_the_seer_learns_the_side_alone_and_the_wolf_king_is_a_wolf(target, side):
    found = last(night(f"night_actions: 1={target}"), EventKind.SEER_RESULT)
    assert (found.seat, found.target, found.data, found.audience) == (1, target, {"side": side}, {1})


def test_the_seer_checks_a_living_seat_other_than_itself_or_nobody():
    state = until(night("night_actions: 9,10,11,12=5\nwitch_action:\nexile_vote:"), Phase.NIGHT_ACTIONS)
    assert question(state, 1).targets == (2, 3, 4, 6, 7, 8, 9, 10, 11, 12) and question(state, 1).may_pass
    assert EventKind.SEER_RESULT not in kinds(play(state, "night_actions: 1=pass"))


def test_a_seer_that_dies_tonight_still_learns_its_result():
    state = night("night_actions: 1=9 9,10,11,12=1\nwitch_action:")
    assert deaths(state) == (1,)
    assert last(state, EventKind.SEER_RESULT) in observe(state, 1).events


# --- witch ------------------------------------------------------------------------------------------------------------


def test_the_witch_learns_the_victim_and_may_save_it_or_poison_another():
    state = night("night_actions: 9,10,11,12=5")
    request = question(state, 2)
    assert request.targets == (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    assert (request.options, request.subject, request.may_pass) == ((Option.SAVE,), 5, True)
    told = last(state, EventKind.WITCH_TOLD)
    assert (told.seat, told.target, told.audience) == (2, 5, {2})


def test_in_a_night_without_a_victim_there_is_nobody_to_save():
    state = night("night_actions: 9,10,11,12=pass")
    assert last(state, EventKind.WITCH_TOLD).target is None
    assert question(state, 2).options == () and question(state, 2).subject is None
    with pytest.raises(IllegalAction, match="seat 2 may not answer witch"):
        play(state, "witch_action: 2=save")
    assert state.antidote


def test_the_witch_may_save_herself_only_where_the_preset_says_so():
    script = "night_actions: 9,10,11,12=2"
    state = night(script)
    assert last(state, EventKind.WITCH_TOLD).target == 2
    assert question(state, 2).options == () and question(state, 2).subject is None
    state = night(script, witch_self_save=True)
    assert question(state, 2).options == (Option.SAVE,) and question(state, 2).subject == 2
    assert deaths(play(state, "witch_action: 2=save")) == ()


def test_the_antidote_is_used_once_and_afterwards_she_learns_no_victim():
    state = night("night_actions: 9,10,11,12=5\nwitch_action: 2=save\nexile_vote:\nnight_actions: 9,10,11,12=6")
    assert [event.day for event in all_of(state, EventKind.WITCH_TOLD)] == [1]
    request = question(state, 2)
    assert request.options == () and request.subject is None and 6 in request.targets
    assert all(event.target != 6 for event in observe(state, 2).events)


def test_the_poison_is_used_once():
    state = night("night_actions: 9,10,11,12=5\nwitch_action: 2=6\nexile_vote:\nnight_actions: 9,10,11,12=7")
    assert question(state, 2).targets == () and question(state, 2).options == (Option.SAVE,)


def test_one_answer_uses_at_most_one_potion():
    state = night("night_actions: 9,10,11,12=5")
    saved, poisoned = play(state, "witch_action: 2=save"), play(state, "witch_action: 2=9")
    assert (saved.antidote, saved.poison) == (False, True) and deaths(saved) == ()
    assert (poisoned.antidote, poisoned.poison) == (True, False) and deaths(poisoned) == (5, 9)


def test_a_witch_with_nothing_to_use_is_not_asked():
    both_used = """
        night_actions: 9,10,11,12=5
        witch_action:  2=save
        exile_vote:
        night_actions:
        witch_action:  2=6
        exile_vote:
        night_actions: 9,10,11,12=7
    """
    state = night(both_used)
    assert state.phase is not Phase.WITCH_ACTION and deaths(state) == (7,)
    antidote_left = "night_actions:\nwitch_action: 2=6\nexile_vote:\nnight_actions: 9,10,11,12=pass"
    state = night(antidote_left)
    assert state.phase is not Phase.WITCH_ACTION
    assert [(event.day, event.target) for event in all_of(state, EventKind.WITCH_TOLD)] == [(1, None), (2, None)]


def test_a_witch_hit_tonight_may_still_poison():
    assert deaths(night("night_actions: 9,10,11,12=2\nwitch_action: 2=9")) == (2, 9)


def test_only_the_witch_learns_what_she_did():
    state = night("night_actions: 9,10,11,12=5\nwitch_action: 2=save")
    assert last(state, EventKind.ANTIDOTE_USED).audience == {2}
    state = night("night_actions: 9,10,11,12=5\nwitch_action: 2=9")
    assert last(state, EventKind.POISON_USED).audience == {2}


# --- shot status, announcement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "statuses"),
    [
        ("night_actions:\nwitch_action:", {3: "yes", 12: "yes"}),
        ("night_actions: 9,10,11,12=3\nwitch_action:", {3: "yes", 12: "yes"}),
        ("night_actions: 9,10,11,12=5\nwitch_action: 2=3", {3: "no", 12: "yes"}),
        ("night_actions: 9,10,11,12=12\nwitch_action: 2=12", {3: "yes", 12: "no"}),
        ("night_actions: 4=3 9,10,11,12=3\nwitch_action: 2=save", {3: "yes", 12: "yes"}),
    ],
)
def test_hunter_and_wolf_king_learn_whether_they_could_shoot(script, statuses):
    told = all_of(night(script), EventKind.SHOT_STATUS)
    assert {event.seat: event.data["may_shoot"] for event in told} == statuses
    assert all(event.audience == {event.seat} for event in told)
