"""The rules of a round that people ask about, each told in a script and in the facts that follow from it.

The table of twelve is dealt 1 seer, 2 witch, 3 hunter, 4 guard, 5 to 8 villagers, 9 to 11 wolves, 12 wolf king. Who is
asked what, and what becomes of every answer, is held to the rules at every step of random games (``game_invariants``);
more rules are told by the golden games ``rule_*.txt``.
"""

from dataclasses import replace

import pytest

from runners.werewolf.game import (
    Action,
    EventKind,
    Phase,
    Result,
    WinRule,
    apply,
    new_game,
    pending,
)
from runners.werewolf.game.aftermath import outcome
from tests.support.game.game_playing import SEVEN, TINY, TWELVE, deck
from tests.support.game.game_scripts import all_of, check, last, play, twelve, until


def scenarios(told: dict[str, tuple[str, str]]):
    return pytest.mark.parametrize(("script", "facts"), told.values(), ids=told.keys())


HIT_5 = "night_actions: 9,10,11,12=5"
NIGHTS = {
    "a round of one mind ends the talk": ("wolf_talk: 9,10=5 11,12=6/5", "talk=8 asked=1,4 hit=5"),
    "a victim that is guarded and saved dies": (
        "night_actions: 4=5 9,10,11,12=5; witch_action: 2=save",
        "deaths=5",
    ),
    "the witch has one antidote, and learns no more once it is used": (
        f"{HIT_5}; witch_action: 2=save; exile_vote:; night_actions: 9,10,11,12=6",
        "day=2 told=5 options=- subject=- unsaved=used",
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
    "who is poisoned may not shoot": (
        "night_actions:; witch_action: 2=3; last_words:",
        "guns=3:no,12:yes dead=3 shots=-",
    ),
}


@scenarios(NIGHTS)
def test_a_night(script, facts):
    check(twelve(script, sheriff=False), facts)


def test_a_wolf_sees_proposals_of_its_mates_and_the_remaining_rounds():
    state, speakers, told = until(twelve(""), Phase.WOLF_TALK), [], []
    for victim in (5, 6, None, 5, 6):
        (request,) = pending(state)
        speakers.append(request.seat)
        told.append((request.rounds_left, request.proposed))
        state = apply(state, {request.seat: Action(victim)})
    one, two, _, four, again = speakers
    assert again == one and told[:3] == [(1, ()), (1, ((one, 5),)), (1, ((one, 5), (two, 6)))]
    assert told[4] == (0, ((two, 6), (four, 5)))


SHERIFF_6 = "sign_up: 6=run; campaign:"
PUT_OFF = "sign_up: 1,5,9=run; campaign: 9=explode; night_actions:; witch_action:"
DAYS = {
    "who never signed up votes for who still runs": (
        "sign_up: 1,5,6,9=run; campaign: 6=withdraw; withdrawal:",
        "asked=2,3,4,7,8,10,11,12 targets=1,5,9 pass=True",
    ),
    "last night's dead vote": (
        f"{HIT_5}; witch_action: 2=6; sign_up: 1,7=run; withdrawal:",
        "asked=2,3,4,5,6,8,9,10,11,12 dead=-",
    ),
    "a sheriff that dies passes its badge": (f"{SHERIFF_6}; exile_vote: 1,2=6; badge: 6=8", "sheriff=8 dead=6"),
    "or tears it": (f"{SHERIFF_6}; exile_vote: 1,2=6; badge: 6=pass", "sheriff=- dead=6"),
    "its vote weighs more": (f"{SHERIFF_6}; exile_vote: 6=9 1=8", "count=9:1.5,8:1 exiled=9"),
    "an explosion ends the day": (
        "night_actions: 9,10,11,12=8; exile_vote: 1,2,3=4 9=explode",
        "day=2 dead=8,9 exploded=9 words=8 exiled=- votes=-",
    ),
    "and puts the election off": (PUT_OFF, "day=2 phase=sheriff_vote asked=2,3,4,6,7,8,10,11,12 targets=1,5"),
}


@scenarios(DAYS)
def test_a_day(script, facts):
    check(twelve(script), facts)


SHOWN = replace(TWELVE, deck=deck(seer=1, witch=1, hunter=1, idiot=1, villager=4, wolf=3, white_wolf_king=1))
DUELS = replace(TWELVE, deck=deck(seer=1, witch=1, hunter=1, knight=1, villager=4, wolf=3, wolf_king=1))
CARDS = {
    "an idiot that is exiled stays, and has no last words": (
        SHOWN,
        "exile_vote: 1,2=4",
        "revealed=4 exiled=- dead=- words=- day=2",
    ),
    "a white wolf king takes one with its explosion, who may shoot": (
        SHOWN,
        "discussion: 12=explode; shot: 12=3 3=9",
        "shots=12>3,3>9 dead=3,9,12 day=2",
    ),
    "the game is over once it has chosen": (
        SHOWN,
        "; ".join(f"exile_vote: {seat}=explode" for seat in (9, 10, 11, 12)),
        "phase=shot asks=take pass=True result=-",
    ),
    "the knight dies of a duel with a good seat, and all vote": (
        DUELS,
        "duel: 4=5",
        "dead=4 words=- phase=exile_vote asked=1,2,3,5,6,7,8,9,10,11,12 day=1",
    ),
    "a wolf king that dies of it does not shoot": (DUELS, "duel: 4=12", "dead=12 shots=- day=2"),
    "it may wait": (DUELS, "duel: 4=pass; exile_vote:; discussion:", "phase=duel asked=4 asks=duel"),
}


@pytest.mark.parametrize(("preset", "script", "facts"), CARDS.values(), ids=CARDS.keys())
def test_a_card_that_is_shown_by_day(preset, script, facts):
    check(play(new_game(replace(preset, sheriff=False), 0, preset.deck), script), facts)


def test_where_nobody_lives_the_wolves_have_no_parity():
    assert outcome(WinRule.PARITY, deck(wolf=1, villager=1), frozenset()) is Result.GOOD


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
