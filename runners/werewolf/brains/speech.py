"""What a scripted player says by day, put together in the same way whatever its side.

A ``Stance`` is what the speaker wants the table to hear; each side makes its own, ``speak`` puts it into words.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from runners.werewolf.brains.beliefs import TRUSTED, Beliefs
from runners.werewolf.brains.memory import HIDDEN_GODS
from runners.werewolf.brains.turn import REVEALING, Turn
from runners.werewolf.game import Action, Decision, Option, Role
from runners.werewolf.language import saying
from runners.werewolf.prompts_zh.names import ROLE_NAMES

TALKATIVE, SAYS_GOOD, SAYS_VILLAGER = 0.6, 0.35, 0.2
"""How likely a speech ends with a general remark; how likely one that reveals nothing says that its speaker is good,
and that it is a villager, which 神职 in hiding and wolves say as villagers do."""
FAREWELL_RATE = 0.5
"""How likely last words name whom the speaker followed."""
TRUST_RATE = 0.2
"""How likely a speech also names somebody that the speaker holds for good."""

REVEAL_RATE = 0.7
"""How likely the witch tells of her potions while she lives (银水)."""
ACCUSERS_BORNE = 2
"""How many accusers in one day make one of the 神职 show its role."""

CAMPAIGNS = frozenset({Decision.CAMPAIGN_SPEECH, Decision.SHERIFF_PK_SPEECH})


@dataclass(frozen=True, slots=True)
class Stance:
    """What a speaker says of itself and of others.

    role: what it says it is; None for no more than a good seat. Its checks, plan and potions come from its memory.
    saved, poisoned: on whom it says it used a potion. rival: a seat that claims the same role, which only one has.
    seer: whom it follows. suspect: whom it wants exiled. trusted: whom it holds for good.
    asks: (seat, whom it asks that seat to vote for), so that the vote is tied.
    """

    role: Role | None
    saved: int | None = None
    poisoned: int | None = None
    rival: int | None = None
    seer: int | None = None
    suspect: int | None = None
    trusted: int | None = None
    asks: tuple[int, int] | None = None


def reveals(turn: Turn, role: Role) -> bool:
    """Whether a seat with ``role`` says now what it is."""
    memory, decision = turn.memory, turn.request.decision
    if role is Role.SEER or turn.temper.shown is role:
        return True
    if role not in HIDDEN_GODS:
        return False
    if decision in REVEALING or _rival(turn, role) is not None:
        return True
    if len({accuser for accuser, accused in memory.accusations if accused == turn.me}) >= ACCUSERS_BORNE:
        return True
    used_potions = memory.saved is not None or memory.poisoned is not None
    return used_potions and turn.request.day > 1 and turn.resolves("reveal", REVEAL_RATE)


def stance_as(
    turn: Turn,
    role: Role | None,
    beliefs: Beliefs,
    suspect: int | None,
    seer: int | None,
    saved: int | None,
    poisoned: int | None,
) -> Stance:
    """The stance of a seat that shows ``role`` (None: shows none). saved, poisoned: told by a witch only."""
    is_witch = role is Role.WITCH
    turn.temper.shown = role or turn.temper.shown
    trusted = beliefs.most_trusted([seat for seat in turn.others if seat not in (seer, suspect)], at_most=TRUSTED)
    return Stance(
        role=role,
        saved=saved if is_witch else None,
        poisoned=poisoned if is_witch else None,
        rival=None if role is None else _rival(turn, role),
        seer=seer,
        suspect=suspect,
        trusted=trusted,
        asks=beliefs.asks,
    )


def plan_checks(turn: Turn, beliefs: Beliefs) -> None:
    """Whom a seer, true or not, will check next: the two that it suspects most."""
    memory = turn.memory
    ranked = sorted(turn.others, key=beliefs.suspicion.__getitem__, reverse=True)
    memory.plan = tuple(seat for seat in ranked if seat not in memory.found and seat not in memory.claims)[:2]


def _rival(turn: Turn, role: Role) -> int | None:
    """A living seat that claims ``role``, of which there is only one."""
    memory = turn.memory
    if memory.deck[role] != 1:
        return None
    claimants = memory.claims if role is Role.SEER else [seat for seat, god in memory.gods.items() if god is role]
    return next((seat for seat in claimants if seat in turn.others), None)


def speak(turn: Turn, stance: Stance, rally: int | None = None) -> Action:
    """The speech of one turn; with ``rally``, whom the sheriff wants exiled."""
    words = [*_introduce(turn, stance)]
    if rally is not None:
        words.append(turn.say(saying.RALLIES, rally))
    if stance.asks is not None and stance.suspect is not None:  # before opinions, which may leave no room for it
        mate, other = stance.asks
        words.append(turn.say(saying.SPLITS, stance.suspect, mate=mate, other=other))
    opinions = [*_opinions(turn, stance, rally)]
    if len(opinions) > 1 and turn.chance.random() < 0.4:
        opinions.reverse()
    words += opinions
    decision = turn.request.decision
    if decision is Decision.PK_SPEECH or len(words) < 2 or turn.chance.random() < TALKATIVE:
        words.append(saying.last_line(turn.chance, decision, turn.request.speech_chars))
    return Action(rally, saying.fit_together(words, turn.request.speech_chars))


def speak_as_candidate(turn: Turn, withdraws: bool) -> Action:
    """The campaign speech of a seat that shows no role."""
    limit = turn.request.speech_chars
    words = [turn.say(saying.CLAIMS_GOOD), turn.say(saying.WITHDRAWALS if withdraws else saying.CAMPAIGN_LINES)]
    return Action(Option.WITHDRAW if withdraws else None, saying.fit_together(words, limit))


def _introduce(turn: Turn, stance: Stance) -> Iterator[str]:
    memory, chance, limit = turn.memory, turn.chance, turn.request.speech_chars
    if stance.role is None:
        drawn = chance.random()
        if drawn < SAYS_VILLAGER and memory.deck[Role.VILLAGER]:
            yield saying.claim_role(chance, Role.VILLAGER, limit)
        elif drawn < SAYS_VILLAGER + SAYS_GOOD:
            yield turn.say(saying.CLAIMS_GOOD)
        return
    if stance.rival is not None:
        yield turn.say(saying.COUNTERCLAIMS, stance.rival, role=ROLE_NAMES[stance.role])
    else:
        yield saying.claim_role(chance, stance.role, limit)
    if stance.role is Role.SEER:
        yield from saying.report_checks(chance, memory.reports, turn.request.day, limit)
        if memory.plan and _badge_matters(turn):
            yield saying.name_next_checks(chance, memory.plan, limit)
    if stance.saved is not None:
        yield turn.say(saying.SAVINGS, stance.saved)
    if stance.poisoned is not None:
        yield turn.say(saying.POISONINGS, stance.poisoned)


def _opinions(turn: Turn, stance: Stance, rally: int | None) -> Iterator[str]:
    if stance.seer is not None:
        if turn.request.decision is not Decision.LAST_WORDS or turn.chance.random() < FAREWELL_RATE:
            yield turn.say(saying.FOLLOWINGS, stance.seer)
    elif stance.role is not Role.SEER and not turn.memory.claims:
        yield turn.say(saying.CALLS_FOR_SEER)
    if stance.asks is None and rally is None and stance.suspect is not None and stance.suspect != stance.rival:
        yield turn.accuse(stance.suspect)
    if stance.trusted is not None and turn.chance.random() < TRUST_RATE:
        yield turn.say(saying.TRUSTS, stance.trusted)


def _badge_matters(turn: Turn) -> bool:
    return turn.request.decision in CAMPAIGNS or turn.observation.sheriff == turn.me
