"""Locks that the players without a model play legally, sensibly, from their own view, and in balance.

Most tests put crafted questions to many scripted players, each with its own chance, and look at what they answer;
the others look at whole games.
"""

import random
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
from game_playing import TEST_PRESETS, TINY, TWELVE, brain_steps, play_brains
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.werewolf.brains import RandomBrain, ScriptedBrain, TimidBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    Decision,
    Event,
    EventKind,
    GameState,
    Observation,
    Option,
    Phase,
    Request,
    Result,
    Role,
    Side,
    choices,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.local import play_locally
from runners.werewolf.prompts_zh import talk
from runners.werewolf.prompts_zh.talk import understand, understand_wolf
from runners.werewolf.replies import parse_reply, render_reply

BRAINS = (RandomBrain, TimidBrain, ScriptedBrain)
PUBLIC_SPEECHES = (
    EventKind.CAMPAIGN_SPEECH,
    EventKind.SHERIFF_PK_SPEECH,
    EventKind.SPEECH,
    EventKind.CLOSING_SPEECH,
    EventKind.PK_SPEECH,
    EventKind.LAST_WORDS,
)
SPEAKING = {
    Decision.WOLF_TALK,
    Decision.CAMPAIGN_SPEECH,
    Decision.SHERIFF_PK_SPEECH,
    Decision.SPEECH,
    Decision.CLOSING_SPEECH,
    Decision.PK_SPEECH,
    Decision.LAST_WORDS,
}
WITHOUT_TARGETS = SPEAKING - {Decision.WOLF_TALK, Decision.CLOSING_SPEECH} | {Decision.SIGN_UP, Decision.SPEAKING_ORDER}
NINE_SEATS = tuple(range(1, 10))


def seen(
    seat: int,
    role: Role,
    decision: Decision,
    *events: Event,
    living=NINE_SEATS,
    targets=None,
    options=(),
    day=1,
    sheriff=None,
    may_pass=True,
    subject=None,
    deck=TWELVE.deck,
) -> Observation:
    """What a seat sees that is asked ``decision`` and has just learned of ``events``."""
    if targets is None:
        targets = () if decision in WITHOUT_TARGETS else tuple(other for other in living if other != seat)
    request = Request(
        seat=seat,
        decision=decision,
        day=day,
        phase=Phase.DISCUSSION,
        targets=targets,
        options=options,
        may_pass=may_pass,
        speech_chars=200 if decision in SPEAKING else 0,
        default=Action(None if may_pass else (*targets, *options)[0]),
        subject=subject,
    )
    return Observation(seat, role, role.side, day, Phase.DISCUSSION, living, sheriff, events, request, deck)


def speech(seat: int, text: str, day: int = 1) -> Event:
    return Event(EventKind.SPEECH, day, seat=seat, text=text)


def claim(seat: int, *reports: tuple[int, int, Side]) -> Event:
    """A seat calls itself the seer; reports: (night, seat, side)."""
    return speech(seat, "".join(talk.seer_report(reports)))


def accuses(seat: int, accused: int) -> Event:
    return speech(seat, talk.ACCUSATIONS[0].format(seat=accused))


def team(*seats: int) -> Event:
    return Event(EventKind.WOLF_TEAM, 1, frozenset(seats), data={"seats": ",".join(map(str, seats)), "kings": ""})


def finding(seer: int, target: int, side: Side, night: int = 1) -> Event:
    return Event(EventKind.SEER_RESULT, night, frozenset({seer}), seat=seer, target=target, data={"side": side.value})


def died_by_night(*seats: int, day: int = 1) -> Event:
    return Event(EventKind.DEATHS_ANNOUNCED, day, data={"seats": ",".join(map(str, seats))})


def exploded(seat: int) -> Event:
    return Event(EventKind.EXPLODED, 1, seat=seat)


def wolf_says(seat: int, text: str, target: int | None = None) -> Event:
    return Event(EventKind.WOLF_SAYS, 1, frozenset({1, 2, 3}), seat=seat, target=target, text=text)


def memory(brain: ScriptedBrain) -> str:
    """All that a player knows, but for its chance."""
    return repr({name: value for name, value in vars(brain).items() if name != "_rng"})


def each_brain(count: int = 30) -> list[ScriptedBrain]:
    return [ScriptedBrain(random.Random(seed)) for seed in range(count)]


def answers(observation: Observation, count: int = 30) -> set:
    """What ``count`` players choose who see this, and nothing before it."""
    return {brain.act(observation).choice for brain in each_brain(count)}


@lru_cache
def scripted_games(name: str, count: int = 400) -> tuple[GameState, ...]:
    return tuple(play_brains(PRESETS[name], seed, ScriptedBrain) for seed in range(count))


# --- whole games ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brain", BRAINS)
@given(st.sampled_from(TEST_PRESETS), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_brains_play_whole_games_legally_and_by_seed(brain, preset, seed):
    state = play_brains(preset, seed, brain)
    assert winner(state) is not None
    assert play_brains(preset, seed, brain) == state


@pytest.mark.parametrize("brain", BRAINS)
@given(st.sampled_from(TEST_PRESETS), st.integers(1, 60), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_no_speech_is_longer_than_is_heard(brain, preset, speech_chars, seed):
    for state, actions, _ in brain_steps(replace(preset, speech_chars=speech_chars), seed, brain):
        for request in pending(state):
            assert len(actions[request.seat].text) <= request.speech_chars


@pytest.mark.parametrize("brain", BRAINS)
@pytest.mark.parametrize("preset", TEST_PRESETS, ids=lambda preset: preset.name)
def test_what_brains_decide_can_be_said_and_read_back(brain, preset):
    for seed in range(4):
        for state, actions, _ in brain_steps(preset, seed, brain):
            for request in pending(state):
                action = actions[request.seat]
                assert parse_reply(render_reply(action, request), request) == action


@pytest.mark.parametrize("name", PRESETS)
def test_neither_side_wins_nearly_always_under_scripted_play(name):
    results = Counter(winner(state) for state in scripted_games(name))
    for result in (Result.WOLF, Result.GOOD):
        assert 0.25 < results[result] / results.total() < 0.75, results


def test_neither_side_wins_nearly_always_under_random_play_of_the_small_game():
    results = Counter(winner(play_brains(TINY, seed, RandomBrain)) for seed in range(500))
    for result in (Result.WOLF, Result.GOOD):
        assert 0.25 < results[result] / 500 < 0.75, results


def test_scripted_games_show_what_the_rules_offer():
    happened = {event.kind for state in scripted_games("12p_sheriff") for event in state.events}
    assert set(EventKind) - happened == set()
    lost = {
        event.data["reason"]
        for state in scripted_games("12p_sheriff")
        for event in state.events
        if event.kind is EventKind.BADGE_LOST
    }
    assert {"swallowed", "tied_twice"} <= lost


@pytest.mark.parametrize("name", PRESETS)
def test_nobody_claims_to_be_what_it_is_not_but_wolves_that_pose_as_the_seer(name):
    for state in scripted_games(name):
        for event in state.events:
            if event.kind in PUBLIC_SPEECHES:
                claimed, role = understand(event.text).claimed, state.role_of(event.seat)
                lies = {Role.VILLAGER, Role.SEER} if role.side is Side.WOLF else set()
                assert claimed in {None, role} | lies, event


@pytest.mark.parametrize("name", ["12p_sheriff", "9p", "7p"])
def test_wolves_agree_in_the_first_round_of_their_talk_and_never_on_a_wolf(name):
    for state in scripted_games(name):
        talks = Counter((event.day, event.seat) for event in state.events if event.kind is EventKind.WOLF_SAYS)
        assert set(talks.values()) == {1}
        for event in state.events:
            if event.kind is EventKind.WOLF_TARGET:
                assert state.role_of(event.target).side is Side.GOOD


@pytest.mark.parametrize("name", ["12p_sheriff", "9p"])
def test_wolves_vote_for_each_other_only_after_a_seer_named_one(name):
    betrayals = 0
    for state in scripted_games(name):
        named: set[int] = set()
        for event in state.events:
            if event.kind in PUBLIC_SPEECHES and state.role_of(event.seat) is Role.SEER:
                named |= {seat for seat, side in understand(event.text).reports if side is Side.WOLF}
            among_wolves = (
                event.kind is EventKind.VOTE
                and event.target is not None
                and {state.role_of(seat).side for seat in (event.seat, event.target)} == {Side.WOLF}
            )
            assert not among_wolves or event.target in named
            betrayals += among_wolves
    assert betrayals


def test_wolves_send_at_most_one_to_pose_as_the_seer_while_none_is_named():
    posers = Counter()
    for state in scripted_games("12p_sheriff"):
        posing: set[int] = set()
        for event in state.events:
            if event.kind is EventKind.CAMPAIGN_SPEECH and understand(event.text).claimed is Role.SEER:
                posing |= {event.seat} if state.role_of(event.seat).side is Side.WOLF else set()
        posers[len(posing)] += 1
    # Two: one was sent, or posed, and the seer then named another in its campaign speech.
    assert posers[0] > 100 and posers[1] > 100 and posers[2] < 10 and set(posers) <= {0, 1, 2}


# --- any brain ------------------------------------------------------------------------------------------------------


def test_a_brain_without_a_question_says_so():
    state = new_game(TINY, 0)
    sleeper = next(seat for seat in TINY.seats if state.role_of(seat) is Role.VILLAGER)
    for brain in BRAINS:
        with pytest.raises(ValueError, match=f"seat {sleeper} is not asked"):
            brain(random.Random(0)).act(observe(state, sleeper))


def test_the_random_brain_may_choose_anything_legal_but_seldom_what_rides_along():
    vote = seen(1, Role.WOLF, Decision.EXILE_VOTE, living=(1, 2, 3, 4), options=(Option.EXPLODE,))
    chosen = Counter(RandomBrain(random.Random(seed)).act(vote).choice for seed in range(2000))
    assert set(chosen) == set(choices(vote.request))
    assert 0.02 < chosen[Option.EXPLODE] / 2000 < 0.08
    assert all(0.19 < chosen[choice] / 2000 < 0.29 for choice in (2, 3, 4, None))
    potion = seen(1, Role.WITCH, Decision.WITCH, targets=(2,), options=(Option.SAVE,), subject=2)
    saved = sum(RandomBrain(random.Random(seed)).act(potion).choice is Option.SAVE for seed in range(600))
    assert 150 < saved < 250


def test_the_random_brain_proposes_in_words_what_it_chooses():
    observation = seen(1, Role.WOLF, Decision.WOLF_TALK, team(1, 2))
    for seed in range(50):
        action = RandomBrain(random.Random(seed)).act(observation)
        assert understand_wolf(action.text)[0] == action.choice


def test_the_timid_player_plays_like_a_scripted_one_but_abstains_from_most_votes():
    def answers(brain, decision, targets=None, may_pass=True):
        told = claim(2, (1, 5, Side.WOLF))
        observation = seen(4, Role.VILLAGER, decision, told, targets=targets, may_pass=may_pass)
        return [brain(random.Random(seed)).act(observation) for seed in range(300)]

    assert answers(TimidBrain, Decision.SPEECH) == answers(ScriptedBrain, Decision.SPEECH)
    votes = Counter(action.choice for action in answers(TimidBrain, Decision.EXILE_VOTE, (2, 5, 7)))
    assert set(votes) == {5, None} and 0.6 < votes[None] / 300 < 0.8
    assert {action.choice for action in answers(TimidBrain, Decision.PK_VOTE, (2, 5, 7), may_pass=False)} == {5}


@pytest.mark.parametrize("preset", [TWELVE, TINY], ids=lambda preset: preset.name)
def test_the_same_observation_twice_teaches_nothing_new(preset):
    for seed in range(3):
        brains = {seat: ScriptedBrain(random.Random(f"{seed}/{seat}")) for seat in preset.seats}
        for state, _, _ in brain_steps(preset, seed, ScriptedBrain):
            for request in pending(state):
                observation = observe(state, request.seat)
                brains[request.seat].act(observation)
                before = memory(brains[request.seat])
                brains[request.seat].act(observation)
                assert memory(brains[request.seat]) == before


# --- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seat", [1, 11])
def test_every_sentence_is_understood_and_says_nothing_else(seat):
    nothing = understand("")
    expected = {
        talk.ACCUSATIONS: replace(nothing, accused=frozenset({seat})),
        talk.ACCUSATIONS_OF_NAMED: replace(nothing, accused=frozenset({seat})),
        talk.ACCUSATIONS_OF_CLAIMANTS: replace(nothing, accused=frozenset({seat})),
        talk.RALLIES: replace(nothing, accused=frozenset({seat})),
        talk.FOLLOWINGS: replace(nothing, followed=seat),
        (talk.report_saving(seat),): replace(nothing, saved=frozenset({seat})),
        (talk.report_poisoning(seat),): replace(nothing, poisoned=frozenset({seat})),
        (talk.name_next_checks([seat, 2]),): nothing,
        (talk.CLAIM_GOOD,): nothing,
        **{(talk.claim_role(role),): replace(nothing, claimed=role) for role in Role if role.side is Side.GOOD},
        **{
            lines: nothing
            for lines in (
                talk.SMALL_TALK,
                talk.CALLS_FOR_SEER,
                talk.CAMPAIGN_LINES,
                talk.WITHDRAWALS,
                talk.DEFENCES,
                talk.FAREWELLS,
            )
        },
    }
    for templates, heard in expected.items():
        for template in templates:
            assert understand(template.format(seat=seat)) == heard
    for template in (*talk.PROPOSALS, *talk.AGREEMENTS):
        assert understand_wolf(template.format(seat=seat)) == (seat, None)
    assert understand_wolf(talk.PROPOSALS[0].format(seat=3) + talk.plan_posing(seat)) == (3, seat)


def test_a_seers_report_is_understood_with_the_wolves_first_and_then_the_newest():
    reports = [(1, 11, Side.GOOD), (2, 3, Side.WOLF), (3, 1, Side.GOOD)]
    heard = understand("".join(talk.seer_report(reports)))
    assert heard.claimed is Role.SEER
    assert heard.reports == ((3, Side.WOLF), (1, Side.GOOD), (11, Side.GOOD))


def test_a_denied_role_is_no_claim():
    assert understand("我不是预言家，我是村民。").claimed is Role.VILLAGER


def test_sentences_that_do_not_fit_are_left_out_whole():
    assert talk.fit_together(["我是好人。", "大家好好分析，不要乱投。", "先听。"], 8) == "我是好人。先听。"


def test_speeches_vary():
    for role in (Role.VILLAGER, Role.WOLF):
        said = {brain.act(seen(1, role, Decision.SPEECH, team(1, 2))).text for brain in each_brain(40)}
        assert len(said) > 20


# --- the seer -------------------------------------------------------------------------------------------------------


def test_the_seer_runs_and_claims_and_does_not_withdraw_before_a_rival():
    rival = claim(5, (1, 2, Side.WOLF))
    for brain in each_brain():
        assert brain.act(seen(2, Role.SEER, Decision.SIGN_UP, options=(Option.RUN,))).choice is Option.RUN
        said = brain.act(
            seen(2, Role.SEER, Decision.CAMPAIGN_SPEECH, finding(2, 4, Side.GOOD), rival, options=(Option.WITHDRAW,))
        )
        assert said.choice is None
        assert understand(said.text).claimed is Role.SEER
        assert understand(said.text).reports == ((4, Side.GOOD),)
        assert "警徽流" in said.text


@pytest.mark.parametrize("decision", sorted(SPEAKING - {Decision.WOLF_TALK}))
def test_the_seer_reports_all_it_found_in_every_public_speech(decision):
    findings = [finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD, 2), finding(2, 6, Side.GOOD, 3)]
    for brain in each_brain():
        said = brain.act(seen(2, Role.SEER, decision, *findings, day=3))
        assert understand(said.text).claimed is Role.SEER
        assert dict(understand(said.text).reports) == {4: Side.WOLF, 5: Side.GOOD, 6: Side.GOOD}
        assert "第2夜查验5号，是好人" in said.text


def test_the_seer_checks_whom_it_does_not_know_and_the_suspicious_first():
    found = [finding(2, 4, Side.GOOD), finding(2, 5, Side.GOOD)]
    check = seen(2, Role.SEER, Decision.SEER_CHECK, *found, claim(6, (1, 2, Side.WOLF)))
    assert answers(check) == {1, 3, 7, 8, 9}
    suspicions = [accuses(seat, 7) for seat in (3, 4, 5, 8)]
    assert answers(replace(check, events=(*check.events, *suspicions))) == {7}
    all_known = replace(check, request=replace(check.request, targets=(4, 5)))
    assert answers(all_known) == {None}


def test_the_seer_votes_for_its_find_and_never_for_whom_it_cleared():
    finds = [finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD)]
    accused = [accuses(seat, 5) for seat in (1, 3, 6, 7, 8)]
    assert answers(seen(2, Role.SEER, Decision.EXILE_VOTE, *finds, *accused)) == {4}
    assert answers(seen(2, Role.SEER, Decision.PK_VOTE, *finds, *accused, targets=(5, 6))) - {None} == {6}
    assert answers(seen(2, Role.SEER, Decision.PK_VOTE, *finds, targets=(5,))) == {None}
    assert answers(seen(2, Role.SEER, Decision.PK_VOTE, *finds, targets=(5,), may_pass=False)) == {5}
    assert answers(seen(2, Role.SEER, Decision.EXILE_VOTE, finds[1], claim(7, (1, 3, Side.GOOD)))) == {7}


def test_a_seer_that_was_sheriff_passes_the_badge_to_whom_it_cleared_or_tears_it():
    finds = [finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD)]
    living = (1, 3, 4, 5, 6)
    assert answers(seen(2, Role.SEER, Decision.BADGE, *finds, living=living)) == {5}
    assert answers(seen(2, Role.SEER, Decision.BADGE, *finds, living=(1, 3, 4, 6))) == {None}


# --- the witch, the guard, the hunter -------------------------------------------------------------------------------


def potions(*events, day, victim, options=(Option.SAVE,), **others):
    told = Event(EventKind.WITCH_TOLD, day, frozenset({1}), seat=1, target=victim)
    return seen(
        1,
        Role.WITCH,
        Decision.WITCH,
        *events,
        told,
        day=day,
        options=options,
        subject=victim if options else None,
        **others,
    )


def test_the_witch_saves_in_the_first_night_and_herself_where_she_may():
    assert answers(potions(day=1, victim=3)) == {Option.SAVE}
    assert answers(potions(day=1, victim=1)) == {Option.SAVE}
    assert answers(potions(day=2, victim=1)) == {Option.SAVE}
    assert answers(potions(day=1, victim=1, options=())) == {None}


def test_later_the_witch_saves_a_seer_and_a_sheriff_only():
    seer = claim(3, (1, 5, Side.GOOD))
    assert answers(potions(seer, day=2, victim=3)) == {Option.SAVE}
    assert answers(potions(seer, day=2, victim=4)) == {None}
    assert answers(potions(day=2, victim=4, sheriff=4)) == {Option.SAVE}


def test_the_witch_poisons_only_whom_she_is_sure_of():
    accused = [accuses(seat, 5) for seat in (2, 3, 4, 6, 7)]
    assert answers(potions(*accused, day=2, victim=None, options=())) == {None}
    assert answers(potions(claim(3, (1, 5, Side.WOLF)), *accused, day=2, victim=None, options=())) == {5}
    rivals = [claim(3, (1, 5, Side.WOLF)), claim(4, (1, 6, Side.WOLF))]
    between_rivals = potions(*rivals, *accused, day=2, victim=None, options=())
    assert [brain.act(between_rivals).choice for brain in each_brain(100)].count(None) > 90
    assert answers(potions(rivals[0], claim(4, (1, 1, Side.WOLF)), day=2, victim=None, options=())) <= {4, 5}
    assert answers(potions(claim(3, (1, 5, Side.WOLF)), day=2, victim=None, options=(), targets=())) == {None}


def test_the_witch_believes_a_seer_that_she_had_to_save():
    saved = Event(EventKind.ANTIDOTE_USED, 1, frozenset({1}), seat=1, target=3)
    rivals = [claim(4, (1, 6, Side.WOLF)), claim(3, (1, 5, Side.GOOD))]
    assert answers(seen(1, Role.WITCH, Decision.EXILE_VOTE, saved, *rivals)) == {4}


def test_the_witch_tells_of_her_potions_in_her_last_words_and_when_accused():
    used = [
        Event(EventKind.ANTIDOTE_USED, 1, frozenset({1}), seat=1, target=3),
        Event(EventKind.POISON_USED, 2, frozenset({1}), seat=1, target=6),
    ]
    accused = [accuses(seat, 1) for seat in (4, 5, 7)]
    for brain in each_brain():
        said = understand(brain.act(seen(1, Role.WITCH, Decision.SPEECH, *used, *accused, day=2)).text)
        assert (said.claimed, said.saved, said.poisoned) == (Role.WITCH, {3}, {6})
    for brain in each_brain():
        said = understand(brain.act(seen(1, Role.WITCH, Decision.LAST_WORDS, *used, day=2)).text)
        assert (said.claimed, said.saved, said.poisoned) == (Role.WITCH, {3}, {6})
    reveals = {
        understand(brain.act(seen(1, Role.WITCH, Decision.SPEECH, *used, day=2)).text).claimed for brain in each_brain()
    }
    assert reveals == {None, Role.WITCH}


def test_who_a_witch_saved_is_spared_unless_two_call_themselves_witch():
    accused = [accuses(seat, 5) for seat in (2, 3, 4, 6, 7)]
    witch = speech(8, talk.claim_role(Role.WITCH) + talk.report_saving(5))
    rival = speech(9, talk.claim_role(Role.WITCH))
    vote = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *accused, targets=(5, 6))
    assert answers(vote) - {None} == {5}
    assert answers(replace(vote, events=(*accused, witch))) - {None} == {6}
    assert answers(replace(vote, events=(*accused, witch, rival))) - {None} == {5}


def test_the_guard_protects_the_seer_else_the_sheriff_else_itself_and_nobody_in_the_first_night():
    seer = claim(3, (1, 5, Side.GOOD))
    everybody = NINE_SEATS
    others = (1, 2, 4, 5, 6, 7, 8, 9)
    guard = lambda *events, **rest: answers(seen(1, Role.GUARD, Decision.GUARD, *events, **rest))  # noqa: E731
    assert guard(seer, targets=everybody, day=1) == {None}
    assert guard(seer, targets=everybody, day=2, sheriff=4) == {3}
    assert guard(seer, targets=others, day=2, sheriff=4) == {4}
    assert guard(seer, targets=others, day=2, sheriff=3) == {1}
    assert guard(targets=everybody, day=2) == {1}
    assert guard(targets=(2, 3), day=2) == {None}
    distrusted = [seer, claim(4, (1, 1, Side.WOLF))]
    assert guard(*distrusted, targets=others, day=2, sheriff=4) == {1}


def test_the_hunter_shoots_whom_it_suspects_and_nobody_on_a_hunch():
    assert answers(seen(1, Role.HUNTER, Decision.SHOT, claim(3, (1, 5, Side.WOLF)))) == {5}
    assert answers(seen(1, Role.HUNTER, Decision.SHOT, accuses(2, 4))) == {None}


@pytest.mark.parametrize("role", [Role.HUNTER, Role.GUARD])
def test_gods_show_their_role_only_when_little_is_left_to_lose(role):
    for brain in each_brain():
        assert understand(brain.act(seen(1, role, Decision.SPEECH)).text).claimed is None
        assert understand(brain.act(seen(1, role, Decision.PK_SPEECH)).text).claimed is role


# --- villagers, and what all good seats share ------------------------------------------------------------------------


def test_good_seats_follow_a_seer_and_spare_whom_it_cleared():
    assert answers(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, claim(2, (1, 4, Side.WOLF)))) == {4}
    cleared = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, claim(2, (1, 4, Side.GOOD)), living=(1, 2, 3, 4, 5))
    assert answers(cleared, 80) - {None} == {3, 5}


def test_a_villager_called_a_wolf_knows_the_claim_for_a_lie():
    assert answers(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, claim(2, (1, 1, Side.WOLF)))) == {2}


def test_a_claimant_killed_by_night_is_believed_over_its_rival():
    events = [
        claim(2, (1, 3, Side.GOOD)),
        claim(4, (1, 3, Side.WOLF)),
        died_by_night(2),
    ]
    assert answers(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *events, living=(1, 3, 4, 5))) == {4}


def test_a_seer_that_a_witch_poisoned_is_not_believed_for_its_death():
    witch = speech(6, talk.claim_role(Role.WITCH) + talk.report_poisoning(2))
    rivals = [claim(2, (1, 3, Side.WOLF)), claim(4, (1, 5, Side.WOLF))]
    vote = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *rivals, died_by_night(2), living=(1, 3, 4, 5, 6))
    assert answers(vote) <= {3, 4}
    assert 5 in answers(replace(vote, events=(*vote.events, witch)))


def test_an_explosion_shows_which_seers_lied_and_which_told_the_truth():
    living = NINE_SEATS[:-1]
    cleared_it = (claim(2, (1, 9, Side.GOOD)), exploded(9))
    assert answers(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *cleared_it, living=living)) == {2}
    named_it = (claim(3, (1, 5, Side.WOLF)), claim(4, (1, 9, Side.WOLF)), exploded(9))
    assert answers(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *named_it, living=living)) == {3}
    was_it = (claim(9, (1, 5, Side.WOLF)), claim(4, (1, 6, Side.GOOD)), exploded(9))
    assert answers(seen(1, Role.GUARD, Decision.GUARD, *was_it, living=living, targets=living, day=2)) == {4}


def test_who_claims_ones_own_role_lies_unless_the_role_may_be_dealt_twice():
    for role, suspect in ((Role.GUARD, 5), (Role.WITCH, 5), (Role.HUNTER, 6)):
        vote = seen(1, role, Decision.PK_VOTE, speech(5, talk.claim_role(role)), targets=(5, 6))
        assert answers(vote) - {None} == {suspect}


def test_who_turned_against_the_seer_or_followed_its_rival_is_suspected():
    seer = (claim(4, (1, 3, Side.GOOD)), claim(2, (1, 3, Side.GOOD)), died_by_night(4, day=2))
    voted = Event(EventKind.VOTE, 1, seat=6, target=4)
    followed = speech(6, talk.FOLLOWINGS[0].format(seat=2))
    for against in (voted, followed):
        vote = seen(1, Role.VILLAGER, Decision.PK_VOTE, *seer, against, targets=(6, 7))
        votes = [brain.act(vote).choice for brain in each_brain(100)]
        assert votes.count(6) > 85


def test_what_a_liar_says_does_not_count():
    liars = [claim(seat, (1, 1, Side.WOLF)) for seat in (2, 3, 4)]
    accused = [accuses(seat, 5) for seat in (2, 3, 4)]
    called = Event(EventKind.CLOSING_SPEECH, 1, seat=2, text="", target=5)
    vote = seen(1, Role.VILLAGER, Decision.PK_VOTE, *liars, *accused, called, targets=(5, 6), sheriff=2)
    votes = [brain.act(vote).choice for brain in each_brain(100)]
    assert votes.count(6) > 30


@pytest.mark.parametrize("role", [Role.HUNTER, Role.WITCH, Role.GUARD])
def test_who_claims_a_role_that_nobody_was_dealt_is_taken_for_a_liar(role):
    said = speech(2, talk.claim_role(role) + talk.report_saving(3))
    vote = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, said, living=(1, 2, 3, 4, 5), deck=TINY.deck)
    assert answers(vote) - {None} == {2}
    assert 2 not in answers(replace(vote, deck=TWELVE.deck))
    # A lie is remembered, whatever the liar calls itself next, and is worth nothing to the one it speaks for.
    for later in (speech(2, talk.claim_role(Role.VILLAGER)), claim(2, (1, 3, Side.WOLF))):
        assert answers(replace(vote, events=(said, later))) - {None} == {2}
        assert answers(replace(vote, events=(later, said))) - {None} == {2}
    spoken_for = replace(vote, events=(said,), request=replace(vote.request, targets=(3, 4)))
    assert answers(spoken_for, 100) >= {3, 4}


def test_wolves_do_not_hunt_a_role_that_nobody_was_dealt():
    said = speech(4, talk.claim_role(Role.HUNTER))
    hunt = seen(1, Role.WOLF, Decision.WOLF_KILL, team(1), said, living=(1, 2, 3, 4, 5), deck=TINY.deck)
    assert answers(hunt) == {2, 3, 4, 5} and answers(replace(hunt, deck=TWELVE.deck)) == {4}
    vouches = replace(hunt, events=(team(1), speech(4, talk.claim_role(Role.WITCH) + talk.report_saving(3))))
    assert answers(vouches) == {2, 3, 4, 5}


class Pretender:
    """A scripted player that claims to be the hunter whenever it speaks in public."""

    def __init__(self, rng: random.Random) -> None:
        self._brain = ScriptedBrain(rng)

    def act(self, observation: Observation) -> Action:
        action = self._brain.act(observation)
        public = observation.request.speaks and observation.request.decision is not Decision.WOLF_TALK
        return replace(action, text=talk.claim_role(Role.HUNTER)) if public else action


def test_a_wolf_gains_nothing_by_claiming_a_role_that_nobody_was_dealt():
    def wolves_win(wolf: type[ScriptedBrain] | type[Pretender]) -> float:
        wins = 0
        for seed in range(400):
            roles = new_game(TINY, seed).roles
            brains = {
                seat: (wolf if role is Role.WOLF else ScriptedBrain)(random.Random(f"{seed}/{seat}"))
                for seat, role in zip(TINY.seats, roles, strict=True)
            }
            wins += play_locally(TINY, seed, brains).state.result is Result.WOLF
        return wins / 400

    honest, pretending = wolves_win(ScriptedBrain), wolves_win(Pretender)
    assert honest > 0.2 and pretending < honest + 0.05


def test_its_own_words_teach_a_player_nothing():
    own = [claim(1, (1, 5, Side.WOLF)), accuses(1, 5), speech(1, talk.claim_role(Role.WITCH) + talk.report_saving(3))]
    deaf, hearing = ScriptedBrain(random.Random(1)), ScriptedBrain(random.Random(1))
    deaf.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE))
    hearing.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *own))
    assert memory(deaf) == memory(hearing)


def test_without_a_seer_good_seats_join_the_loudest_accusation_and_seldom_abstain():
    accused = [accuses(seat, 5) for seat in (2, 3, 4, 6)]
    votes = [brain.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *accused)).choice for brain in each_brain(300)]
    assert votes.count(5) > 240
    assert 0 < votes.count(None) < 30


def test_accusations_count_for_one_day():
    called = Event(EventKind.CLOSING_SPEECH, 1, seat=8, text="", target=5)
    yesterday = [*(accuses(seat, 5) for seat in (2, 3, 4, 6, 7)), called, Event(EventKind.NIGHT_FALLS, 2)]
    vote = seen(1, Role.VILLAGER, Decision.PK_VOTE, *yesterday, targets=(5, 6), day=2, sheriff=8)
    votes = [brain.act(vote).choice for brain in each_brain(100)]
    assert votes.count(6) > 30


def test_votes_follow_where_the_sheriff_leads():
    called = Event(EventKind.CLOSING_SPEECH, 1, seat=8, text="", target=5)
    vote = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, called, living=(1, 4, 5, 6, 7, 8), sheriff=8)
    assert answers(vote) - {None} == {5}
    doubted = replace(vote, events=(called, claim(4, (1, 6, Side.GOOD)), claim(8, (1, 1, Side.WOLF))))
    assert answers(doubted) == {8}


def test_villagers_seldom_run_and_nearly_always_step_down_for_a_seer():
    runs = [
        brain.act(seen(1, Role.VILLAGER, Decision.SIGN_UP, options=(Option.RUN,))).choice for brain in each_brain(300)
    ]
    assert 5 < runs.count(Option.RUN) < 60
    alone = seen(1, Role.VILLAGER, Decision.CAMPAIGN_SPEECH, options=(Option.WITHDRAW,))
    assert answers(alone) == {None}
    beside_a_seer = replace(alone, events=(claim(2, (1, 4, Side.GOOD)),))
    stays = [brain.act(beside_a_seer).choice for brain in each_brain(100)]
    assert stays.count(Option.WITHDRAW) > 75


@pytest.mark.parametrize("decision", [Decision.SHERIFF_VOTE, Decision.SHERIFF_PK_VOTE])
def test_good_seats_elect_the_seer_that_they_believe(decision):
    claims = [claim(2, (1, 4, Side.GOOD)), claim(3, (1, 1, Side.WOLF))]
    assert answers(seen(1, Role.VILLAGER, decision, *claims, targets=(2, 3, 5))) == {2}
    assert answers(seen(1, Role.VILLAGER, decision, *claims, targets=(3, 4, 5))) == {4}


def test_a_sheriff_ends_the_discussion_with_whom_it_suspects_and_says_so():
    for brain in each_brain():
        said = brain.act(seen(1, Role.HUNTER, Decision.CLOSING_SPEECH, claim(3, (1, 5, Side.WOLF)), sheriff=1))
        assert said.choice == 5
        assert 5 in understand(said.text).accused


def test_a_sheriff_picks_either_order():
    orders = (Option.DEAD_LEFT, Option.DEAD_RIGHT)
    for role in (Role.VILLAGER, Role.WOLF):
        assert answers(seen(1, role, Decision.SPEAKING_ORDER, options=orders, may_pass=False, sheriff=1)) == set(orders)


def test_a_dead_sheriff_passes_the_badge_to_the_seer_and_tears_it_where_it_trusts_nobody():
    assert answers(seen(1, Role.VILLAGER, Decision.BADGE, claim(3, (1, 5, Side.WOLF)), living=NINE_SEATS[1:])) == {3}
    assert answers(seen(1, Role.VILLAGER, Decision.BADGE, living=NINE_SEATS[1:])) == {None}


@pytest.mark.parametrize("role", [Role.VILLAGER, Role.WOLF])
def test_seats_on_the_pk_stage_defend_themselves(role):
    for brain in each_brain():
        said = brain.act(seen(1, role, Decision.PK_SPEECH, team(1, 2), accuses(4, 1))).text
        assert any(said.endswith(line) for line in talk.DEFENCES)


# --- wolves ---------------------------------------------------------------------------------------------------------


def test_wolves_hunt_the_seer_then_the_witch_then_the_sheriff():
    hunt = lambda *events, **rest: answers(  # noqa: E731
        seen(1, Role.WOLF, Decision.WOLF_KILL, team(1, 2), *events, targets=NINE_SEATS, **rest)
    )
    seer, witch = claim(4, (1, 2, Side.WOLF)), speech(5, talk.claim_role(Role.WITCH))
    mate = claim(2, (1, 4, Side.WOLF))
    assert hunt(seer, witch, mate, sheriff=6) == {4}
    assert hunt(witch, mate, sheriff=6) == {5}
    assert hunt(mate, sheriff=6) == {6}
    assert hunt(mate, sheriff=2) == {3, 4, 5, 6, 7, 8, 9}


def test_a_wolf_takes_up_the_first_proposal_unless_it_is_a_mate():
    talked = [wolf_says(2, "", 2), wolf_says(3, "建议袭击5号。"), wolf_says(2, "", 6)]
    for decision in (Decision.WOLF_TALK, Decision.WOLF_KILL):
        for brain in each_brain():
            action = brain.act(seen(1, Role.WOLF, decision, team(1, 2, 3), *talked, targets=NINE_SEATS))
            assert action.choice == 5
            assert decision is Decision.WOLF_KILL or understand_wolf(action.text)[0] == 5
    new_night = Event(EventKind.NIGHT_FALLS, 2)
    later = seen(1, Role.WOLF, Decision.WOLF_KILL, team(1, 2, 3), *talked, new_night, targets=NINE_SEATS, day=2)
    assert len(answers(later)) > 3


def test_the_wolf_that_is_sent_poses_and_runs_and_its_mates_do_not_pose():
    plan = wolf_says(3, talk.plan_posing(1))
    others_plan = wolf_says(3, talk.plan_posing(2))
    for brain in each_brain():
        assert (
            brain.act(seen(1, Role.WOLF, Decision.SIGN_UP, team(1, 2, 3), plan, options=(Option.RUN,))).choice
            is Option.RUN
        )
        said = brain.act(seen(1, Role.WOLF, Decision.CAMPAIGN_SPEECH, options=(Option.WITHDRAW,)))
        assert said.choice is None
        assert understand(said.text).claimed is Role.SEER
        assert len(understand(said.text).reports) == 1
        again = brain.act(seen(1, Role.WOLF, Decision.LAST_WORDS, day=2))
        assert set(understand(said.text).reports) < set(understand(again.text).reports)
    for brain in each_brain():
        said = brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1, 2, 3), others_plan))
        assert understand(said.text).claimed is not Role.SEER
    runs = [
        brain.act(seen(1, Role.WOLF, Decision.SIGN_UP, team(1, 2, 3), others_plan, options=(Option.RUN,))).choice
        for brain in each_brain(100)
    ]
    assert runs.count(Option.RUN) < 30


def test_a_posing_wolf_wants_exiled_whom_it_framed_and_not_whom_it_cleared():
    for brain in each_brain():
        plan = wolf_says(2, talk.plan_posing(1))
        heard = understand(brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1, 2, 3), plan)).text)
        vote = brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE)).choice
        ((target, side),) = heard.reports
        assert vote not in (2, 3)
        assert (vote == target) == (side is Side.WOLF)
        assert heard.accused == {vote} or side is Side.GOOD


def test_wolves_back_a_mate_that_poses():
    posing = claim(2, (1, 5, Side.WOLF))
    plan = wolf_says(3, talk.plan_posing(2))
    told = (team(1, 2, 3), plan, claim(4, (1, 6, Side.GOOD)), posing)
    assert answers(seen(1, Role.WOLF, Decision.EXILE_VOTE, *told)) == {5}
    assert answers(seen(1, Role.WOLF, Decision.SHERIFF_VOTE, *told, targets=(2, 3, 4, 7))) == {2}
    for brain in each_brain():
        said = understand(brain.act(seen(1, Role.WOLF, Decision.SPEECH, *told)).text)
        assert (said.followed, said.accused) == (2, {5})


def test_some_wolves_do_not_stand_against_a_seer_that_no_wolf_disputes():
    votes = [
        brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE, team(1, 2), claim(4, (1, 5, Side.WOLF)))).choice
        for brain in each_brain(60)
    ]
    assert 10 < votes.count(4) < 50
    assert 2 not in votes


def test_a_named_wolf_disputes_the_seer_and_most_claim_to_be_the_seer_themselves():
    named = claim(3, (1, 1, Side.WOLF))
    posing = 0
    for brain in each_brain(100):
        said = understand(brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1), named)).text)
        assert said.accused == {3}
        assert said.claimed is not Role.SEER or said.reports == ((3, Side.WOLF),)
        posing += said.claimed is Role.SEER
        assert brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE)).choice == 3
    assert posing > 60


def test_wolves_seldom_turn_on_a_mate_and_only_on_one_that_was_named():
    named = claim(4, (1, 2, Side.WOLF))
    accused = [accuses(seat, 2) for seat in (5, 6, 7)]
    votes = [
        brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE, team(1, 2, 3), named, *accused)).choice
        for brain in each_brain(100)
    ]
    assert 10 < votes.count(2) < 50
    assert votes.count(4) == 100 - votes.count(2)
    assert not {2, 3} & answers(seen(1, Role.WOLF, Decision.EXILE_VOTE, team(1, 2, 3), *accused))


def test_a_wolf_votes_for_a_mate_where_it_must():
    assert answers(seen(1, Role.WOLF, Decision.PK_VOTE, team(1, 2, 3), targets=(2, 3))) == {None}
    assert answers(seen(1, Role.WOLF, Decision.PK_VOTE, team(1, 2, 3), targets=(2, 3), may_pass=False)) == {2, 3}


@pytest.mark.parametrize(
    "decision",
    [Decision.CAMPAIGN_SPEECH, Decision.SPEECH, Decision.CLOSING_SPEECH, Decision.PK_SPEECH, Decision.EXILE_VOTE],
)
def test_a_wolf_explodes_only_when_a_seer_named_it_and_then_not_always(decision):
    options = (Option.WITHDRAW, Option.EXPLODE) if decision is Decision.CAMPAIGN_SPEECH else (Option.EXPLODE,)
    ask = lambda *events: [  # noqa: E731
        brain.act(seen(1, Role.WOLF, decision, team(1, 2), *events, options=options)) for brain in each_brain(100)
    ]
    named = [action.choice for action in ask(claim(4, (1, 1, Side.WOLF)))]
    assert 10 < named.count(Option.EXPLODE) < 60
    assert all(not action.text for action in ask(claim(4, (1, 1, Side.WOLF))) if action.choice is Option.EXPLODE)
    for events in ((), (claim(4, (1, 5, Side.WOLF)),), (claim(2, (1, 1, Side.WOLF)),), (accuses(4, 1), accuses(5, 1))):
        assert Option.EXPLODE not in {action.choice for action in ask(*events)}


def test_a_wolf_that_may_not_explode_never_does():
    named = claim(4, (1, 1, Side.WOLF))
    assert Option.EXPLODE not in answers(seen(1, Role.WOLF_KING, Decision.EXILE_VOTE, team(1, 2), named), 60)


def test_wolves_may_explode_to_keep_the_badge_from_a_seer_in_an_election_that_was_put_off():
    def explosions(day, *events, targets):
        vote = seen(
            1,
            Role.WOLF,
            Decision.SHERIFF_VOTE,
            team(1, 2),
            *events,
            day=day,
            targets=targets,
            options=(Option.EXPLODE,),
        )
        return sum(brain.act(vote).choice is Option.EXPLODE for brain in each_brain(100))

    seer = claim(4, (1, 5, Side.GOOD))
    assert 10 < explosions(2, seer, targets=(4, 6)) < 60
    assert explosions(1, seer, targets=(4, 6)) == 0
    assert explosions(2, seer, targets=(6, 7)) == 0
    assert explosions(2, claim(2, (1, 5, Side.GOOD)), targets=(2, 6)) == 0


def test_the_wolf_king_shoots_the_seer_or_another_good_seat_and_never_a_mate():
    seer, mate = claim(4, (1, 2, Side.WOLF)), claim(2, (1, 4, Side.WOLF))
    assert answers(seen(1, Role.WOLF_KING, Decision.SHOT, team(1, 2, 3), seer, mate)) == {4}
    assert answers(seen(1, Role.WOLF_KING, Decision.SHOT, team(1, 2, 3), mate), 100) == {4, 5, 6, 7, 8, 9}


def test_a_wolf_sheriff_passes_the_badge_to_a_mate_that_nobody_named():
    told = (team(1, 2, 3), claim(4, (1, 2, Side.WOLF)))
    assert answers(seen(1, Role.WOLF, Decision.BADGE, *told, living=NINE_SEATS[1:])) == {3}
    assert answers(seen(1, Role.WOLF, Decision.BADGE, *told, living=(2, 4, 5))) == {2}
    assert answers(seen(1, Role.WOLF, Decision.BADGE, *told, living=(4, 5))) == {None}
