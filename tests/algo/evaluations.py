"""Made-up game records and evaluations for unit tests."""

from algo.evaluation import Evaluation
from algo.matches import GameRecord, SeatRecord


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
