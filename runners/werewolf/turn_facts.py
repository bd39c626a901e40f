"""Facts of a model's reply (``store.werewolf.TURN_FACTS``).

Pure functions of the reply, the seat and its earlier speeches. The algorithm's configuration sets their weights.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from runners.werewolf.game import Decision, Request, Side
from runners.werewolf.language.leaks import gives_wolves_away, prints_prompt
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.players import ModelTurn
from store.werewolf import NEUTRAL_FACTS

RUN_CHARS = 4
"""Length of the character n-grams for repetition, about two Chinese words.

As in seq-rep-4, the share of duplicate 4-grams (Welleck et al., Neural Text Generation with Unlikelihood Training,
ICLR 2020), there over tokens.
"""

# Unified ideographs with extensions, compatibility ideographs, and 〇.
_CHINESE = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")


_VOTES = frozenset({Decision.EXILE_VOTE, Decision.PK_VOTE})
_ATTACKS = frozenset({Decision.WOLF_TALK, Decision.WOLF_KILL, Decision.WITCH, Decision.SHOT, Decision.TAKE})


@dataclass(frozen=True, slots=True)
class Speaker:
    """A seat's side, and what its speeches must not reveal."""

    side: Side
    mates: frozenset[int]  # seats of the other wolves, for a wolf
    prompt_runs: frozenset[str]  # of its system prompt (``leaks.prompt_runs``)


def turn_facts(
    turn: ModelTurn,
    request: Request,
    heard: str,
    speaker: Speaker,
    earlier: Iterable[str],
    chosen: Side | None = None,
) -> dict[str, float]:
    """All facts of one reply to ``request``.

    heard: the seat's speech as others hear it; empty without one.
    earlier: the seat's earlier speeches in this game.
    chosen: side of the chosen seat, or None.
    """
    at_enemy = chosen not in (None, speaker.side)
    facts = {
        **NEUTRAL_FACTS,
        "invalid": float(turn.error is not None),
        "reask": float(turn.is_reask),
        "cut": float(turn.sampled.finish_reason == "length"),
        "vote_against_enemy": float(request.decision in _VOTES and at_enemy),
        "attack_on_enemy": float(request.decision in _ATTACKS and at_enemy),
    }
    if not heard:
        return facts
    speech = whole_speech(turn.reply, request, cut=facts["cut"] == 1.0) or heard
    return facts | {
        "speech_chars": float(len(speech)),
        "overlong": float(len(speech) > request.speech_chars),
        "chinese_share": chinese_share(speech),
        "repetition": repetition(speech),
        "repeats_earlier": repetition_of(speech, earlier),
        "identity_leak": float(request.is_public and leaks_identity(heard, speaker)),
    }


def whole_speech(reply: str, request: Request, *, cut: bool = False) -> str:
    """The speech of a reply before truncation by the rules; empty if the reply is invalid without the limit.

    cut: as in ``replies.parse_reply``.
    """
    unlimited = replace(request, speech_chars=max(len(reply), request.speech_chars))
    try:
        return parse_reply(reply, unlimited, cut=cut).text
    except ReplyError:
        # A marker that the limit had split may be complete now, and change the meaning.
        return ""


def leaks_identity(speech: str, speaker: Speaker) -> bool:
    """Whether a wolf's public speech reveals the wolves, or any speech prints the system prompt."""
    gives_away = speaker.side is Side.WOLF and gives_wolves_away(speech, speaker.mates)
    return gives_away or prints_prompt(speech, speaker.prompt_runs)


def chinese_share(text: str) -> float:
    """Share of Chinese among the letters in ``text``, without digits and signs; 1.0 without letters."""
    chinese = len(_CHINESE.findall(text))
    foreign = sum(character.isalpha() for character in _CHINESE.sub("", text))
    return chinese / (chinese + foreign) if chinese + foreign else 1.0


def repetition(text: str) -> float:
    """1 - distinct n-grams / n-grams, over all n-grams of ``RUN_CHARS`` letters and digits.

    0.0 without repetition and for a text of fewer than two n-grams; near 1.0 for one n-gram over and over.
    """
    runs = _runs(text)
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def repetition_of(text: str, earlier: Iterable[str]) -> float:
    """Share of n-grams in ``text`` that occur in ``earlier`` texts; 0.0 for a text without n-grams."""
    known = {run for other in earlier for run in _runs(other)}
    runs = Counter(_runs(text))
    return sum(count for run, count in runs.items() if run in known) / runs.total() if runs else 0.0


def _runs(text: str) -> list[str]:
    letters = "".join(character for character in text if character.isalnum())
    return [letters[start : start + RUN_CHARS] for start in range(len(letters) - RUN_CHARS + 1)]
