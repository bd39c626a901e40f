"""Learning to listen: training on the true roles as answers to belief probes.

After a game the true role of each seat is known. A probed seat is trained to name the true role of another seat in
exactly the tokens of the probe, in addition to the policy's loss: a dense signal from what it heard. Sarkar et al.,
Training Language Models for Social Deduction with Multi-Agent Reinforcement Learning, arXiv 2502.06060, train players
to predict the impostor from a discussion.

Rows exist only with ``probes.listening``; turns are unchanged.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from algo.rollouts.triplets import FinishedRollout
from algo.sequences.targets import TargetRow
from algo.sequences.vocabulary import vocabulary_of
from configs.roles_and_decks import Role
from configs.sections.policies import LearnerConfig, learner_of
from configs.werewolf import WerewolfConfig
from store.werewolf_study import StudySpan


def listening_of(games: Iterable[FinishedRollout], config: WerewolfConfig) -> list[TargetRow]:
    """The true roles, as answers to the probes of trainable seats; none without ``probes.listening``."""
    if not config.probes.listening:
        return []
    longest, vocabulary = config.training.max_sequence_tokens, vocabulary_of(config.model.path)
    return [row for game in games for row in listening_rows(game, longest, vocabulary, config.team)]


def listening_rows(
    rollout: FinishedRollout,
    max_tokens: int,
    vocabulary: int,
    team: Mapping[str, LearnerConfig] = MappingProxyType({}),
) -> Iterator[TargetRow]:
    """A row for each probe of a trainable seat of at most ``max_tokens`` whose earlier turns are all stored.

    vocabulary: number of token ids; probes with others are left out, since they would end the trainer.
    team: the policies that learn, if there are several; a row trains the policy of the probed seat.
    """
    seats = {seat.seat: seat for seat in rollout.outcome.seats}
    sequences = _sequences(rollout)
    for note in rollout.notes:
        assert isinstance(note, StudySpan)
        for belief in note.beliefs:
            if not seats[belief.seat].trainable:
                continue
            learner = learner_of(team, Role(seats[belief.seat].role))
            for probe in belief.asked:
                context = sequences.get((belief.seat, probe.segment), ())[: probe.context_tokens]
                given, answer = (*context, *probe.prompt_ids), probe.words[seats[probe.target].role]
                row = TargetRow((*given, *answer), (0.0,) * len(given) + (1.0,) * len(answer), learner)
                is_whole = len(context) == probe.context_tokens and len(row.token_ids) <= max_tokens
                if is_whole and all(0 <= token < vocabulary for token in row.token_ids):
                    yield row


def _sequences(rollout: FinishedRollout) -> dict[tuple[int, int], tuple[int, ...]]:
    """(seat, segment) -> token ids up to the end of its last turn."""
    return {
        (triplet.metadata["seat"], triplet.metadata["segment"]): (
            *triplet.prompt["token_ids"],
            *triplet.response["token_ids"],
        )
        for triplet in rollout.triplets
    }
