"""How the good side plays: the seer reports, the others follow the seer that they believe, potions and shots wait.

``GOOD_ANSWERS`` has one function for each decision that a good seat may be asked.
"""

from collections.abc import Callable, Mapping

from runners.werewolf.brains.beliefs import BEYOND_CHANCE, CONFIDENT, TRUSTED, Beliefs, form_beliefs
from runners.werewolf.brains.speech import (
    Stance,
    plan_checks,
    reveals,
    speak,
    speak_as_candidate,
    stance_as,
)
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Option, Role, Side

RUN_RATES: Mapping[Role, float] = {Role.SEER: 1.0, Role.VILLAGER: 0.1, Role.HUNTER: 0.15, Role.WITCH: 0.05}
"""How likely each role runs for sheriff; roles without an entry never do."""
WITHDRAWAL_RATE = 0.9
"""How likely a candidate steps down for somebody who claimed to be the seer."""
ABSTENTION_RATE = 0.03
"""How likely a seat casts no vote while it has nothing to go by."""
POISONS_AT = 1.0
"""From which suspicion on the witch poisons where claims do not stand against each other."""
LATE_POISONS_AT = 0.0
SHOOTS_AT = 1.0
"""From which suspicion on the hunter shoots, who has nothing to lose."""
FIRST_NIGHT_SAVE_RATE, UNGUARDED_SAVE_RATE = 0.9, 0.4
"""How likely the witch saves the first night's victim, who may be a wolf that hopes for it; the second where no guard
is dealt, so that the seer has nobody else to protect it later."""


def _check(turn: Turn) -> Action:
    # Whoever else claims to be the seer is no riddle to it.
    memory = turn.memory
    known = memory.found.keys() | memory.claims.keys()
    planned = memory.plan[0] if memory.plan else None
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
        return Action(None)  # nothing was said yet
    # Between claims that are as good as each other she waits for better, but not for long: she may be killed herself.
    between_claims = beliefs.seer is not None and not beliefs.clear
    level = CONFIDENT if between_claims else POISONS_AT
    return Action(beliefs.most_suspected(request.targets, at_least=level if request.day == 2 else LATE_POISONS_AT))


def _guard(turn: Turn) -> Action:
    # The witch saves in the first night, and guarded and saved at once is death.
    wanted = _precious(turn, form_beliefs(turn)) if turn.request.day > 1 else ()
    return Action(next((seat for seat in wanted if seat in turn.request.targets), None))


def _precious(turn: Turn, beliefs: Beliefs) -> list[int]:
    """Whom to keep alive, the most important first: the seer that it believes, the sheriff, itself."""
    sheriff = turn.observation.sheriff
    trusts_sheriff = sheriff is not None and beliefs.suspicion.get(sheriff, 0.0) < BEYOND_CHANCE
    wanted = (beliefs.seer, sheriff if trusts_sheriff else None, turn.me)
    return [seat for seat in wanted if seat is not None]


def _sign_up(turn: Turn) -> Action:
    return Action(Option.RUN if runs(turn, turn.observation.role) else None)


def runs(turn: Turn, role: Role) -> bool:
    """Whether a seat with ``role`` runs for sheriff."""
    return turn.resolves("run", RUN_RATES.get(role, 0.0))


def _campaign(turn: Turn) -> Action:
    return _speak(turn) if turn.observation.role is Role.SEER else speak_as_candidate(turn, withdraws(turn))


def withdraws(turn: Turn) -> bool:
    """Whether a candidate that shows no role steps down."""
    return bool(turn.memory.claims) and turn.resolves("withdraw", WITHDRAWAL_RATE)


def _withdraw(turn: Turn) -> Action:
    return Action(Option.WITHDRAW if turn.observation.role is not Role.SEER and withdraws(turn) else None)


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
    if not eligible:  # Only seats that it cleared itself are to choose from.
        return Action(None if request.may_pass else turn.chance.choice(request.targets))
    suspect = beliefs.most_suspected(eligible)
    undecided = beliefs.suspicion[suspect] < BEYOND_CHANCE
    if request.may_pass and undecided and turn.resolves_today("abstain", ABSTENTION_RATE):
        return Action(None)
    return Action(suspect)


def _shoot(turn: Turn) -> Action:
    return Action(form_beliefs(turn).most_suspected(turn.request.targets, at_least=SHOOTS_AT))


def _pass_badge(turn: Turn) -> Action:
    memory, targets = turn.memory, turn.request.targets
    trusted = form_beliefs(turn).most_trusted(targets, at_most=TRUSTED)
    first = memory.plan[0] if memory.plan else None
    if memory.night_deaths.get(turn.me, (0, 0))[0] != turn.request.day or first not in memory.found:
        return Action(trusted)
    # Killed by night, it has no last words: the badge tells what it found of the first that it wanted to check.
    if memory.found[first] is Side.GOOD and first in targets:
        return Action(first)
    return Action(None if trusted == first else trusted)


def _choose_order(turn: Turn) -> Action:
    return Action(turn.chance.choice(turn.request.options))


def _speak(turn: Turn) -> Action:
    beliefs = form_beliefs(turn)
    return speak(turn, _stance(turn, beliefs, _suspect(turn, beliefs)))


def _close(turn: Turn) -> Action:
    beliefs = form_beliefs(turn)
    suspect = _suspect(turn, beliefs)
    return speak(turn, _stance(turn, beliefs, suspect), rally=suspect)


def _suspect(turn: Turn, beliefs: Beliefs) -> int | None:
    found = turn.memory.found
    return beliefs.most_suspected([seat for seat in turn.others if found.get(seat) is not Side.GOOD])


def _stance(turn: Turn, beliefs: Beliefs, suspect: int | None) -> Stance:
    role, memory = turn.observation.role, turn.memory
    if role is Role.SEER:
        plan_checks(turn, beliefs)
    shown = role if reveals(turn, role) else None
    return stance_as(turn, shown, beliefs, suspect, beliefs.seer, memory.saved, memory.poisoned)


GOOD_ANSWERS: Mapping[Decision, Callable[[Turn], Action]] = {
    Decision.SEER_CHECK: _check,
    Decision.WITCH: _use_potion,
    Decision.GUARD: _guard,
    Decision.SIGN_UP: _sign_up,
    Decision.CAMPAIGN_SPEECH: _campaign,
    Decision.WITHDRAWAL: _withdraw,
    Decision.SHERIFF_VOTE: _elect,
    Decision.SHERIFF_PK_SPEECH: _speak,
    Decision.SHERIFF_PK_VOTE: _elect,
    Decision.SPEECH: _speak,
    Decision.CLOSING_SPEECH: _close,
    Decision.PK_SPEECH: _speak,
    Decision.LAST_WORDS: _speak,
    Decision.EXILE_VOTE: _vote,
    Decision.PK_VOTE: _vote,
    Decision.SHOT: _shoot,
    Decision.BADGE: _pass_badge,
    Decision.SPEAKING_ORDER: _choose_order,
}
