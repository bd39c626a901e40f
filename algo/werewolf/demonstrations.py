"""Demonstrations of a warm start: games played for it or read from the hub, and the selected replies."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from algo.rollouts.hub_rollouts import iter_rollouts
from algo.rollouts.played import PlayedRollouts, read_rollout
from algo.rollouts.triplets import FinishedRollout, Triplet
from algo.run.names import EVALUATION_SUFFIX
from algo.sequences.selection import select_sequences
from algo.sequences.trajectories import Trajectory, build_trajectories
from algo.werewolf.rewards import game_rewards
from algo.werewolf.tasks import derived_seed, game_task, study_of_training
from configs.werewolf import WerewolfConfig
from store.client import StoreClient
from store.protocol import Rollout
from store.schema import VERSION_SEPARATOR
from store.werewolf import GAME, PEOPLE, PERSON, GameTask, SeatingRule, SideName

INVALID_REPLY = "invalid_reply"
CUT_REPLY = "cut_reply"
OTHER_PLAYER = "other_player"


class NoUsableGames(RuntimeError):
    """The games have no replies to learn from, or none to measure with; the message says which."""


def demonstration_tasks(config: WerewolfConfig) -> list[GameTask]:
    """The games of a warm start, each on a deal of its own; demonstrators play every seat, with turns."""
    settings, seed = config.warm_start, config.run.seed
    count = settings.games + settings.held_out_games
    # Even, as all training deals, so that no evaluation has it (algo.werewolf.tasks).
    deals = [derived_seed("demonstration", seed, number) & ~1 for number in range(count)]
    return [
        game_task(
            config,
            game_id=f"{config.run.name}-game{number:05d}",
            group_id=f"{config.run.name}-deal{number:05d}",
            seed=deal,
            sampling_seed=derived_seed("demonstration sampling", seed, number),
            seating=tuple(SeatingRule(side=side, players=settings.demonstrators) for side in get_args(SideName)),
            trainable=frozenset(config.game.train_sides),
            demonstrators=frozenset(settings.demonstrators),
            study=study_of_training(config, deal) if config.probes.listening else None,
        )
        for number, deal in enumerate(deals)
    ]


@dataclass(frozen=True)
class StoredGames:
    """A selection of the hub's games: those of a run, or those of people.

    run_id: of the run, or of the policy that people played against. None for any.
    kept_for: purpose of people's games, ``EVALUATION`` or ``DEMONSTRATION``; None for the run's own games.
    """

    run_id: str | None = None
    kept_for: str | None = None

    def includes(self, rollout: Rollout) -> bool:
        metadata = rollout.metadata or {}
        if self.kept_for is None:
            return metadata.get("run") == self.run_id
        # While a run evaluates, the hub's newest policy is its evaluation's, with the same weights.
        against = (rollout.resources_id or "").rpartition(VERSION_SEPARATOR)[0].removesuffix(EVALUATION_SUFFIX)
        return metadata.get(PEOPLE) == self.kept_for and self.run_id in (None, against)

    @property
    def demonstrator(self) -> str | None:
        """The only player that is imitated; None: any player of trainable seats."""
        return PERSON if self.kept_for is not None else None

    def missing_text(self) -> str:
        if self.kept_for is not None:
            against = "" if self.run_id is None else f" against run {self.run_id!r}"
            return (
                f"the hub has no games of people{against} that were kept as {self.kept_for}: play some "
                f"with `python -m runners.werewolf web --store URL`"
            )
        return (
            f"the hub has no finished games of run {self.run_id!r}: the id of a run is in its folder's run.json; "
            f"archived games are not found"
        )


async def stored_games(client: StoreClient, wanted: StoredGames, newest: int) -> PlayedRollouts:
    """The newest finished games of a selection, at most ``newest``. Raises NoUsableGames if there are none."""
    rollouts: dict[str, Rollout] = {}
    async for page in iter_rollouts(client, status_in=["succeeded"]):
        rollouts |= {one.rollout_id: one for one in page if wanted.includes(one)}
        if len(rollouts) >= newest:
            break
    found = PlayedRollouts.merge(
        [
            read_rollout(GAME, rollout, list(await client.query_spans(rollout.rollout_id)))
            for rollout in list(rollouts.values())[:newest]
        ]
    )
    if not found.finished:
        raise NoUsableGames(wanted.missing_text())
    return found


def split_by_deal(
    games: Sequence[FinishedRollout], held_out: int, seed: int
) -> tuple[list[FinishedRollout], list[FinishedRollout]]:
    """(games to learn from, at least ``held_out`` games to measure with), split by deal, by the seed.

    Raises NoUsableGames where too few are left to learn from.
    """
    by_deal: dict[int, list[FinishedRollout]] = {}
    for game in games:
        by_deal.setdefault(game.outcome.seed, []).append(game)
    learn: list[FinishedRollout] = []
    measure: list[FinishedRollout] = []
    for deal in sorted(by_deal, key=lambda deal: hashlib.blake2b(f"{seed}/{deal}".encode()).digest()):
        (measure if len(measure) < held_out else learn).extend(by_deal[deal])
    if not learn:
        raise NoUsableGames(
            f"{len(games)} games on {len(by_deal)} deals are too few for {held_out} held-out games and training: "
            f"raise warm_start.games or lower warm_start.held_out_games"
        )
    return learn, measure


@dataclass(frozen=True)
class Demonstrations:
    """Selected replies of games.

    trajectories: one for each selected seat and segment; the loss mask marks the imitated replies.
    flawed: for each trajectory, the ranges in ``token_ids`` of the seat's replies that are not imitated.
    left_out: reason -> number of the other stored turns.
    """

    trajectories: tuple[Trajectory, ...]
    flawed: tuple[tuple[tuple[int, int], ...], ...]
    left_out: Counter[str]

    @property
    def turns(self) -> int:
        """Number of imitated replies."""
        return sum(len(trajectory.turn_ends) for trajectory in self.trajectories)

    @property
    def reply_tokens(self) -> int:
        """Number of tokens of these replies."""
        return sum(sum(trajectory.loss_mask) for trajectory in self.trajectories)


def demonstrations_of(
    games: Iterable[FinishedRollout], config: WerewolfConfig, demonstrator: str | None = None
) -> Demonstrations:
    """Select every valid, uncut reply of the seats in ``warm_start.selection``.

    demonstrator: the only player to imitate; None for any player of trainable seats.
    Other replies stay in the conversation as context of the later ones. Raises NoUsableGames if none is selected.
    """
    left_out: Counter[str] = Counter()
    flawed: dict[tuple[str, str], list[Triplet]] = defaultdict(list)
    cleaned = [_without_flawed_replies(game, left_out, flawed, demonstrator) for game in games]
    found = build_trajectories(
        cleaned, partial(game_rewards, weights=config.reward), config.training.max_sequence_tokens
    )
    selected = select_sequences(
        found.trajectories,
        [True] * len(found.trajectories),
        config.warm_start.selection,
        str(config.run.seed),
        oldest_version_allowed=0,
    )
    left_out += found.left_out + selected.left_out
    if not selected.rows:
        raise NoUsableGames(
            f"no reply of {len(cleaned)} games is selected; left out: {dict(left_out)}. For {CUT_REPLY} raise "
            f"rollout.reply_tokens; other reasons follow from warm_start.selection"
        )
    trajectories = tuple(found.trajectories[row] for row in selected.rows)
    ranges = tuple(_ranges_in(each, flawed[each.task_id, each.actor]) for each in trajectories)
    return Demonstrations(trajectories, ranges, +left_out)


def _ranges_in(trajectory: Trajectory, replies: Iterable[Triplet]) -> tuple[tuple[int, int], ...]:
    """Where the trajectory has those of ``replies`` that belong to its segment."""
    found = []
    for triplet in replies:
        prompt, reply = triplet.prompt["token_ids"], triplet.response["token_ids"]
        end = len(prompt) + len(reply)
        if trajectory.token_ids[:end] == (*prompt, *reply):
            found.append((len(prompt), end))
    return tuple(found)


def _without_flawed_replies(
    game: FinishedRollout,
    left_out: Counter[str],
    flawed: dict[tuple[str, str], list[Triplet]],
    demonstrator: str | None,
) -> FinishedRollout:
    """The game's other replies; the flawed ones are counted in ``left_out`` and added to their seat in ``flawed``."""
    kept = []
    for triplet in game.triplets:
        reason = _flaw(triplet, demonstrator) if triplet.metadata["trainable"] else None
        if reason is None:
            kept.append(triplet)
        else:
            left_out[reason] += 1
            flawed[triplet.metadata["task"], triplet.metadata["actor"]].append(triplet)
    return replace(game, triplets=tuple(kept))


def _flaw(triplet: Triplet, demonstrator: str | None) -> str | None:
    if demonstrator is not None and triplet.metadata["policy"] != demonstrator:
        return OTHER_PLAYER
    if not triplet.metadata["valid"]:
        return INVALID_REPLY
    return CUT_REPLY if triplet.metadata["finish_reason"] == "length" else None
