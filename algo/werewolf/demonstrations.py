"""What a warm start imitates: games played for it or found in the hub, and the replies that are chosen of them."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from algo.rollouts.hub_rollouts import iter_rollouts
from algo.rollouts.played import PlayedRollouts, read_rollout
from algo.rollouts.triplets import FinishedRollout, Triplet
from algo.sequences.selection import select_sequences
from algo.sequences.trajectories import Trajectory, build_trajectories
from algo.werewolf.rewards import game_rewards
from algo.werewolf.tasks import derived_seed, study_of_training, token_limits
from configs.werewolf import WerewolfConfig
from store.client import StoreClient
from store.protocol import Rollout
from store.schema import VERSION_SEPARATOR
from store.werewolf import GAME, PEOPLE, PERSON, GameTask, SeatingRule, SideName

UNUSABLE_REPLY = "unusable_reply"
CUT_REPLY = "cut_reply"
NOT_THE_DEMONSTRATORS = "not_the_demonstrators"


class NothingToImitate(RuntimeError):
    """The games hold nothing to learn from, or nothing to measure it by; the message says what is missing."""


def demonstration_tasks(config: WerewolfConfig) -> list[GameTask]:
    """The games of a warm start, each on a deal of its own: the demonstrator plays every seat and leaves turns."""
    settings, game, seed = config.warm_start, config.game, config.run.seed
    count = settings.games + settings.held_out_games
    # Even, as every deal to train on, so that it is never one of an evaluation (algo.werewolf.tasks).
    deals = [derived_seed("demonstration", seed, number) & ~1 for number in range(count)]
    return [
        GameTask(
            game_id=f"{config.run.name}-game{number:05d}",
            group_id=f"{config.run.name}-deal{number:05d}",
            seed=deal,
            sampling_seed=derived_seed("demonstration sampling", seed, number),
            preset=game.preset,
            rules=game.rules.chosen(),
            seating=tuple(SeatingRule(side=side, players={settings.demonstrator: 1.0}) for side in get_args(SideName)),
            trainable=frozenset(game.train_sides),
            demonstrators=frozenset({settings.demonstrator}),
            limits=token_limits(config.rollout),
            study=study_of_training(config, deal) if config.probes.listening else None,
        )
        for number, deal in enumerate(deals)
    ]


@dataclass(frozen=True)
class StoredGames:
    """Which of the hub's games are wanted: those of a run, or those that people played.

    run_id: of the run; of people's games, those that were played against its policy. None for any.
    kept_for: what people kept them for, ``EVALUATION`` or ``DEMONSTRATION``; None for the run's own games.
    """

    run_id: str | None = None
    kept_for: str | None = None

    def have(self, rollout: Rollout) -> bool:
        """Whether a rollout is one of them."""
        metadata = rollout.metadata or {}
        if self.kept_for is None:
            return metadata.get("run") == self.run_id
        against = (rollout.resources_id or "").rpartition(VERSION_SEPARATOR)[0]
        return metadata.get(PEOPLE) == self.kept_for and self.run_id in (None, against)

    @property
    def demonstrator(self) -> str | None:
        """Whose replies alone are imitated; None: of whoever plays for the policy."""
        return PERSON if self.kept_for is not None else None

    def missing(self) -> str:
        """What to say where the hub holds none."""
        if self.kept_for is not None:
            against = "" if self.run_id is None else f" against run {self.run_id!r}"
            return (
                f"the hub holds no games that people played{against} and kept as {self.kept_for}: have some played "
                f"with `python -m runners.werewolf web --store URL`"
            )
        return (
            f"the hub holds no finished games of run {self.run_id!r}: the id of a run stands in its folder's run.json, "
            f"and games that the hub has archived are not found"
        )


async def stored_games(client: StoreClient, wanted: StoredGames, newest: int) -> PlayedRollouts:
    """Those of the wanted games that have finished, the newest first and at most ``newest`` of them.

    Raises NothingToImitate if there are none.
    """
    rollouts: dict[str, Rollout] = {}
    async for page in iter_rollouts(client, status_in=["succeeded"]):
        rollouts |= {one.rollout_id: one for one in page if wanted.have(one)}
        if len(rollouts) >= newest:
            break
    found = PlayedRollouts.merge(
        [
            read_rollout(GAME, rollout, list(await client.query_spans(rollout.rollout_id)))
            for rollout in list(rollouts.values())[:newest]
        ]
    )
    if not found.finished:
        raise NothingToImitate(wanted.missing())
    return found


def split_by_deal(
    games: Sequence[FinishedRollout], held_out: int, seed: int
) -> tuple[list[FinishedRollout], list[FinishedRollout]]:
    """(games to learn from, at least ``held_out`` games to measure by); a deal is never on both sides.

    Which deals are held out follows from the seed. Raises NothingToImitate where too few are left to learn from.
    """
    by_deal: dict[int, list[FinishedRollout]] = {}
    for game in games:
        by_deal.setdefault(game.outcome.seed, []).append(game)
    learn: list[FinishedRollout] = []
    measure: list[FinishedRollout] = []
    for deal in sorted(by_deal, key=lambda deal: hashlib.blake2b(f"{seed}/{deal}".encode()).digest()):
        (measure if len(measure) < held_out else learn).extend(by_deal[deal])
    if not learn:
        raise NothingToImitate(
            f"{len(games)} games on {len(by_deal)} deals leave nothing to learn from beside {held_out} held-out games: "
            f"set warm_start.games higher or warm_start.held_out_games lower"
        )
    return learn, measure


@dataclass(frozen=True)
class Demonstrations:
    """What is imitated of games.

    trajectories: one for each selected seat and segment; the loss mask marks the replies that are imitated.
    left_out: all other stored turns, counted by reason.
    """

    trajectories: tuple[Trajectory, ...]
    left_out: Counter[str]

    @property
    def turns(self) -> int:
        """Replies that are imitated."""
        return sum(len(trajectory.turn_ends) for trajectory in self.trajectories)

    @property
    def reply_tokens(self) -> int:
        """Tokens of those replies."""
        return sum(sum(trajectory.loss_mask) for trajectory in self.trajectories)


def demonstrations_of(
    games: Iterable[FinishedRollout], config: WerewolfConfig, demonstrator: str | None = None
) -> Demonstrations:
    """Choose what is imitated: of the seats that ``warm_start.selection`` selects every reply that could be used whole.

    demonstrator: whose replies alone; None for whoever's may be trained on.
    A reply that is left out stays in the conversation as given text, since the later ones were given after it.
    Raises NothingToImitate if nothing is left.
    """
    left_out: Counter[str] = Counter()
    cleaned = [_without_flawed_replies(game, left_out, demonstrator) for game in games]
    found = build_trajectories(
        cleaned, partial(game_rewards, weights=config.reward), config.training.max_sequence_tokens
    )
    selected = select_sequences(
        found.trajectories,
        [True] * len(found.trajectories),
        config.warm_start.selection,
        config.run.seed,
        oldest_version_allowed=0,
    )
    left_out += found.left_out + selected.left_out
    if not selected.rows:
        raise NothingToImitate(
            f"not one reply of {len(cleaned)} games is imitated; they were left out for: {dict(left_out)}. "
            f"{CUT_REPLY} says that rollout.reply_tokens is too low, others follow from warm_start.selection"
        )
    return Demonstrations(tuple(found.trajectories[row] for row in selected.rows), +left_out)


def _without_flawed_replies(game: FinishedRollout, left_out: Counter[str], demonstrator: str | None) -> FinishedRollout:
    kept = []
    for triplet in game.triplets:
        reason = _flaw(triplet, demonstrator) if triplet.metadata["trainable"] else None
        if reason is None:
            kept.append(triplet)
        else:
            left_out[reason] += 1
    return replace(game, triplets=tuple(kept))


def _flaw(triplet: Triplet, demonstrator: str | None) -> str | None:
    if demonstrator is not None and triplet.metadata["policy"] != demonstrator:
        return NOT_THE_DEMONSTRATORS
    if not triplet.metadata["valid"]:
        return UNUSABLE_REPLY
    return CUT_REPLY if triplet.metadata["finish_reason"] == "length" else None
