"""Made-up games for unit tests: 5p_tiny, seat 1 the wolf, seat 2 the seer."""

from algo.evaluation.games import GameRow, SeatRow
from algo.evaluation.record import Evaluation, Header

ROLES = {1: "wolf", 2: "seer", 3: "villager", 4: "villager", 5: "villager"}


def made_row(wolf="policy", good="scripted", result="good", deal=1, errors=0, single=None, number=0, **noted):
    """single: (seat, its player) among others. errors: invalid replies of seat 1."""
    players = {seat: wolf if role == "wolf" else good for seat, role in ROLES.items()} | dict(
        [single] if single else []
    )
    sides = {seat: "wolf" if role == "wolf" else "good" for seat, role in ROLES.items()}
    seats = tuple(
        SeatRow(
            seat=seat, role=role, side=sides[seat], player=players[seat], won=sides[seat] == result,
            turns=4 * (players[seat] == "policy"), invalid=errors * (seat == 1), errors=errors * (seat == 1),
            defaulted=0, leaks=0,
        )
        for seat, role in ROLES.items()
    )  # fmt: skip
    return GameRow(
        number=number, task_id=f"{wolf}-{good}-{deal}-{single}-{number}", cluster=deal, result=result, days=2,
        single=single[0] if single else None, seats=seats, **noted,
    )  # fmt: skip


def made_evaluation(rows, label="step 0", panel="run", opponents=("scripted",), step=0, **header):
    """The rows get their numbers in order."""
    planned = header.pop("planned", {name: 0 for name in opponents})
    header = Header(
        label=label, player=f"policy@{label}", step=step, policy_version=step, panel=panel, planned=planned, seed=1,
        conditions={"opponents": list(opponents), "temperature": 1.0}, digest="d", **header,
    )  # fmt: skip
    numbered = [row.model_copy(update={"number": number}) for number, row in enumerate(rows)]
    return Evaluation(header=header, rows=tuple(numbered), ended=True)
