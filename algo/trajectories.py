"""One seat's game as one token sequence: what the update trains on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SeatTrajectory:
    """One segment of one seat's game: prompts and sampled replies interleaved, exactly as vLLM saw them.

    Everything per token aligns with ``token_ids``, position by position.

    game_id: the game that was played; with ``seat`` and ``segment`` it identifies the trajectory.
    group_id: the deal; games of one group were dealt the same cards.
    seat: seat number at the table.
    role: the seat's role card.
    side: the side that the role plays for; baselines never mix sides.
    segment: number of the seat's growing sequence within the game, from 0; a new one begins with a
        recap when the context budget is spent.
    policy_version: version of the weights that sampled the tokens.
    token_ids: the whole sequence, from the first prompt token to the last token of the segment.
    loss_mask: 1 where the policy sampled the token, 0 where it was given; aligned with ``token_ids``.
        The first token is always given.
    logprobs: natural log-probs that vLLM returned for the sampled tokens, at the sampling
        temperature; aligned with ``token_ids``, 0.0 where ``loss_mask`` is 0.
    turn_ends: for each turn, in order, the index in ``token_ids`` one past its last sampled token.
    reward: of the seat in the whole game; all segments of a seat carry the same one.
    """

    game_id: str
    group_id: str
    seat: int
    role: str
    side: str
    segment: int
    policy_version: int
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turn_ends: tuple[int, ...]
    reward: float

    def __post_init__(self) -> None:
        where = f"game {self.game_id}, seat {self.seat}, segment {self.segment}"
        length = len(self.token_ids)
        if len(self.loss_mask) != length or len(self.logprobs) != length:
            raise ValueError(
                f"{where}: {length} tokens, but {len(self.loss_mask)} in the loss mask and "
                f"{len(self.logprobs)} log-probs"
            )
        if not set(self.loss_mask) <= {0, 1}:
            raise ValueError(f"{where}: the loss mask holds something other than 0 and 1")
        if length and self.loss_mask[0] != 0:
            raise ValueError(f"{where}: the first token cannot be a sampled one, nothing stands before it")
        if not any(self.loss_mask):
            raise ValueError(f"{where}: no sampled token, nothing to train on")
        if any(value != 0.0 and not mask for value, mask in zip(self.logprobs, self.loss_mask, strict=True)):
            raise ValueError(f"{where}: a token that was not sampled has a log-prob")
        ends = self.turn_ends
        if any(not 0 < end <= length or not self.loss_mask[end - 1] for end in ends) or list(ends) != sorted(set(ends)):
            raise ValueError(f"{where}: turn ends {ends} do not each follow a sampled token, in order")
