"""The rules of a round, each told in a script and in the facts that follow from it (``game_scripts``).

The table of twelve is dealt 1 seer, 2 witch, 3 hunter, 4 guard, 5 to 8 villagers, 9 to 11 wolves, 12 wolf king. Who is
asked what, and what becomes of every answer, is held to the rules at every step of random games
(``game_invariants``); what is here shows the rules, and stands for the games that chance seldom plays.
"""

from dataclasses import replace

import pytest

from runners.werewolf.game import (
    Action,
    EventKind,
    GameState,
    Phase,
    Result,
    WinRule,
    apply,
    new_game,
    pending,
)
from runners.werewolf.game.aftermath import outcome
from tests.support.game.game_playing import NINE, SEVEN, TINY, TWELVE, deck
from tests.support.game.game_scripts import all_of, check, last, play, question, twelve, until

EVERY_SEAT = "1,2,3,4,5,6,7,8,9,10,11,12"


def scenarios(told: dict[str, tuple[str, str]]):
    return pytest.mark.parametrize(("script", "facts"), told.values(), ids=told.keys())


def night(script: str, seed: int = 0, **rules: object) -> GameState:
    """The table of twelve without an election."""
    return twelve(script, seed, sheriff=False, **rules)


# --- the night --------------------------------------------------------------------------------------------------------

HIT_5 = "night_actions: 9,10,11,12=5"


NIGHTS = {
    "a round of one mind ends the talk": ("wolf_talk: 9,10=5 11,12=6/5", "talk=8 asked=1,4 hit=5"),
    "the witch learns the victim": (
        HIT_5,
        "told=5 asks=witch subject=5 options=save targets=1,3,4,5,6,7,8,9,10,11,12 pass=True",
    ),
    "without a victim nobody is saved": (
        "night_actions: 9,10,11,12=pass",
        "told=0 options=- subject=- unsaved=nobody_hit",
    ),
    "not herself": ("night_actions: 9,10,11,12=2", "told=2 options=- subject=- unsaved=herself"),
    "the antidote is used once, and she learns no more": (
        f"{HIT_5}; witch_action: 2=save; exile_vote:; night_actions: 9,10,11,12=6",
        "day=2 told=5 options=- subject=- unsaved=used",
    ),
    "the poison is used once": (
        f"{HIT_5}; witch_action: 2=6; exile_vote:; night_actions: 9,10,11,12=7",
        "targets=- options=save",
    ),
    "who has nothing to use is not asked": (
        f"{HIT_5}; witch_action: 2=save; exile_vote:; night_actions:; witch_action: 2=6; exile_vote:; "
        "night_actions: 9,10,11,12=7",
        "day=3 phase=discussion deaths=7",
    ),
    "nor who could only save nobody": (
        "night_actions:; witch_action: 2=6; exile_vote:; night_actions: 9,10,11,12=pass",
        "day=2 phase=discussion told=0,0",
    ),
    "a witch hit tonight may still poison": ("night_actions: 9,10,11,12=2; witch_action: 2=9", "deaths=2,9"),
    "the poisoned may not": ("night_actions: 9,10,11,12=12; witch_action: 2=12", "guns=3:yes,12:no"),
}


@scenarios(NIGHTS)
def test_a_night(script, facts):
    check(night(script), facts)


def test_a_wolf_sees_proposals_of_its_mates_and_the_remaining_rounds():
    state, speakers, told = until(night(""), Phase.WOLF_TALK), [], []
    for victim in (5, 6, None, 5, 6):
        (request,) = pending(state)
        speakers.append(request.seat)
        told.append((request.rounds_left, request.proposed))
        state = apply(state, {request.seat: Action(victim)})
    one, two, _, four, again = speakers
    assert again == one and told[:3] == [(1, ()), (1, ((one, 5),)), (1, ((one, 5), (two, 6)))]
    assert told[4] == (0, ((two, 6), (four, 5)))


def test_the_guard_may_not_guard_a_seat_two_nights_running():
    guarded = "night_actions: 4=5; exile_vote:"
    check(until(night(guarded), Phase.NIGHT_ACTIONS), "asked=1,4,9,10,11,12")
    assert 5 not in question(until(night(guarded), Phase.NIGHT_ACTIONS), 4).targets
    for between in ("4=6", "4=pass"):
        state = until(night(f"{guarded}; night_actions: {between}; exile_vote:"), Phase.NIGHT_ACTIONS)
        assert 5 in question(state, 4).targets


def test_the_rules_of_the_night_that_a_preset_may_set():
    check(night("", wolf_talk_rounds=0), "phase=night_actions")
    check(night("night_actions: 9,10,11,12=2; witch_action: 2=save", witch_self_save=True), "deaths=-")
    check(night("", wolves_may_hit_wolves=False), "targets=1,2,3,4,5,6,7,8")


# --- the election -----------------------------------------------------------------------------------------------------

TWO_RUN = "sign_up: 1,5=run"
TIED = f"{TWO_RUN}; sheriff_vote: 2=1 3=5"
ELECTIONS = {
    "who runs is revealed together": ("sign_up: 5,1=run", "runs=1,5 phase=campaign options=withdraw"),
    "who never signed up votes for who still runs": (
        "sign_up: 1,5,6,9=run; campaign: 6=withdraw; withdrawal:",
        "asked=2,3,4,7,8,10,11,12 targets=1,5,9 pass=True",
    ),
    "most votes elect": (
        f"{TWO_RUN}; sheriff_vote: 2,3,4=1 6,7=5 8=pass",
        "sheriff=1 count=1:3,5:2 ballot=2>1,3>1,4>1,6>5,7>5,8>0,9>0,10>0,11>0,12>0",
    ),
    "a lone candidate": ("sign_up: 5=run; unopposed:", "sheriff=5 ballot=-"),
    "nobody is left to vote": (f"sign_up: {EVERY_SEAT}=run; withdrawal: 1=withdraw", "lost=no_voters sheriff=-"),
    "all abstain": (f"{TWO_RUN}; sheriff_vote:", "lost=no_votes sheriff=-"),
    "all abstain in the PK": (f"{TIED}; sheriff_pk_vote:", "lost=no_votes sheriff=-"),
    "all that are not on the PK stage vote": (
        "sign_up: 1,5,6,9=run; campaign: 6=withdraw; sheriff_vote: 2,3=1 4,7=5; sheriff_pk_speech:",
        "tied=1,5 asked=2,3,4,6,7,8,9,10,11,12 targets=1,5",
    ),
    "last night's dead vote": (
        f"{HIT_5}; witch_action: 2=6; sign_up: 1,7=run; withdrawal:",
        "asked=2,3,4,5,6,8,9,10,11,12 dead=-",
    ),
}


@scenarios(ELECTIONS)
def test_an_election(script, facts):
    check(twelve(script), facts)


# --- what deaths bring ------------------------------------------------------------------------------------------------

HUNTED = "night_actions: 9,10,11,12=3; witch_action:"
LATER = f"exile_vote:; {HUNTED}"
DEATHS = {
    "last words by seat": (
        "night_actions: 9,10,11,12=7; witch_action: 2=1; last_words: 1,7=「再见」",
        "words=1,7 phase=discussion",
    ),
    "of every exile": ("exile_vote:; exile_vote: 1,2=5", "exiled=5 dead=5 asked=5 asks=last_words options=-"),
    "none of who is shot": (f"{HUNTED}; shot: 3=5", "words=3 shots=3>5 dead=3,5 phase=discussion"),
    "not to shoot is not announced": (f"{LATER}; shot: 3=pass", "shots=- newest=speaking_order"),
    "nor a poisoned wolf king": ("night_actions:; witch_action: 2=12; last_words:", "dead=12 phase=discussion"),
    "nor an earlier night's": (
        "night_actions:; witch_action: 2=5; exile_vote: 1,2=3; last_words:",
        "phase=shot asked=3",
    ),
}


@scenarios(DEATHS)
def test_a_death(script, facts):
    check(night(script), facts)


DEAD_SHERIFFS = {
    "hit before it was elected": ("night_actions: 9,10,11,12=6", "", 6),
    "exiled": ("", "exile_vote: 1,2=6", 6),
    "a hunter itself": ("", "exile_vote: 1,2=3; shot: 3=5", 3),
}


@pytest.mark.parametrize(("first", "then", "sheriff"), DEAD_SHERIFFS.values(), ids=DEAD_SHERIFFS.keys())
def test_a_dead_sheriff_passes_its_badge_or_tears_it_once_its_death_is_announced(first, then, sheriff):
    state = until(twelve("; ".join(filter(None, (first, f"sign_up: {sheriff}=run; campaign:", then)))), Phase.BADGE)
    living = ",".join(map(str, sorted(state.living)))
    check(state, f"asked={sheriff} sheriff={sheriff} targets={living} pass=True")
    check(until(play(state, f"badge: {sheriff}=8"), Phase.SPEAKING_ORDER), "sheriff=8 asked=8")
    torn = until(play(state, f"badge: {sheriff}=pass"), Phase.EXILE_VOTE)
    assert torn.sheriff is None and last(torn, EventKind.SPEAKING_ORDER).seat is None


# --- the day ----------------------------------------------------------------------------------------------------------

SHERIFF_6 = "sign_up: 6=run; campaign:"
DAYS = {
    "警左": (f"{SHERIFF_6}; speaking_order: 6=sheriff_left", "order=7,8,9,10,11,12,1,2,3,4,5,6"),
    "警右": (f"{SHERIFF_6}; speaking_order: 6=sheriff_right", "order=5,4,3,2,1,12,11,10,9,8,7,6"),
    "死左": (
        f"night_actions: 9,10,11,12=8; {SHERIFF_6}; speaking_order: 6=dead_left",
        "order=9,10,11,12,1,2,3,4,5,7,6",
    ),
    "死右": (
        f"night_actions: 9,10,11,12=8; {SHERIFF_6}; speaking_order: 6=dead_right",
        "order=7,5,4,3,2,1,12,11,10,9,6",
    ),
    "the weight goes with the badge": (
        f"{SHERIFF_6}; exile_vote: 1,2=6; badge: 6=7; exile_vote: 7=9 1=8",
        "count=9:1.5,8:1",
    ),
    "votes": ("exile_vote: 1,2=5 3=1; last_words:", "exiled=5 count=5:2,1:1 day=2"),
    "a tie": ("exile_vote: 1,2=3 3,5=1; pk_speech:", "tied=1,3 asked=2,4,5,6,7,8,9,10,11,12 targets=1,3"),
    "PK": ("exile_vote: 1,2=3 3,5=1; pk_vote: 2=3", "exiled=3"),
    "all abstain": ("exile_vote:", "exiled=- count=- day=2"),
}


@scenarios(DAYS)
def test_a_day(script, facts):
    check(twelve(script), facts)


def test_the_sheriff_closes_the_discussion_and_may_name_whom_it_wants_exiled():
    state = twelve(f"{SHERIFF_6}; speaking_order: 6=sheriff_left")
    while state.waiting != (6,):
        check(state, "asks=speech targets=-")
        state = apply(state, {state.waiting[0]: Action()})
    check(state, "asks=closing_speech targets=1,2,3,4,5,7,8,9,10,11,12 pass=True")
    closing = last(apply(state, {6: Action(9, "听我的")}), EventKind.CLOSING_SPEECH)
    assert (closing.seat, closing.target, closing.text) == (6, 9, "听我的")


def test_a_tie_of_all_living_seats_exiles_nobody():
    state = play(new_game(TINY, 0, deck(wolf=1, seer=1, villager=3)), "night_actions: 1=3; exile_vote: 1=2 2=4 4=5 5=1")
    check(state, "day=2 exiled=- tied=1,2,4,5")


# --- explosions -------------------------------------------------------------------------------------------------------

EXPLOSIONS = {
    "campaign speech": "sign_up: 1,9=run; campaign: 9=explode",
    "withdrawal": "sign_up: 1,9=run; withdrawal: 1=withdraw 9=explode",
    "sheriff vote": "sign_up: 1,5=run; sheriff_vote: 2,3=1 9=explode",
    "sheriff PK vote": "sign_up: 1,5=run; sheriff_vote: 2=1 3=5; sheriff_pk_vote: 2,3,4=1 9=explode",
    "discussion": "discussion: 9=explode",
    "exile vote": "exile_vote: 1,2,3=4 9=explode",
    "exile PK vote": "exile_vote: 1,2=6 3,4=5; pk_vote: 1,2,3=5 9=explode",
}


@pytest.mark.parametrize("script", EXPLOSIONS.values(), ids=EXPLOSIONS.keys())
def test_an_explosion_ends_the_day_which_has_one_announcement(script):
    state = until(twelve(f"night_actions: 9,10,11,12=8; {script}"), Phase.NIGHT_ACTIONS)
    check(state, "day=2 dead=8,9 exploded=9 words=8 exiled=-")
    assert [event.seats for event in all_of(state, EventKind.DEATHS_ANNOUNCED)] == [(8,)]
    told = [event.kind for event in state.events]
    put_off = state.election is not None and state.election.put_off
    assert (told.index(EventKind.EXPLODED) < told.index(EventKind.DEATHS_ANNOUNCED)) is put_off
    after = set(told[told.index(EventKind.EXPLODED) :])
    assert not after & {EventKind.VOTE, EventKind.SHERIFF_VOTE, EventKind.EXILED, EventKind.SHERIFF_ELECTED}


PUT_OFF = "sign_up: 1,5,9=run; campaign: 9=explode; night_actions:; witch_action:"
PUT_OFFS = {
    "the night's deaths are announced": (
        "night_actions: 9,10,11,12=3; sign_up: 1,9=run; campaign: 9=explode; last_words:; shot: 3=10",
        "deaths=3 dead=3,9,10 day=2",
    ),
    "a wolf hit last night gives its last words away": (
        "night_actions: 9,10,11,12=9; witch_action: 2=5; sign_up: 1,9=run; campaign: 9=explode; last_words: 5=「再见」",
        "deaths=5,9 words=5 dead=5,9 day=2",
    ),
    "a vote the next day": (PUT_OFF, "day=2 phase=sheriff_vote asked=2,3,4,6,7,8,10,11,12 targets=1,5"),
    "who withdrew neither runs nor votes": (
        "sign_up: 1,5,6=run; campaign: 6=withdraw; sheriff_vote: 9=explode; night_actions:; witch_action:",
        "asked=2,3,4,7,8,10,11,12 targets=1,5",
    ),
    "the tie is forgotten": (
        "sign_up: 1,5,6=run; sheriff_vote: 2=1 3=5; sheriff_pk_vote: 9=explode; night_actions:; witch_action:",
        "phase=sheriff_vote targets=1,5,6",
    ),
    "who was killed meanwhile runs until it is announced": (
        "sign_up: 1,5,9=run; campaign: 9=explode; night_actions: 10,11,12=5; sheriff_vote: 2,3=5",
        "sheriff=5 deaths=5 phase=badge asked=5",
    ),
    "nobody is left": (
        "sign_up: 9=run; campaign: 9=explode; night_actions:; witch_action:",
        "day=2 lost=nobody_runs phase=discussion",
    ),
}


@scenarios(PUT_OFFS)
def test_an_explosion(script, facts):
    check(twelve(script), facts)


def test_a_wolf_king_that_explodes_does_not_shoot_and_the_last_wolf_loses_by_it():
    check(twelve("discussion: 12=explode", wolf_king_may_explode=True), "day=2 dead=12 shots=-")
    script = "; ".join(f"exile_vote: {seat}=explode" for seat in (9, 10, 12, 11))
    check(twelve(script, wolf_king_may_explode=True), "result=good newest=game_over")


SHOWN = replace(
    TWELVE, deck=deck(seer=1, witch=1, hunter=1, idiot=1, villager=4, wolf=3, white_wolf_king=1), name="12p_shown"
)
"""1 seer, 2 witch, 3 hunter, 4 idiot, 5 to 8 villagers, 9 to 11 wolves, 12 white wolf king."""
SHOWS = "exile_vote: 1,2=4"
CARDS = {
    "an idiot that is exiled stays, and has no last words": (SHOWS, "revealed=4 exiled=- dead=- words=- day=2"),
    "it speaks, and neither votes nor is voted for": (
        f"{SHOWS}; discussion: 4=「过」",
        "asked=1,2,3,5,6,7,8,9,10,11,12 targets=2,3,5,6,7,8,9,10,11,12",
    ),
    "a PK shows it, too": ("exile_vote: 1,2=4 3,5=6; pk_vote: 1,2=4", "revealed=4 dead=- day=2"),
    "as the sheriff it keeps the badge": (
        f"sign_up: 4=run; {SHOWS}; speaking_order:",
        "sheriff=4 day=2 phase=discussion",
    ),
    "a white wolf king takes one with its explosion": (
        "discussion: 12=explode; shot: 12=5",
        "exploded=12 shots=12>5 dead=5,12 day=2",
    ),
    "whom it takes may shoot": ("discussion: 12=explode; shot: 12=3 3=9", "shots=12>3,3>9 dead=3,9,12"),
    "the dead of the night are announced before it takes one": (
        f"{HIT_5}; sign_up: 12=run; campaign: 12=explode",
        "deaths=5 phase=last_words asked=5",
    ),
    "the game is over once it has chosen": (
        "; ".join(f"exile_vote: {seat}=explode" for seat in (9, 10, 11, 12)),
        "phase=shot asks=take pass=True result=-",
    ),
}


@scenarios(CARDS)
def test_a_card_that_is_shown_by_day(script, facts):
    sheriff = "sign_up" in script
    check(play(new_game(replace(SHOWN, sheriff=sheriff), 0, SHOWN.deck), script), facts)


DUELS = replace(
    TWELVE, deck=deck(seer=1, witch=1, hunter=1, knight=1, villager=4, wolf=3, wolf_king=1), name="12p_duels"
)
DUEL_SCRIPTS = {
    "a wolf dies of it, and the day ends": ("duel: 4=9", "dead=9 words=- votes=- day=2"),
    "a king does not shoot": ("duel: 4=12", "dead=12 shots=- day=2"),
    "the knight dies of one with a good seat, and all vote": (
        "duel: 4=5",
        "dead=4 words=- phase=exile_vote asked=1,2,3,5,6,7,8,9,10,11,12 day=1",
    ),
    "it may wait": (
        "duel: 4=pass; exile_vote:; discussion:",
        "phase=duel asked=4 asks=duel targets=1,2,3,5,6,7,8,9,10,11,12",
    ),
    "as the sheriff it passes the badge on before the vote": (
        "sign_up: 4=run; duel: 4=5; badge: 4=6",
        "sheriff=6 phase=exile_vote",
    ),
}


@scenarios(DUEL_SCRIPTS)
def test_a_duel(script, facts):
    check(play(new_game(replace(DUELS, sheriff="sign_up" in script), 0, DUELS.deck), script), facts)


# --- the end ----------------------------------------------------------------------------------------------------------

W, WK, S, H, V = deck(wolf=1, wolf_king=1, seer=1, hunter=1, villager=1)


@pytest.mark.parametrize(
    ("rule", "roles", "living", "result"),
    [
        (WinRule.PARITY, (W, S, V, V, V), (1, 2, 3), None),
        (WinRule.PARITY, (W, S, V, V, V), (1, 3), Result.WOLF),
        (WinRule.PARITY, (W, S, V, V, V), (2, 3), Result.GOOD),
        (WinRule.PARITY, (W, S, V, V, V), (), Result.GOOD),
        (WinRule.WIPE_A_KIND, (W, S, V, V, V), (1, 2, 3), None),
        (WinRule.WIPE_A_KIND, (W, S, V, V, V), (1, 3, 4, 5), Result.WOLF),
        (WinRule.WIPE_A_KIND, (W, S, V, V, V), (1, 2), Result.WOLF),
        (WinRule.WIPE_A_KIND, (W, S, V, V, V), (2, 3), Result.GOOD),
        (WinRule.WIPE_A_KIND, (W, S, V, V, V), (3, 4), Result.WOLF),  # both conditions hold: 狼刀在先
        (WinRule.WIPE_A_KIND, (W, V, V), (1, 2), None),  # only kinds that were dealt can be wiped out
        (WinRule.WIPE_A_KIND, (W, S, H), (1, 2), None),
    ],
)
def test_who_has_won(rule, roles, living, result):
    assert outcome(rule, roles, frozenset(living)) is result


def nine(script: str, **rules: object) -> GameState:
    """9p: 1 seer, 2 witch, 3 hunter, 4 to 6 villagers, 7 to 9 wolves."""
    return play(new_game(replace(NINE, **rules), 0, deck(seer=1, witch=1, hunter=1, villager=3, wolf=3)), script)


GODS_BUT_ONE = "night_actions: 7,8,9=1; witch_action:; exile_vote: 4,5=2; night_actions: 7,8,9=3"
WOLVES_BUT_ONE = "exile_vote: 1,2=7; exile_vote: 1,2=8; exile_vote: 1,2=3"
ENDS = {
    "a pending shot is taken first": (GODS_BUT_ONE, "result=- phase=shot asked=3"),
    "and may change nothing": (f"{GODS_BUT_ONE}; shot: 3=7", "result=wolf shots=3>7 newest=game_over"),
    "or win the game": (f"{WOLVES_BUT_ONE}; shot: 3=9", "result=good dead=3,7,8,9"),
    "last words come before a shot that decides": (f"{WOLVES_BUT_ONE}", "phase=last_words asked=3"),
    "an exile that decides leaves no last words": (
        "exile_vote: 1,2=7; exile_vote: 1,2=8; exile_vote: 1,2=9",
        "result=good words=7,8 newest=game_over",
    ),
}


@scenarios(ENDS)
def test_an_end(script, facts):
    check(nine(script), facts)


def test_a_shot_may_turn_a_win_into_a_game_that_goes_on():
    script = "night_actions: 7,8,9=1; witch_action:; exile_vote: 2,4=5; night_actions: 7,8,9=3; witch_action:"
    state = nine(script, win_rule=WinRule.PARITY)
    # Three wolves, and three others once the hunter is dead.
    check(state, "result=- dead=1,3,5 asked=3")
    check(play(state, "shot: 3=pass"), "result=wolf")
    check(play(state, "shot: 3=7"), "result=- phase=discussion")


# --- chance -----------------------------------------------------------------------------------------------------------


def round_the_table(seats: tuple[int, ...]) -> set[tuple[int, ...]]:
    """From every seat, both ways."""
    turned = [seats[start:] + seats[:start] for start in range(len(seats))]
    return {*turned, *(order[::-1] for order in turned)}


def test_orders_are_drawn_round_the_table_both_ways_and_from_every_seat():
    tiny = [
        play(new_game(TINY, seed, deck(wolf=1, seer=1, villager=3)), "night_actions: 1=pass") for seed in range(200)
    ]
    assert {last(state, EventKind.SPEAKING_ORDER).seats for state in tiny} == round_the_table((1, 2, 3, 4, 5))
    running = [twelve("sign_up: 1,5,9,12=run; campaign:", seed) for seed in range(60)]
    spoke = {tuple(event.seat for event in all_of(state, EventKind.CAMPAIGN_SPEECH)) for state in running}
    assert spoke == round_the_table((1, 5, 9, 12))


def test_ties_of_wolves_and_explosions_at_once_are_drawn():
    victims = []
    for seed in range(40):
        state = play(new_game(SEVEN, seed, deck(wolf=2, seer=1, villager=4)), "wolf_talk:")
        actions = {1: Action(4), 2: Action(None), 3: Action(5)}
        assert apply(state, actions).events == apply(state, actions).events
        victims.append(last(apply(state, actions), EventKind.WOLF_TARGET).target)
    assert set(victims) == {4, None} and 5 < victims.count(4) < 35
    exploded = [last(twelve("exile_vote: 9,10,11=explode", seed), EventKind.EXPLODED).seat for seed in range(60)]
    assert all(exploded.count(seat) > 8 for seat in (9, 10, 11))


def test_the_speech_of_an_exploding_wolf_is_dropped():
    assert "我是狼人" not in {event.text for event in twelve("discussion: 9=explode「我是狼人」").events}
