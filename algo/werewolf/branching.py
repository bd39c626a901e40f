"""Which decisions of a step's games are branched at, the tasks of the branches, and their credit.

Decisions are drawn before any branch is played. A decision's weight in the draw grows with the policy's surprise at the
same question in the step's other games (the mean of -log p over sampled tokens), and with the spread of outcomes of
continuations of that question in recent steps. The decision's own reply and outcome do not count: continuations are
alike only if the draw does not depend on them. Each decision is drawn by itself, since the number of a game's later
decisions depends on the reply, too.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from algo.advantages.branching import Continuation, Decision
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import ActorReward, RewardsOf
from algo.werewolf.tasks import SEEDS, derived_seed
from configs.sections.training import BranchingConfig
from store.schema import TRAINED_POLICY
from store.token_spans import context_digest
from store.werewolf import GameTask, Past, RecordedReply, TurnSpan

_KINDS = {
    **dict.fromkeys(("exile_vote", "pk_vote", "sheriff_vote", "sheriff_pk_vote"), "vote"),
    **dict.fromkeys(("wolf_kill", "guard", "seer_check", "witch"), "night"),
    **dict.fromkeys(
        ("speech", "closing_speech", "pk_speech", "campaign_speech", "sheriff_pk_speech", "last_words", "wolf_talk"),
        "speech",
    ),
}
"""Question -> kind in ``advantage.branching.decisions``; ``other`` for all others."""

Calls = tuple[TurnSpan, ...]
"""The calls of one decision: one, or two with a re-ask."""


@dataclass(frozen=True)
class BranchPoint:
    """A recorded decision, and the tasks that go on from before it.

    game: the recorded game. calls: of the decision.
    """

    game: FinishedRollout
    calls: Calls
    tasks: tuple[GameTask, ...]

    def decision(
        self,
        branches: Mapping[str, FinishedRollout],
        rewards_of: RewardsOf,
    ) -> Decision:
        """The decision with the recorded game and its finished branches. branches: by task."""
        first = self.calls[0]
        games = (self.game, *(branches[task.task_id] for task in self.tasks if task.task_id in branches))
        return Decision(
            moment=first.moment,
            question=first.question,
            actor=first.actor,
            turn=first.turn,
            continuations=tuple(self._continuation(game, rewards_of(game)) for game in games),
        )

    def _continuation(self, game: FinishedRollout, rewards: Mapping[str, ActorReward]) -> Continuation:
        moment, actor = self.calls[0].moment, self.calls[0].actor
        decided = [turn for turn in game.turns if (turn.actor, turn.moment) == (actor, moment)]
        later: dict[str, int] = {}
        for turn in game.turns:
            if turn.moment > moment:
                later[turn.actor] = min(turn.turn, later.get(turn.actor, turn.turn))
        return Continuation(
            task_id=game.outcome.task,
            # The number of calls, since a re-ask has a reward of its own.
            choice=f"{len(decided)} {decided[-1].reply if decided[-1].valid else ''}",
            outcomes={name: reward.outcome for name, reward in rewards.items()},
            later=later,
        )


def branch_points(
    config: BranchingConfig,
    tasks: Iterable[GameTask],
    games: Sequence[FinishedRollout],
    most: int,
    spreads: Mapping[str, Sequence[float]] = MappingProxyType({}),
    roles: Collection[str] | None = None,
) -> list[BranchPoint]:
    """The decisions to branch at, drawn by the tasks' seeds.

    tasks: of the games. most: number of branches. spreads: question -> ``BranchCredit.spreads`` of recent steps.
    roles: those whose decisions are trained; None for all.
    At most one decision of a game's moment is branched at, since seats asked at once repeat their choices. Games with a
    broken context are left out.
    """
    of_task = {task.task_id: task for task in tasks}
    drawn: list[tuple[float, FinishedRollout, Calls]] = []
    candidates = [
        (game, calls)
        for game in games
        if len(game.triplets) == len(game.turns)
        for calls in _decisions(game)
        if roles is None or calls[0].role in roles
    ]
    undecided = _undecided(candidates)
    known = [value for values in spreads.values() for value in values]
    usual = fmean(known) if any(known) else 1.0  # all branches of the first step may have ended alike
    for game, calls in candidates:
        kind = _KINDS.get(calls[0].question, "other")
        # With one usual step beside the known ones, so that no question is left out for good.
        spread = fmean([usual, *spreads.get(calls[0].question, ())])
        weight = undecided(game, calls[0].question) * spread
        if kind in config.decisions and weight > 0:
            # The smallest of exponential draws with these rates: a weighted draw without replacement.
            numbers = of_task[game.outcome.task].sampling_seed, calls[0].moment, calls[0].seat
            uniform = (derived_seed("branched at", *numbers) + 1) / SEEDS
            drawn.append((-math.log(uniform) / weight, game, calls))
    chosen: dict[tuple[str, int], BranchPoint] = {}
    for _, game, calls in sorted(drawn, key=lambda one: one[0]):
        key = game.outcome.task, calls[0].moment
        if len(chosen) < most // config.continuations and key not in chosen:
            chosen[key] = BranchPoint(
                game, calls, _branches(of_task[game.outcome.task], game, calls, config.continuations)
            )
    return list(chosen.values())


def _decisions(game: FinishedRollout) -> list[Calls]:
    """The policy's trained decisions."""
    found: dict[tuple[int, int], list[TurnSpan]] = defaultdict(list)
    for turn in game.turns:
        if turn.trainable and turn.policy == TRAINED_POLICY:
            found[turn.seat, turn.moment].append(turn)
    return [tuple(calls) for calls in found.values()]


def _undecided(candidates: Iterable[tuple[FinishedRollout, Calls]]) -> Callable[[FinishedRollout, str], float]:
    """(game, question) -> mean surprise of first replies to the question in other games, in nats per token."""
    surprises: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for game, calls in candidates:
        if calls[0].logprobs:
            surprises[calls[0].question][game.outcome.task].append(-fmean(calls[0].logprobs))
    sums = {question: [sum(map(sum, of.values())), sum(map(len, of.values()))] for question, of in surprises.items()}

    def undecided(game: FinishedRollout, question: str) -> float:
        total, count = sums.get(question, (0.0, 0))
        own = surprises[question].get(game.outcome.task, [])
        return (total - sum(own)) / (count - len(own)) if count > len(own) else 0.0

    return undecided


def _branches(task: GameTask, game: FinishedRollout, calls: Calls, count: int) -> tuple[GameTask, ...]:
    first = calls[0]
    past = _past(task, game, first)
    # With a digest of the past, so that a resumed run never takes over branches of another recorded game.
    digest = hashlib.blake2b(past.model_dump_json().encode(), digest_size=4).hexdigest()
    name = f"{task.game_id}-branch-{first.moment:03d}-{first.seat:02d}-{digest}"
    return tuple(
        task.model_copy(
            update={
                "game_id": f"{name}-{number:02d}",
                "sampling_seed": derived_seed("branch", task.sampling_seed, first.moment, first.seat, number),
                "study": None,
                "past": past,
            }
        )
        for number in range(count)
    )


def _past(task: GameTask, game: FinishedRollout, decision: TurnSpan) -> Past:
    """The game up to a decision, with the choices of others at the same moment."""
    replies: dict[int, list[RecordedReply]] = defaultdict(list)
    before = ""
    for turn, triplet in zip(game.turns, game.triplets, strict=True):
        prompt = context_digest(triplet.prompt["token_ids"])
        if turn is decision:
            before = prompt
        elif turn.moment < decision.moment or (turn.moment == decision.moment and turn.seat != decision.seat):
            reply = RecordedReply(prompt=prompt, token_ids=turn.response_ids, finish_reason=turn.finish_reason)
            replies[turn.seat].append(reply)
    return Past(
        game_id=task.game_id,
        sampling_seed=task.sampling_seed,
        moment=decision.moment,
        seat=decision.seat,
        prompt=before,
        replies={seat: tuple(found) for seat, found in replies.items()},
    )
