"""Made-up games for unit tests: 5p_tiny, seat 1 the wolf, seat 2 the seer."""

from algo.evaluation.games import GameRow, SeatRow
from algo.evaluation.record import Evaluation, Header

ROLES = {1: "wolf", 2: "seer", 3: "villager", 4: "villager", 5: "villager"}


def made_row(wolf="policy", good="scripted", result="good", deal=1, single=None, number=0, **noted):
    """single: (seat, its player) among others."""
    seats = []
    for seat, role in ROLES.items():
        side, player = ("wolf", wolf) if role == "wolf" else ("good", good)
        if single and seat == single[0]:
            player = single[1]
        seats.append(SeatRow(
            seat=seat, role=role, side=side, player=player, won=side == result, turns=4 * (player == "policy"),
            invalid=0, errors=0, defaulted=0, leaks=0,
        ))  # fmt: skip
    return GameRow(
        number=number, task_id=f"{wolf}-{good}-{deal}-{single}-{number}", cluster=deal, result=result, days=2,
        single=single[0] if single else None, seats=seats, **noted,
    )  # fmt: skip


def made_evaluation(rows, label="step 0", panel="run", opponents=("scripted",), step=0, **header):
    """The rows get their numbers in order."""
    header = {"planned": {name: 0 for name in opponents}, "digest": "d"} | header
    header = Header(
        label=label, player=f"policy@{label}", step=step, policy_version=step, panel=panel, seed=1,
        conditions={"opponents": list(opponents), "temperature": 1.0}, **header,
    )  # fmt: skip
    numbered = [row.model_copy(update={"number": number}) for number, row in enumerate(rows)]
    return Evaluation(header=header, rows=tuple(numbered), ended=True)
