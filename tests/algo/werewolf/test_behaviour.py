"""What a side did: a game made by hand, counted by hand; and a real game of scripted players against its own record."""

import re
from collections import Counter

import pytest

from algo.rollouts.triplets import read_attempt
from algo.werewolf.behaviour import Behaviour, behaviour_of
from runners.werewolf.agent import WerewolfGames
from store.schema import PolicyResources
from store.token_spans import context_digest, to_span
from store.werewolf import GAME, GameTask, SeatResult
from tests.support.fakes import make_result, make_turn

ROLES = {1: "wolf", 2: "wolf", 3: "seer", 4: "villager", 5: "hunter"}


def side_of(seat):
    return "wolf" if ROLES[seat] == "wolf" else "good"


def make_game(turns, policies=None):
    """A finished game of two wolves. turns: (seat, decision, changes), in their order."""
    policies = {seat: "policy" for seat in ROLES} | (policies or {})
    seats = tuple(
        SeatResult(
            seat=seat, role=role, side=side_of(seat), policy=policies[seat], trainable=True, outcome=0.0, turns=0,
            invalid_turns=0, segments=0, decisions=0, reasked_decisions=0, defaulted_decisions=0,
        )
        for seat, role in ROLES.items()
    )  # fmt: skip
    records = [
        make_turn(
            seat=seat, turn=number, segment=number, role=ROLES[seat], side=side_of(seat), policy=policies[seat],
            decision=decision, context_tokens=0, context_digest=context_digest([]), **changes,
        )
        for number, (seat, decision, changes) in enumerate(turns)
    ]  # fmt: skip
    return as_game(records, make_result("draw").model_copy(update={"seats": seats, "turns": len(records)}))


def as_game(records, result):
    spans = [
        to_span(record, rollout_id="ro-1", attempt_id="at-1", sequence_id=n, start_time=1.7e9, end_time=1.7e9)
        for n, record in enumerate([*records, result], start=1)
    ]
    return read_attempt(GAME, "ro-1", "at-1", spans)


INVALID = dict(valid=False, error="negated", target=None)
TURNS = (
    # Night 1: no agreement in the talk, so the wolves are asked; night 2: they agree, and are not.
    (1, "wolf_talk", dict(target=3)), (2, "wolf_talk", dict(target=4)),
    (1, "wolf_kill", dict(target=3)), (2, "wolf_kill", dict(target=None)),
    (1, "wolf_talk", dict(day=2, target=4)), (2, "wolf_talk", dict(day=2, target=5)),
    (1, "wolf_talk", dict(day=2, target=5)), (2, "wolf_talk", dict(day=2, target=5)),
    # Night 3: one passes, the other's replies cannot be used, whatever it said in the talk.
    (1, "wolf_talk", dict(day=3, target=4)), (2, "wolf_talk", dict(day=3, target=5)),
    (1, "wolf_kill", dict(day=3, **INVALID)), (1, "wolf_kill", dict(day=3, is_reask=True, **INVALID)),
    (2, "wolf_kill", dict(day=3, **INVALID)), (2, "wolf_kill", dict(day=3, is_reask=True, target=1)),
    (3, "seer_check", dict(target=1)), (3, "seer_check", dict(target=4)), (3, "seer_check", dict(target=None)),
    (3, "seer_check", dict(INVALID)),
    (1, "exile_vote", dict(target=2)), (2, "exile_vote", dict(target=4)), (1, "pk_vote", dict(target=None)),
    (2, "exile_vote", dict(INVALID)), (2, "exile_vote", dict(is_reask=True, target=3)),
    (3, "exile_vote", dict(target=1)), (4, "pk_vote", dict(target=1)), (5, "sheriff_vote", dict(target=1)),
    (1, "speech", dict(claimed_role="seer")), (1, "last_words", dict(claimed_role="seer")), (2, "pk_speech", {}),
    (2, "closing_speech", dict(target=4)), (2, "speech", dict(INVALID)),
    (3, "campaign_speech", dict(claimed_role="seer")), (4, "speech", dict(claimed_role="hunter")),
    (5, "sheriff_pk_speech", {}),
)  # fmt: skip
WOLVES = Behaviour(
    games=1,
    kills={"hunter": 2, "nobody": 1, "seer": 1, "wolf": 1},
    votes={"good": 2, "nobody": 1, "wolf": 1},
    claims={"wolf": {"none": 2, "seer": 2}},
)
GOOD = Behaviour(
    games=1,
    checks={"good": 1, "nobody": 1, "wolf": 1},
    votes={"wolf": 2},
    claims={"hunter": {"none": 1}, "seer": {"seer": 1}, "villager": {"hunter": 1}},
)


def test_what_each_side_did_is_counted():
    game = make_game(TURNS)
    assert behaviour_of([game], "wolf") == WOLVES
    assert behaviour_of([game], "good") == GOOD
    twice = behaviour_of(iter([game, game]), "wolf")
    assert (twice.games, twice.claims) == (2, {"wolf": {"none": 4, "seer": 4}})
    assert twice.kills == {"hunter": 4, "nobody": 2, "seer": 2, "wolf": 2}
    assert list(twice.kills) == ["hunter", "nobody", "seer", "wolf"]
    assert Behaviour.model_validate_json(twice.model_dump_json()) == twice


def test_only_the_players_own_seats_count():
    others = make_game(TURNS, dict.fromkeys((3, 4, 5), "scripted"))
    assert behaviour_of([others], "wolf") == WOLVES and behaviour_of([others], "good") == Behaviour()
    assert behaviour_of([others], "good", "scripted") == GOOD
    one_wolf = behaviour_of([make_game(TURNS, {2: "scripted"})], "wolf")
    assert one_wolf.kills == {"hunter": 1, "seer": 1} and one_wolf.votes == {"nobody": 1, "wolf": 1}


def test_what_never_happened_is_not_shown():
    assert Behaviour(games=3).counts() == {}
    assert list(WOLVES.counts()) == ["kills", "votes", "claims as wolf"]
    assert GOOD.counts()["claims as seer"] == {"seer": 1}


@pytest.mark.parametrize("preset", ["5p_tiny", "9p"])
async def test_a_real_game_is_counted_as_its_transcript_tells_it(tiny_model, preset):
    task = GameTask(
        game_id="game", group_id="deal", seed=7, sampling_seed=8, preset=preset,
        seating={"wolf": "scripted", "good": "scripted"}, trainable=[], demonstrators=["scripted"],
        limits={"context_tokens": 20_000, "reply_tokens": 400},
    )  # fmt: skip
    games, turns = WerewolfGames(), []
    try:
        resources = PolicyResources(run_name="run", version=0, endpoints=(), model=str(tiny_model))
        result = await games.play(task, resources, lambda turn, *times: turns.append(turn))
    finally:
        await games.close()
    wolves, good = (behaviour_of([as_game(turns, result)], side, "scripted") for side in ("wolf", "good"))

    sides = {seat.seat: seat.side for seat in result.seats}
    roles = {seat.seat: seat.role for seat in result.seats}
    told = result.transcript
    votes = {"wolf": Counter(), "good": Counter()}
    for voter, target in re.findall("([0-9]+)号投([0-9]+)号", told):
        votes[sides[int(voter)]][sides[int(target)]] += 1
    for side, found in (("wolf", wolves), ("good", good)):
        assert {target: count for target, count in found.votes.items() if target != "nobody"} == votes[side]
    checks = re.findall("查验结果：[0-9]+号是(好人|狼人)", told)
    assert good.checks == Counter({"好人": "good", "狼人": "wolf"}[found] for found in checks)
    victims = Counter(roles[int(seat)] for seat in re.findall("狼人今夜袭击([0-9]+)号", told))
    assert wolves.kills == victims if preset == "5p_tiny" else set(victims) <= set(wolves.kills)
    speeches = re.findall("\\n([0-9]+)号(?:PK)?(?:发言|遗言)：(.*)", told)
    claims = Counter(
        roles[int(seat)] for seat, words in speeches if re.search("我(是|是真|跳|起跳|就是|才是)预言家", words)
    )
    found = wolves.claims | good.claims
    assert {role: counts["seer"] for role, counts in found.items() if "seer" in counts} == claims
    assert sum(sum(counts.values()) for counts in found.values()) == len(speeches)
    assert claims["seer"] and checks and victims and votes["wolf"] and votes["good"]
