"""Metrics of a step's games."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from algo.rollouts.played import PlayedRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY
from store.werewolf import TurnSpan

_RUN = 4
"""Length of the character n-grams that compare speeches, as in ``store.werewolf.TURN_FACTS``."""


def game_metrics(played: PlayedRollouts) -> dict[str, float]:
    """Metrics of games, turns, judge and replies; means and shares are per step."""
    games = played.finished
    # Of the policy alone; errors of opponents do not count.
    seats = [seat for game in games for seat in game.outcome.seats if seat.policy == TRAINED_POLICY]
    turns = sum(seat.turns for seat in seats)
    metrics = {
        "rollouts/finished": float(len(games)),
        **played.failure_metrics(),
        "games/days_mean": fmean(game.outcome.days for game in games),
        "turns/played": float(sum(game.outcome.turns for game in games)),
        "turns/per_rollout": fmean(game.outcome.turns for game in games),
        "turns/stored": float(played.turns_stored),
        "turns/of_policy": float(turns),
        "decisions/defaulted": float(sum(seat.defaulted_decisions for seat in seats)),
    }
    if turns:
        metrics["turns/valid_share"] = 1.0 - sum(seat.invalid_turns for seat in seats) / turns
    segments = [seat.segments for seat in seats if seat.turns]
    if segments:
        metrics["turns/segments_per_seat"] = fmean(segments)
    requests = sum(game.outcome.judge_asked for game in games)
    if requests:
        metrics["judge/requests"] = float(requests)
        metrics["judge/judged_share"] = sum(len(game.outcome.judgements) for game in games) / requests
    for result in ("wolf", "good", "draw"):
        metrics[f"games/{result}_share"] = sum(game.outcome.result == result for game in games) / len(games)
    return metrics | _wins_of_policy(games) | variety_metrics(games)


def variety_metrics(games: Sequence[FinishedRollout]) -> dict[str, float]:
    """Variety of the policy's replies over the games of a step, by side; sides without replies are left out.

    ``speech/<side>/distinct_share``: share of different texts. ``speech/<side>/similarity``: mean share of a speech's
    4-grams that speeches in other games contain. ``replies/<side>/cut_share``: share of replies cut at the token limit.
    """
    metrics = {}
    for side in SIDES:
        turns = [turn for game in games for turn in game.turns if turn.policy == TRAINED_POLICY and turn.side == side]
        if turns:
            metrics[f"replies/{side}/cut_share"] = fmean(turn.facts.get("cut", 0.0) for turn in turns)
        speeches = [turn for turn in turns if turn.facts.get("speech_chars")]
        if speeches:
            metrics[f"speech/{side}/distinct_share"] = len({turn.reply for turn in speeches}) / len(speeches)
            metrics[f"speech/{side}/similarity"] = _similarity(speeches)
    return metrics


def _similarity(speeches: Sequence[TurnSpan]) -> float:
    runs = [{turn.reply[at : at + _RUN] for at in range(len(turn.reply) - _RUN + 1)} for turn in speeches]
    games_with: dict[str, set[str]] = defaultdict(set)
    for turn, own in zip(speeches, runs, strict=True):
        for run in own:
            games_with[run].add(turn.game_id)
    shares = [
        fmean(bool(games_with[run] - {turn.game_id}) for run in own)
        for turn, own in zip(speeches, runs, strict=True)
        if own
    ]
    return fmean(shares) if shares else 0.0


def _wins_of_policy(games: Iterable[FinishedRollout]) -> dict[str, float]:
    """``policy/<side>/games`` and ``policy/<side>/wins``, of games in which the policy has no seat of the other side.

    Counts, so that several steps can be pooled. Games against itself are left out: they do not measure the policy.
    """
    metrics = {}
    for side in SIDES:
        ends = [
            game.outcome.result
            for game in games
            if {seat.side for seat in game.outcome.seats if seat.policy == TRAINED_POLICY} == {side}
        ]
        if ends:
            metrics |= {f"policy/{side}/games": float(len(ends)), f"policy/{side}/wins": float(ends.count(side))}
    return metrics
