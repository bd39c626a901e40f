"""How people fare against a run's policy: counted from the games that they played in a browser and kept in the hub.

A table may seat people beside the policy and against it. What counts is how the people's side fared; a game counts once
for each side on which people sat, however many they were.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from rich.console import Console

from algo.evaluation.figures import Score
from algo.evaluation.games import GameRow
from algo.evaluation.page import Table, share_text, show_tables
from algo.evaluation.record import Record
from algo.evaluation.statistics import Frozen
from algo.machine.whole_files import write_whole
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

    label: what the run calls it, such as "step 24", or the name of a player that is not the policy.
    policy_version: of the policy that played, or for whose run the game was kept.
    by_side: the side that people were on -> how it fared. games: rollout ids in the hub.
    """

    label: str
    player: str
    policy_version: int
    by_side: dict[SideName, Score]
    games: tuple[str, ...]


class PeopleScores(Frozen):
    """What is kept in a run's folder, the newest version last."""

    run: str
    against: tuple[PeopleAgainst, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``count_people`` wrote. Raises ValueError."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))


def people_scores(run_id: str, games: Iterable[FinishedRollout], labels: dict[int, str]) -> PeopleScores:
    """Count the games. labels: policy version -> what the run calls it."""
    found: dict[tuple[int, str], list[FinishedRollout]] = {}
    for game in games:
        others = {seat.policy for seat in game.outcome.seats} - {PERSON}
        found.setdefault((game.outcome.policy_version, "+".join(sorted(others))), []).append(game)
    against = []
    for (version, player), of_player in sorted(found.items()):
        by_side = {
            side: Score.of_side([game.outcome.result for game in of_player if _people_on(game, side)], side)
            for side in SIDES
        }
        against.append(
            PeopleAgainst(
                label=labels.get(version, f"version {version}") if player == TRAINED_POLICY else player or PERSON,
                player=player or PERSON,
                policy_version=version,
                by_side=by_side,
                games=tuple(game.rollout_id for game in of_player),
            )
        )
    return PeopleScores(run=run_id, against=tuple(against))


def _people_on(game: FinishedRollout, side: SideName) -> bool:
    return any(seat.policy == PERSON and seat.side == side for seat in game.outcome.seats)


async def count_people(config: WerewolfConfig, run_id: str, run_dir: Path) -> tuple[PeopleScores, Path]:
    """Read the games from the hub and write what they show into the run's folder; returns it and its file.

    Raises StoreUnreachable, and NothingToImitate where the hub holds none.
    """
    client = connect(config.store.url, config.store.patience_seconds)
    try:
        await client.wait_until_reachable()
        found = await stored_games(client, StoredGames(run_id, EVALUATION), _ALL)
    finally:
        await client.close()
    headers = [evaluation.header for evaluation in Record(run_dir, GameRow).read()]
    labels = {header.policy_version: header.label for header in headers}
    scores = people_scores(run_id, found.finished, labels)
    path = run_dir / PEOPLE_FILE
    write_whole(path, scores.model_dump_json(indent=1) + "\n")
    return scores, path


def show_people(scores: PeopleScores, console: Console) -> None:
    """Print how people fared."""
    rows = [
        (
            one.label,
            *(text for score in one.by_side.values() for text in (share_text(score.win_rate), str(score.games))),
        )
        for one in scores.against
    ]
    head = ("people against", "as wolves", "games", "as good", "games")
    show_tables([Table(f"Games that people won, {scores.run}, with 95 % intervals", head, rows)], console)
