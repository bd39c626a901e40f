"""The rules of a round that people ask about, each told in a script and in the facts that follow from it.

The table of twelve is dealt 1 seer, 2 witch, 3 hunter, 4 guard, 5 to 8 villagers, 9 to 11 wolves, 12 wolf king. Who is
asked what, and what becomes of every answer, is held to the rules at every step of random games (``game_invariants``);
more rules are told by the golden games ``rule_*.txt``.
"""

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
from tests.support.game.game_playing import SEVEN, TINY, deck
from tests.support.game.game_scripts import all_of, last, play, twelve, until


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
