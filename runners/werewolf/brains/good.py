"""The good side's play: the seer reports, others follow the seer that they trust; potions and shots need evidence."""

from runners.werewolf.brains.beliefs import BEYOND_CHANCE, CONFIDENT, TRUSTED, Beliefs, form_beliefs
from runners.werewolf.brains.speech import candidates, plan_checks, reveals, speak, speak_as_candidate
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Option, Role, Side
from runners.werewolf.game.roles import CARDS

WITHDRAWAL_RATE = 0.9
"""Probability that a candidate withdraws after a claim to be the seer."""
ABSTENTION_RATE = 0.03
"""Probability that a seat without evidence abstains."""
POISONS_AT, LATE_POISONS_AT = 1.0, 0.0
"""Least suspicion for poison in the second night, if no claims conflict, and from the third night on."""
FIRST_NIGHT_SAVE_RATE, UNGUARDED_SAVE_RATE = 0.9, 0.4
"""Probability that the witch saves the first night's victim, which may be a wolf; the second without a guard in the
deck, since then only the antidote protects the seer later."""


def answer(turn: Turn) -> Action:
    """A good seat's answers."""
    role, request = turn.observation.role, turn.request
    match request.decision:
        case Decision.SEER_CHECK:
            return _check(turn)
        case Decision.WITCH:
            return _use_potion(turn)
        case Decision.GUARD:
            return _guard(turn)
        case Decision.SIGN_UP:
            return Action(Option.RUN if runs(turn, role) else None)
        case Decision.CAMPAIGN_SPEECH if role is not Role.SEER:
            return speak_as_candidate(turn, withdraws(turn))
        case Decision.WITHDRAWAL:
            return Action(Option.WITHDRAW if role is not Role.SEER and withdraws(turn) else None)
        case Decision.SHERIFF_VOTE | Decision.SHERIFF_PK_VOTE:
            return _elect(turn)
        case Decision.EXILE_VOTE | Decision.PK_VOTE:
            return _vote(turn)
        case Decision.SHOT | Decision.DUEL:
            return Action(form_beliefs(turn).most_suspected(request.targets, at_least=CARDS[role].kills_at))
        case Decision.BADGE:
            return _pass_badge(turn)
        case Decision.SPEAKING_ORDER:
            return Action(turn.chance.choice(request.options))
    memory, beliefs = turn.memory, form_beliefs(turn)
    suspect = beliefs.most_suspected([seat for seat in candidates(turn) if memory.found.get(seat) is not Side.GOOD])
    if role is Role.SEER:
        plan_checks(turn, beliefs, suspect)
    shown, potions = role if reveals(turn, role) else None, (memory.saved, memory.poisoned)
    return speak(turn, shown, beliefs, suspect, beliefs.seer, potions)


def _check(turn: Turn) -> Action:
    # The seer knows that other claims to be the seer are false.
    memory = turn.memory
    known = memory.found.keys() | memory.claims.keys()
    for planned in memory.plan:
        if planned in turn.request.targets and planned not in known:
            return Action(planned)
    return Action(form_beliefs(turn).most_suspected([seat for seat in turn.request.targets if seat not in known]))


def _use_potion(turn: Turn) -> Action:
    request = turn.request
    beliefs = form_beliefs(turn)
    save_rate = FIRST_NIGHT_SAVE_RATE if turn.memory.deck[Role.GUARD] else UNGUARDED_SAVE_RATE
    if Option.SAVE in request.options and (
        request.subject in _precious(turn, beliefs) or (request.day == 1 and turn.resolves("save", save_rate))
    ):
        return Action(Option.SAVE)
    if request.day == 1:
        return Action(None)  # there is no evidence yet
    # Between equally credible claims the witch waits one night for evidence; she may be killed if she waits longer.
    between_claims = beliefs.seer is not None and not beliefs.clear
    level = CONFIDENT if between_claims else POISONS_AT
    targets = [seat for seat in request.targets if seat != request.subject]  # tonight's victim dies, most likely
    return Action(beliefs.most_suspected(targets, at_least=level if request.day == 2 else LATE_POISONS_AT))


def _guard(turn: Turn) -> Action:
    # The witch mostly saves in the first night, and a victim that is guarded and saved at once dies.
    wanted = _precious(turn, form_beliefs(turn)) if turn.request.day > 1 else ()
    return Action(next((seat for seat in wanted if seat in turn.request.targets), None))


def _precious(turn: Turn, beliefs: Beliefs) -> list[int]:
    """Seats to protect, the most important first: the trusted seer, the sheriff, itself."""
    sheriff = turn.observation.sheriff
    trusts_sheriff = sheriff is not None and beliefs.suspicion.get(sheriff, 0.0) < BEYOND_CHANCE
    wanted = (beliefs.seer, sheriff if trusts_sheriff else None, turn.me)
    return [seat for seat in wanted if seat is not None]


def runs(turn: Turn, role: Role) -> bool:
    """Whether a seat with ``role`` runs for sheriff."""
    return turn.resolves("run", CARDS[role].runs)


def withdraws(turn: Turn) -> bool:
    """Whether a candidate that reveals no role withdraws."""
    return bool(turn.memory.claims) and turn.resolves("withdraw", WITHDRAWAL_RATE)


def _elect(turn: Turn) -> Action:
    beliefs = form_beliefs(turn)
    if beliefs.seer in turn.request.targets:
        return Action(beliefs.seer)
    return Action(beliefs.most_trusted(turn.request.targets))


def _vote(turn: Turn) -> Action:
    beliefs = form_beliefs(turn)
    request = turn.request
    found = turn.memory.found
    eligible = [seat for seat in request.targets if found.get(seat) is not Side.GOOD]
    if not eligible:  # the seer has cleared all targets
        return Action(None if request.may_pass else turn.chance.choice(request.targets))
    suspect = turn.own_rally or beliefs.most_suspected(eligible)
    undecided = beliefs.suspicion[suspect] < BEYOND_CHANCE
    if request.may_pass and undecided and not turn.own_rally and turn.resolves_today("abstain", ABSTENTION_RATE):
        return Action(None)
    return Action(suspect)


def _pass_badge(turn: Turn) -> Action:
    memory, targets = turn.memory, turn.request.targets
    trusted = form_beliefs(turn).most_trusted(targets, at_most=TRUSTED)
    first = memory.plan[0] if memory.plan else None
    if memory.night_deaths.get(turn.me, (0, 0))[0] != turn.request.day or first not in memory.found:
        return Action(trusted)
    # A seer killed by night has no last words, so its badge reports the first planned check.
    if memory.found[first] is Side.GOOD and first in targets:
        return Action(first)
    return Action(None if trusted == first else trusted)
