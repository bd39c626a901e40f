"""Made-up game records and evaluations for unit tests."""

from algo.evaluation.outcomes import Evaluation
from algo.werewolf.matches import GameRecord, SeatRecord
from algo.werewolf.samples import SampleGame, SampleSeat, SampleTurn


def make_game(result="wolf", wolf="policy", good="scripted", deal=1, game_id=None, turns=2, invalid=0, leaks=0, days=2):
    """A game in which every seat of a model makes ``turns`` calls; ``invalid`` and ``leaks`` are of the first one."""
    deck = ("wolf", "seer", "villager", "villager")
    players = {"wolf": wolf, "good": good}
    seats = []
    for role in deck:
        side = "wolf" if role == "wolf" else "good"
        asked = players[side] not in ("scripted", "random")
        first = asked and not any(seat.side == side for seat in seats)
        seats.append(
            SeatRecord(
                role=role,
                side=side,
                turns=turns * asked,
                invalid_turns=invalid * first,
                defaulted_decisions=0,
                leaks=leaks * first,
            )
        )
    return GameRecord(
        game_id=game_id or f"{wolf}-{good}-{deal}",
        deal=deal,
        players=players,
        result=result,
        days=days,
        seats=tuple(seats),
    )


def make_sample(game_id="g", transcript="平安夜", wolf="policy", good="scripted", deal=1):
    """A sample game of two seats: the wolf's model said one thing, the other seat has no model."""
    said = SampleTurn(day=1, decision="speech", thought="想", reply="我是好人。", error=None, target=None)
    return SampleGame(
        game_id=game_id,
        deal=deal,
        players={"wolf": wolf, "good": good},
        result="wolf",
        days=2,
        transcript=transcript,
        seats=(
            SampleSeat(seat=1, role="wolf", side="wolf", policy=wolf, reward=0.5, turns=(said,)),
            SampleSeat(seat=2, role="seer", side="good", policy=good, reward=None, turns=()),
        ),
    )


def make_evaluation(label="step 5", version=5, opponents=("scripted",), **changes):
    """Of each opponent two deals: the policy wins both games of the first and none of the second."""
    games = [
        make_game(result, wolf, good, deal)
        for name in opponents
        for deal, winner in ((1, "policy"), (3, name))
        for wolf, good in (("policy", name), (name, "policy"))
        for result in ["wolf" if wolf == winner else "good"]
    ]
    fields = dict(
        label=label,
        player=f"policy@{version}",
        policy_version=version,
        preset="5p_tiny",
        seed=1,
        temperature=1.0,
        opponents={name: 4 for name in opponents},
        games=games,
    )
    return Evaluation(**{**fields, **changes})
