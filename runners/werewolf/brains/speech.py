"""Composes a scripted player's speeches, in the same way for both sides."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from random import Random

from runners.werewolf.brains.beliefs import TRUSTED, Beliefs
from runners.werewolf.brains.memory import HIDDEN_GODS
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Option, Role, Side
from runners.werewolf.language import saying
from runners.werewolf.prompts_zh.names import CHECK_NAMES, ROLE_NAMES

TALKATIVE, SAYS_GOOD, SAYS_VILLAGER = 0.4, 0.35, 0.2
"""Probability that a speech ends with a general remark; that a speech that reveals no role claims to be good; that it
claims to be a villager, which hidden 神职 and wolves do, too."""
FOLLOWS_AGAIN_RATE = 0.5
"""Probability that a speech repeats the seer that its speaker follows, and that last words name that seer."""
TRUST_RATE = 0.2
"""Probability that a speech also names a trusted seat."""
CLAIMS_AGAIN_RATE = 0.3
"""Probability that a speech repeats an earlier claim of a role."""
VAGUE_RATE = 0.5
"""Probability that the reason against an earlier speaker is only the tone of its speech."""
REVEAL_RATE = 0.7
"""Probability that the witch reports her potions while she lives (银水)."""
ACCUSERS_BORNE = 2
"""Accusers in one day at which a god reveals its role."""

CAMPAIGNS = frozenset({Decision.CAMPAIGN_SPEECH, Decision.SHERIFF_PK_SPEECH})
REVEALING = frozenset({Decision.PK_SPEECH, Decision.LAST_WORDS})
"""Speeches in which revealing a role has no cost."""
LAST_LINES = {
    **dict.fromkeys(CAMPAIGNS, saying.CAMPAIGN_LINES),
    Decision.PK_SPEECH: saying.DEFENCES,
    Decision.LAST_WORDS: saying.FAREWELLS,
}
"""Closing sentences by kind of speech."""
_OF_TODAY = re.compile("今天|投(?!过)|先|出(?!来)")
"""Phrases that do not fit last words, and that a sheriff's call already contains."""


def reveals(turn: Turn, role: Role) -> bool:
    """Whether a seat with ``role`` reveals it now."""
    memory, decision = turn.memory, turn.request.decision
    if role is Role.SEER or turn.memory.shown is role:
        return True
    if role not in HIDDEN_GODS:
        return False
    if decision in REVEALING or _rival(turn, role) is not None:
        return True
    if len({accuser for accuser, accused in memory.accusations if accused == turn.me}) >= ACCUSERS_BORNE:
        return True
    used_potions = memory.saved is not None or memory.poisoned is not None
    return used_potions and turn.request.day > 1 and turn.resolves("reveal", REVEAL_RATE)


def candidates(turn: Turn) -> Collection[int]:
    """Seats that a speech may accuse: in a PK the others on the stage."""
    if turn.request.decision is Decision.PK_SPEECH:
        return [seat for seat in turn.others if seat in turn.memory.stage] or turn.others
    return turn.request.targets if turn.request.decision is Decision.CLOSING_SPEECH else turn.others


def plan_checks(turn: Turn, beliefs: Beliefs, suspect: int | None) -> None:
    """Plan the next checks of a seer or a posing wolf: the two most suspected seats except ``suspect``."""
    memory = turn.memory
    ranked = sorted(turn.others, key=beliefs.suspicion.__getitem__, reverse=True)
    known = {suspect} | memory.found.keys() | memory.claims.keys()
    memory.plan = tuple(seat for seat in ranked if seat not in known)[:2]


def _rival(turn: Turn, role: Role) -> int | None:
    """Another living seat that claims ``role``; None if the deck has several or no seat claims it."""
    memory = turn.memory
    if memory.deck[role] != 1:
        return None
    claimants = memory.claims if role is Role.SEER else [seat for seat, god in memory.gods.items() if god is role]
    return next((seat for seat in claimants if seat in turn.others), None)


def speak(
    turn: Turn,
    role: Role | None,
    beliefs: Beliefs,
    suspect: int | None,
    seer: int | None,
    potions: tuple[int | None, int | None],
) -> Action:
    """The speech of one turn; the sheriff's closing speech calls for a vote against the suspect.

    role: its claim; None to claim no 神职. Checks and plan come from its memory.
    suspect: the seat that it accuses. seer: the one that it follows. potions: claimed targets, as the witch.
    """
    # Words have a generator of their own, so that the wording of a speech changes no later decision.
    turn = replace(turn, chance=Random(turn.chance.random()))
    decision, memory = turn.request.decision, turn.memory
    memory.shown = role or memory.shown
    if seer == suspect:
        seer = None
    rival = None if role is None else _rival(turn, role)
    words = [*_introduce(turn, role, rival, potions)]
    stance = [] if role is Role.SEER else [*_stance(turn, seer)]
    words += stance
    if suspect is not None:
        leads = saying.BESIDE_CHECKS if role is Role.SEER else saying.BESIDE_FOLLOWED if seer and stance else ()
        words += _accuse(turn, beliefs, suspect, seer, rival, leads)
    words += _trust(turn, beliefs, {seer, suspect}, seer)
    if role is Role.SEER and memory.plan and (decision in CAMPAIGNS or turn.observation.sheriff == turn.me):
        templates = saying.NEXT_TWO_CHECKS if len(memory.plan) > 1 else saying.NEXT_CHECKS
        words.append(turn.say(templates, first=memory.plan[0], second=memory.plan[-1]))
    if len(words) < 2 or turn.chance.random() < TALKATIVE:
        small_talk = saying.MORE_TO_COME if _more_to_come(turn) else saying.SMALL_TALK
        words.append(turn.say(LAST_LINES.get(decision, small_talk)))
    if decision is Decision.CLOSING_SPEECH:
        memory.rallied = suspect
        return turn.speech(words, suspect)
    return turn.speech(words)


def speak_as_candidate(turn: Turn, withdraws: bool) -> Action:
    """The campaign speech of a seat without a claim."""
    words = [turn.say(saying.CLAIMS_GOOD), turn.say(saying.WITHDRAWALS if withdraws else saying.CAMPAIGN_LINES)]
    return turn.speech(words, Option.WITHDRAW if withdraws else None)


def _introduce(
    turn: Turn, role: Role | None, rival: int | None, potions: tuple[int | None, int | None]
) -> Iterator[str]:
    memory = turn.memory
    if role is None:
        drawn = turn.chance.random()
        if drawn < SAYS_VILLAGER and memory.deck[Role.VILLAGER]:
            yield turn.say(saying.CLAIMS, role=ROLE_NAMES[Role.VILLAGER])
        elif drawn < SAYS_VILLAGER + SAYS_GOOD:
            yield turn.say(saying.CLAIMS_GOOD)
        return
    again = turn.has_said(role)
    if rival is not None:
        yield turn.say(saying.COUNTERCLAIMS, accused=rival, role=ROLE_NAMES[role])
    elif not again or turn.chance.random() < CLAIMS_AGAIN_RATE:
        first = saying.CLAIMS_TO_BE_SEER if role is Role.SEER else saying.CLAIMS
        yield turn.say(saying.CLAIMS_AGAIN if again else first, role=ROLE_NAMES[role])
    if role is Role.SEER:
        for night, seat, side in sorted(memory.reports):
            templates = saying.LATEST_CHECKS if night == turn.request.day else saying.CHECKS
            yield turn.say(templates, checked=seat, night=night, side=CHECK_NAMES[side], verdict=saying.VERDICTS[side])
    if role is Role.WITCH:
        for seat, templates in zip(potions, (saying.SAVINGS, saying.POISONINGS), strict=True):
            if seat is not None and not turn.has_said(templates):
                yield turn.say(templates, saved=seat, poisoned=seat)


def _stance(turn: Turn, seer: int | None) -> Iterator[str]:
    """A sentence about the seer that it follows, or about the lack of a claim."""
    memory = turn.memory
    rivals = [seat for seat in memory.claims if seat != seer]
    if seer is not None:
        templates = saying.FOLLOWINGS_OF_RIVALS if rivals else saying.FOLLOWINGS
        if seer in memory.gone:
            templates = saying.FOLLOWINGS_OF_DEAD
        if again := turn.has_said((Role.SEER, seer)):
            templates = saying.FOLLOWINGS_AGAIN
        rate = FOLLOWS_AGAIN_RATE if again or turn.request.decision is Decision.LAST_WORDS else 1.0
        if turn.chance.random() < rate:
            yield turn.say(templates, followed=seer, seat=rivals[0] if rivals else None)
    elif not memory.claims:
        yield turn.say(saying.CALLS_FOR_SEER if _more_to_come(turn) else saying.NO_SEER)


def _accuse(
    turn: Turn, beliefs: Beliefs, suspect: int, seer: int | None, rival: int | None, leads: Sequence[str]
) -> Iterator[str]:
    """An accusation of ``suspect``, with a reason from the record.

    leads: phrases that connect an accusation without a check with the sentences before; may be empty.
    """
    decision, found = turn.request.decision, turn.memory.found
    calls, last = decision is Decision.CLOSING_SPEECH, decision is Decision.LAST_WORDS
    if beliefs.split is not None:
        mate, other = beliefs.split
        yield turn.say(saying.SPLITS, accused=suspect, mate=mate, other=other)
        return
    later = [seat for seat in turn.others if found.get(seat) is Side.WOLF and seat != suspect]
    if later and found.get(suspect) is not Side.WOLF and not last:
        yield turn.say(saying.FINDS_FOR_LATER, accused=suspect, seat=later[0])
        leads = ()
    elif leads is saying.BESIDE_CHECKS and Side.WOLF in found.values():
        leads = saying.BESIDE_DEAD_FINDS
    if suspect != rival and not (calls and found.get(suspect) is Side.WOLF):  # earlier sentences give the reason
        templates, seat, own = _reason(turn, suspect, seer)
        if calls or last:
            templates = [template for template in templates if not _OF_TODAY.search(template)] or templates
        beside = leads and own and turn.request.speech_chars > saying.SHORT_SPEECH_CHARS
        yield (turn.say(leads) if beside else "") + turn.say(templates, accused=suspect, seat=seat)
    if calls:
        yield turn.say(saying.RALLIES, accused=suspect)


def _reason(turn: Turn, accused: int, seer: int | None) -> tuple[Sequence[str], int | None, bool]:
    """(templates against ``accused``; the other seat that they name; whether no check supports the accusation)."""
    memory, claims = turn.memory, turn.memory.claims
    if memory.found.get(accused) is Side.WOLF:
        return saying.ACCUSATIONS_OF_FINDS, None, False
    if accused in claims and claims[accused].get(turn.me) is Side.WOLF:
        return saying.ACCUSATIONS_OF_ACCUSERS, None, False
    named = seer in claims and claims[seer].get(accused) is Side.WOLF
    if accused in memory.spoken and turn.chance.random() < VAGUE_RATE:
        return saying.ACCUSATIONS, None, not named and accused not in claims
    if accused in claims:
        return saying.ACCUSATIONS_OF_CLAIMANTS, None, False
    if named:
        return saying.ACCUSATIONS_OF_NAMED, seer, False
    if accused not in memory.spoken:
        return saying.ACCUSATIONS_OF_UNHEARD, None, True
    followed = memory.followed.get(accused)
    if followed in claims and seer is not None and followed != seer:
        return saying.ACCUSATIONS_OF_FOLLOWERS, followed, True
    good = [
        seat for seat in (seer, *memory.night_deaths) if (accused, seat) in memory.attacks and seat != memory.poisoned
    ]
    if good:
        return saying.ACCUSATIONS_OF_VOTERS, good[0], True
    if (accused, turn.me) in memory.accusations:
        return saying.ACCUSATIONS_OF_ATTACKERS, None, True
    if memory.spoken[accused] != turn.request.day:
        return saying.ACCUSATIONS, None, True
    loud = any(speaker == accused for speaker, _ in memory.accusations)
    return saying.ACCUSATIONS_OF_LOUD if loud else saying.ACCUSATIONS_OF_QUIET, None, True


def _trust(turn: Turn, beliefs: Beliefs, but: Collection[int | None], seer: int | None) -> Iterator[str]:
    named = {*but, *turn.memory.claims, *turn.memory.found}
    seats = [seat for seat in turn.others if seat not in named]
    trusted = beliefs.most_trusted(seats, at_most=TRUSTED)
    cleared = seer is not None and turn.memory.claims.get(seer, {}).get(trusted) is Side.GOOD
    if trusted is not None and (cleared or trusted in turn.memory.spoken) and turn.chance.random() < TRUST_RATE:
        yield turn.say(saying.TRUSTS_OF_CLEARED if cleared else saying.TRUSTS, seat=trusted)


def _more_to_come(turn: Turn) -> bool:
    return any(turn.memory.spoken.get(seat) != turn.request.day for seat in turn.others)
