"""Learning to listen: the true roles as the answers to what seats were asked beside their games.

The referee knows after a game what each seat was. A seat that was asked what it takes another for (``runners``' belief
probes) is trained to name the true role in exactly the tokens of that question, beside the policy's loss: what it heard
is then worth keeping in mind, whether or not it decided a vote. Sarkar et al., Training Language Models for Social
Deduction with Multi-Agent Reinforcement Learning, arXiv 2502.06060, train players to predict from a discussion who is
the impostor, as a dense signal beside the reward of the game.

Only what the runner noted becomes a row, and only where the configuration asked for it; no turn changes.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from algo.rollouts.triplets import FinishedRollout
from algo.sequences.targets import TargetRow
from configs.roles_and_decks import Role
from configs.sections.policies import LearnerConfig, learner_of
from store.werewolf_study import ProbeTokens, StudySpan


def listening_rows(
    rollout: FinishedRollout, max_tokens: int, team: Mapping[str, LearnerConfig] = MappingProxyType({})
) -> Iterator[TargetRow]:
    """A row for each question that a seat in training was asked; longer ones than ``max_tokens`` are left out.

    team: the policies that learn, where there are several; a row is for the one whose seat was asked.
    A question whose seat's earlier turns are not all stored is left out likewise.
    """
    seats = {seat.seat: seat for seat in rollout.outcome.seats}
    sequences = _sequences(rollout)
    for note in rollout.notes:
        assert isinstance(note, StudySpan)
        for belief in note.beliefs:
            if not seats[belief.seat].trainable:
                continue
            learner = learner_of(team, Role(seats[belief.seat].role))
            for asked in belief.asked:
                context = sequences.get((belief.seat, asked.segment), ())[: asked.context_tokens]
                row = _row(context, asked, seats[asked.target].role, learner)
                if len(context) == asked.context_tokens and len(row.token_ids) <= max_tokens:
                    yield row


def _row(context: tuple[int, ...], asked: ProbeTokens, role: str, learner: str | None) -> TargetRow:
    answer = asked.words[role]
    given = (*context, *asked.prompt_ids)
    return TargetRow((*given, *answer), (0.0,) * len(given) + (1.0,) * len(answer), learner)


def _sequences(rollout: FinishedRollout) -> dict[tuple[int, int], tuple[int, ...]]:
    """(seat, segment) -> everything up to the end of its last turn; of turns whose whole prompt could be rebuilt."""
    return {
        (triplet.metadata["seat"], triplet.metadata["segment"]): (
            *triplet.prompt["token_ids"],
            *triplet.response["token_ids"],
        )
        for triplet in rollout.triplets
    }
