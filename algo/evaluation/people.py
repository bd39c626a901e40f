"""Results of people against a run's policy, from games that they played in a browser and kept in the hub.

A table may seat people with the policy and against it. A game counts once for each side that has people, however many,
against the players of the other side.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from algo.evaluation.figures import Score
from algo.evaluation.games import GameRow
from algo.evaluation.page import Table, cells
from algo.evaluation.record import Record
from algo.evaluation.statistics import Frozen
from algo.machine.atomic_files import write_atomically
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.demonstrations import StoredGames, stored_games
from algo.werewolf.file_names import PEOPLE_FILE
from algo.werewolf.matches import SIDES
from configs.werewolf import WerewolfConfig
from store.client import connect
from store.schema import TRAINED_POLICY
from store.werewolf import EVALUATION, PERSON, SideName

_ALL = 1_000_000


class PeopleAgainst(Frozen):
    """People against one opponent.

    label: such as "step 24" for the policy; further players of the side are added, "step 24+scripted".
    player: the names of the side's players. policy_version: of the policy; None where it is not among them.
    by_side: side of the people -> its score. games: rollout ids in the hub.
    """

    label: str
    player: str
    policy_version: int | None
    by_side: dict[SideName, Score]
    games: tuple[str, ...]


class PeopleScores(Frozen):
    """Contents of ``people.json`` in a run's folder, the newest version last."""

    run: str
    against: tuple[PeopleAgainst, ...]

    @property
    def table(self) -> Table:
        rows = [
            cells(one.label, *(cell for score in one.by_side.values() for cell in (score.win_rate, score.games)))
            for one in self.against
        ]
        head = ("people against", "as wolves", "games", "as good", "games")
        return Table(f"Games that people won, {self.run}, with 95 % intervals", head, rows)


def people_scores(run_id: str, games: Iterable[FinishedRollout], labels: dict[int, str]) -> PeopleScores:
    """Count the games. labels: policy version -> label."""
    found: defaultdict[tuple[int | None, tuple[str, ...]], dict[SideName, list[FinishedRollout]]]
    found = defaultdict(lambda: {side: [] for side in SIDES})
    for game in games:
        seats = game.outcome.seats
        for side in SIDES:
            if any(seat.policy == PERSON and seat.side == side for seat in seats):
                opponents = {seat.policy for seat in seats if seat.side != side}
                players = tuple(sorted(opponents - {PERSON} or opponents))
                version = game.outcome.policy_version if TRAINED_POLICY in players else None
                found[version, players][side].append(game)

    def label(version: int | None, players: Iterable[str]) -> str:
        of_policy = labels.get(version, f"version {version}") if version is not None else ""
        return "+".join(of_policy if player == TRAINED_POLICY else player for player in players)

    against = tuple(
        PeopleAgainst(
            label=label(version, players),
            player="+".join(players),
            policy_version=version,
            by_side={
                side: Score.of((game.outcome.result, side, game.outcome.seed) for game in of_side)
                for side, of_side in by_side.items()
            },
            games=tuple(sorted({game.rollout_id for of_side in by_side.values() for game in of_side})),
        )
        for (version, players), by_side in sorted(found.items(), key=lambda one: (one[0][0] or 0, one[0][1]))
    )
    return PeopleScores(run=run_id, against=against)


async def count_people(config: WerewolfConfig, run_id: str, run_dir: Path) -> tuple[PeopleScores, Path]:
    """Read the games from the hub and write their scores into the run's folder; returns the scores and the file.

    Raises StoreUnreachable, and NoUsableGames where the hub holds none.
    """
    client = connect(config.store.url, config.store.retry_seconds)
    try:
        await client.wait_until_reachable()
        found = await stored_games(client, StoredGames(run_id, EVALUATION), _ALL)
    finally:
        await client.close()
    headers = [evaluation.header for evaluation in Record(run_dir, GameRow).read()]
    scores = people_scores(run_id, found.finished, {header.policy_version: header.label for header in headers})
    path = run_dir / PEOPLE_FILE
    write_atomically(path, scores.model_dump_json(indent=1) + "\n")
    return scores, path
