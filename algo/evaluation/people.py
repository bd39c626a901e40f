"""Results of people against a run's policy, from games that they played in a browser and kept in the hub.

A table may seat people with the policy and against it. A game counts once for each side that has people, however many.
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

    label: such as "step 24", or the name of a player that is not the policy.
    policy_version: of the policy that played, or of the run that kept the game.
    by_side: side of the people -> its score. games: rollout ids in the hub.
    """

    label: str
    player: str
    policy_version: int
    by_side: dict[SideName, Score]
    games: tuple[str, ...]


class PeopleScores(Frozen):
    """Contents of ``people.json`` in a run's folder, the newest version last."""

    run: str
    against: tuple[PeopleAgainst, ...]

    @property
    def table(self) -> Table:
        """For a terminal."""
        rows = [
            cells(one.label, *(cell for score in one.by_side.values() for cell in (score.win_rate, score.games)))
            for one in self.against
        ]
        head = ("people against", "as wolves", "games", "as good", "games")
        return Table(f"Games that people won, {self.run}, with 95 % intervals", head, rows)


def people_scores(run_id: str, games: Iterable[FinishedRollout], labels: dict[int, str]) -> PeopleScores:
    """Count the games. labels: policy version -> label."""
    found: defaultdict[tuple[int, str], list[FinishedRollout]] = defaultdict(list)
    for game in games:
        others = {seat.policy for seat in game.outcome.seats} - {PERSON}
        found[game.outcome.policy_version, "+".join(sorted(others)) or PERSON].append(game)

    def score(games: list[FinishedRollout], side: SideName) -> Score:
        outcomes = [
            game.outcome
            for game in games
            if any(seat.policy == PERSON and seat.side == side for seat in game.outcome.seats)
        ]
        return Score.of_side([of.result for of in outcomes], [of.seed for of in outcomes], side)

    against = tuple(
        PeopleAgainst(
            label=labels.get(version, f"version {version}") if player == TRAINED_POLICY else player,
            player=player,
            policy_version=version,
            by_side={side: score(of, side) for side in SIDES},
            games=tuple(game.rollout_id for game in of),
        )
        for (version, player), of in sorted(found.items())
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
