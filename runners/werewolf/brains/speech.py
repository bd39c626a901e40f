"""What a scripted player says by day, put together in the same way whatever its side."""

from collections.abc import Iterator, Sequence

from runners.werewolf.brains.beliefs import TRUSTED, Beliefs
from runners.werewolf.brains.memory import HIDDEN_GODS
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Option, Role, Side
from runners.werewolf.language import saying
from runners.werewolf.prompts_zh.names import CHECK_NAMES, ROLE_NAMES, seat_names

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
REVEALING = frozenset({Decision.PK_SPEECH, Decision.LAST_WORDS})
"""Speeches in which nothing is left to lose by showing one's role."""
LAST_LINES = {**dict.fromkeys(CAMPAIGNS, saying.CAMPAIGN_LINES), Decision.PK_SPEECH: saying.DEFENCES}
"""What a speech of this kind ends with, if not with small talk."""


def reveals(turn: Turn, role: Role) -> bool:
    """Whether a seat with ``role`` says now what it is."""
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


def speak(
    turn: Turn,
    role: Role | None,
    beliefs: Beliefs,
    suspect: int | None,
    seer: int | None,
    potions: tuple[int | None, int | None],
) -> Action:
    """The speech of one turn; the sheriff's last one calls for a vote against the suspect.

    role: what it says it is; None for no more than a good seat. Its checks and plan come from its memory.
    suspect: whom it wants exiled. seer: whom it follows. potions: on whom it says it used them, as the witch.
    """
    decision = turn.request.decision
    turn.memory.shown = role or turn.memory.shown
    rival = None if role is None else _rival(turn, role)
    trusted = beliefs.most_trusted([seat for seat in turn.others if seat not in (seer, suspect)], at_most=TRUSTED)
    rally = suspect if decision is Decision.CLOSING_SPEECH else None
    words = [*_introduce(turn, role, rival, potions)]
    if rally is not None:
        words.append(turn.say(saying.RALLIES, rally))
    if beliefs.asks is not None and suspect is not None:  # before opinions, which may leave no room for it
        mate, other = beliefs.asks
        words.append(turn.say(saying.SPLITS, suspect, mate=mate, other=other))
    accuses = beliefs.asks is None and rally is None and suspect != rival
    opinions = [*_opinions(turn, role, seer, suspect if accuses else None, trusted)]
    if len(opinions) > 1 and turn.chance.random() < 0.4:
        opinions.reverse()
    words += opinions
    if decision is Decision.PK_SPEECH or len(words) < 2 or turn.chance.random() < TALKATIVE:
        words.append(turn.say(LAST_LINES.get(decision, saying.SMALL_TALK)))
    return turn.speech(words, rally)


def speak_as_candidate(turn: Turn, withdraws: bool) -> Action:
    """The campaign speech of a seat that shows no role."""
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
    if rival is not None:
        yield turn.say(saying.COUNTERCLAIMS, rival, role=ROLE_NAMES[role])
    else:
        yield turn.say(saying.CLAIMS_TO_BE_SEER if role is Role.SEER else saying.CLAIMS, role=ROLE_NAMES[role])
    if role is Role.SEER:
        # Wolves first, then the newest, should room be short.
        for night, seat, side in sorted(memory.reports, key=lambda report: (report[2] is not Side.WOLF, -report[0])):
            templates = saying.LATEST_CHECKS if night == turn.request.day else saying.CHECKS
            yield turn.say(templates, seat, night=night, side=CHECK_NAMES[side], verdict=saying.VERDICTS[side])
        badge_matters = turn.request.decision in CAMPAIGNS or turn.observation.sheriff == turn.me
        if (plan := memory.plan) and badge_matters:
            templates = saying.NEXT_TWO_CHECKS if len(plan) > 1 else saying.NEXT_CHECKS
            yield turn.say(templates, seats=seat_names(plan), first=plan[0], second=plan[-1])
    if role is Role.WITCH:
        for used_on, templates in zip(potions, (saying.SAVINGS, saying.POISONINGS), strict=True):
            if used_on is not None:
                yield turn.say(templates, used_on)


def _opinions(
    turn: Turn, role: Role | None, seer: int | None, accused: int | None, trusted: int | None
) -> Iterator[str]:
    if seer is not None:
        if turn.request.decision is not Decision.LAST_WORDS or turn.chance.random() < FAREWELL_RATE:
            yield turn.say(saying.FOLLOWINGS, seer)
    elif role is not Role.SEER and not turn.memory.claims:
        yield turn.say(saying.CALLS_FOR_SEER)
    if accused is not None:
        yield turn.say(_accusations(turn, accused), accused)
    if trusted is not None and turn.chance.random() < TRUST_RATE:
        yield turn.say(saying.TRUSTS, trusted)


def _accusations(turn: Turn, seat: int) -> Sequence[str]:
    """That it wants ``seat`` exiled, with a reason that fits what was heard."""
    claims = turn.memory.claims
    if turn.memory.found.get(seat) is Side.WOLF:
        return saying.ACCUSATIONS_OF_FINDS
    if seat in claims:
        names_me = claims[seat].get(turn.me) is Side.WOLF
        return saying.ACCUSATIONS_OF_ACCUSERS if names_me else saying.ACCUSATIONS_OF_CLAIMANTS
    named = any(reports.get(seat) is Side.WOLF for reports in claims.values())
    return saying.ACCUSATIONS_OF_NAMED if named else saying.ACCUSATIONS
