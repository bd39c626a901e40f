"""How the good side plays: the seer reports, the others follow the seer that they believe, potions and shots wait.

``GOOD_ANSWERS`` has one function for each decision that a good seat may be asked.
"""

from collections.abc import Callable, Iterable, Mapping

from runners.werewolf.brains.beliefs import BEYOND_CHANCE, CONFIDENT, TRUSTED, Beliefs, form_beliefs
from runners.werewolf.brains.memory import HIDDEN_GODS
from runners.werewolf.brains.turn import REVEALING, Turn
from runners.werewolf.game import Action, Decision, Option, Role, Side
from runners.werewolf.prompts_zh import talk

RUN_RATES: Mapping[Role, float] = {Role.SEER: 1.0, Role.VILLAGER: 0.1, Role.HUNTER: 0.15, Role.WITCH: 0.05}
"""How likely each role runs for sheriff; roles without an entry never do."""
WITHDRAWAL_RATE = 0.9
"""How likely a candidate steps down for somebody who claimed to be the seer."""
ABSTENTION_RATE = 0.03
"""How likely a seat casts no vote while it has nothing to go by."""
REVEAL_RATE = 0.4
"""How likely the witch tells of her potions while she lives (银水)."""

ACCUSERS_BORNE = 2
"""How many accusers in one day make one of the 神职 show its role."""


def _check(turn: Turn) -> Action:
    # Whoever else claims to be the seer is no riddle to it.
    known = turn.memory.found.keys() | turn.memory.claims.keys()
    return Action(form_beliefs(turn).most_suspected([seat for seat in turn.request.targets if seat not in known]))


def _use_potion(turn: Turn) -> Action:
    request = turn.request
    beliefs = form_beliefs(turn)
    if Option.SAVE in request.options and (request.day == 1 or request.subject in _precious(turn, beliefs)):
        return Action(Option.SAVE)
    # Between claims that are as good as each other it is too early to kill for one of them.
    may_poison = [seat for seat in request.targets if beliefs.clear or beliefs.seer is None]
    return Action(beliefs.most_suspected(may_poison, at_least=CONFIDENT))


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
    runs = turn.resolves("run", RUN_RATES.get(turn.observation.role, 0.0))
    return Action(Option.RUN if runs else None)


def _campaign(turn: Turn) -> Action:
    if turn.observation.role is Role.SEER:
        return _speak(turn)
    if _withdraws(turn):
        words = [talk.CLAIM_GOOD, turn.say(talk.WITHDRAWALS)]
        return Action(Option.WITHDRAW, talk.fit_together(words, turn.request.speech_chars))
    words = [talk.CLAIM_GOOD, turn.say(talk.CAMPAIGN_LINES)]
    return Action(None, talk.fit_together(words, turn.request.speech_chars))


def _withdraws(turn: Turn) -> bool:
    is_seer = turn.observation.role is Role.SEER
    return not is_seer and bool(turn.memory.claims) and turn.resolves("withdraw", WITHDRAWAL_RATE)


def _withdraw(turn: Turn) -> Action:
    return Action(Option.WITHDRAW if _withdraws(turn) else None)


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
    return Action(form_beliefs(turn).most_suspected(turn.request.targets, at_least=BEYOND_CHANCE))


def _pass_badge(turn: Turn) -> Action:
    return Action(form_beliefs(turn).most_trusted(turn.request.targets, at_most=TRUSTED))


def _choose_order(turn: Turn) -> Action:
    return Action(turn.chance.choice(turn.request.options))


def _speak(turn: Turn) -> Action:
    return _speech(turn, form_beliefs(turn), rally=None)


def _close(turn: Turn) -> Action:
    beliefs = form_beliefs(turn)
    found = turn.memory.found
    suspect = beliefs.most_suspected([seat for seat in turn.request.targets if found.get(seat) is not Side.GOOD])
    return _speech(turn, beliefs, rally=suspect)


def _speech(turn: Turn, beliefs: Beliefs, rally: int | None) -> Action:
    """What it is, what it did, whom it follows, whom it suspects; with ``rally``, whom the sheriff wants exiled."""
    words = list(_introduce(turn, beliefs))
    if rally is not None:
        words.append(turn.say(talk.RALLIES, rally))
    if beliefs.seer is not None:
        words.append(turn.say(talk.FOLLOWINGS, beliefs.seer))
    elif turn.observation.role is not Role.SEER:
        words.append(turn.say(talk.CALLS_FOR_SEER))
    if rally is None:
        words.append(_accuse(turn, beliefs))
    words.append(talk.last_line(turn.chance, turn.request.decision))
    return Action(rally, talk.fit_together(words, turn.request.speech_chars))


def _introduce(turn: Turn, beliefs: Beliefs) -> Iterable[str]:
    role, memory = turn.observation.role, turn.memory
    if role is Role.SEER:
        yield from talk.seer_report(memory.reports)
        unchecked = sorted(turn.others, key=beliefs.suspicion.__getitem__, reverse=True)
        next_checks = [seat for seat in unchecked if seat not in memory.found and seat not in memory.claims][:2]
        if next_checks and _badge_matters(turn):
            yield talk.name_next_checks(next_checks)
    elif role is Role.VILLAGER:
        # Were it to say so always, whoever does not would be one of the 神职.
        yield turn.chance.choice((talk.claim_role(role), talk.CLAIM_GOOD))
    elif role in HIDDEN_GODS and _reveals(turn):
        yield talk.claim_role(role)
        if memory.saved is not None:
            yield talk.report_saving(memory.saved)
        if memory.poisoned is not None:
            yield talk.report_poisoning(memory.poisoned)
    else:
        yield talk.CLAIM_GOOD


def _badge_matters(turn: Turn) -> bool:
    campaigns = turn.request.decision in (Decision.CAMPAIGN_SPEECH, Decision.SHERIFF_PK_SPEECH)
    return campaigns or turn.observation.sheriff == turn.me


def _reveals(turn: Turn) -> bool:
    if turn.request.decision in REVEALING:
        return True
    if len({accuser for accuser, accused in turn.memory.accusations if accused == turn.me}) >= ACCUSERS_BORNE:
        return True
    used_potions = turn.memory.saved is not None or turn.memory.poisoned is not None
    return used_potions and turn.request.day > 1 and turn.resolves("reveal", REVEAL_RATE)


def _accuse(turn: Turn, beliefs: Beliefs) -> str:
    found = turn.memory.found
    suspect = beliefs.most_suspected([seat for seat in turn.others if found.get(seat) is not Side.GOOD])
    return "" if suspect is None else turn.accuse(suspect)


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
