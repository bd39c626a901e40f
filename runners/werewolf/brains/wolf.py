"""How the wolves play: one may pose as the seer, all agree on a victim by night, and they hunt the seer first.

``WOLF_ANSWERS`` has one function for each decision that a wolf may be asked, the wolf king included.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Option, Phase, Role, Side
from runners.werewolf.prompts_zh import talk

POSE_RATE, LONE_POSE_RATE = 0.45, 0.1
"""How likely the wolves send one of them to pose as the seer (悍跳), and how likely a wolf without mates does."""
COUNTERCLAIM_RATE = 0.8
"""How likely a wolf that a seer named poses as the seer, while no other wolf does."""
RUN_RATE, WITHDRAWAL_RATE = 0.12, 0.7
"""How likely a wolf that does not pose runs for sheriff all the same, and withdraws again."""
FRAME_RATE = 0.55
"""How likely a made-up check finds a wolf."""
BUS_RATE = 0.3
"""How likely a wolf turns on a mate that a seer named, on one day."""
HIDE_RATE = 0.5
"""How likely a wolf is prudent enough not to stand against a seer that no wolf disputes."""
EXPLOSION_RATE = 0.35
"""How likely a wolf that a seer named explodes, on one day."""
SWALLOW_RATE = 0.3
"""How likely a wolf explodes to keep the badge from a seer, in an election that was put off."""


def _talk_by_night(turn: Turn) -> Action:
    memory = turn.memory
    prey = _prey(turn)
    words = []
    if prey is not None:
        sentences = talk.AGREEMENTS if prey in memory.proposals.values() else talk.PROPOSALS
        words.append(turn.say(sentences, prey))
    opens_the_first_talk = turn.request.day == 1 and not memory.proposals
    if opens_the_first_talk and turn.resolves("send a poser", POSE_RATE):
        words.append(talk.plan_posing(turn.chance.choice(sorted(memory.team))))
    return Action(prey, talk.fit_together(words, turn.request.speech_chars))


def _hunt(turn: Turn) -> Action:
    return Action(_prey(turn))


def _shoot(turn: Turn) -> Action:
    return Action(turn.pick(*_tiers(turn, turn.request.targets)))


def _sign_up(turn: Turn) -> Action:
    runs = _poses(turn) or turn.resolves("run", RUN_RATE)
    return Action(Option.RUN if runs else None)


def _campaign(turn: Turn) -> Action:
    if _explodes(turn):
        return Action(Option.EXPLODE)
    if not _poses(turn) and turn.resolves("withdraw", WITHDRAWAL_RATE):
        words = [talk.CLAIM_GOOD, turn.say(talk.WITHDRAWALS)]
        return Action(Option.WITHDRAW, talk.fit_together(words, turn.request.speech_chars))
    return _speak(turn)


def _explode_or_wait(turn: Turn) -> Action:
    return Action(Option.EXPLODE if _explodes(turn) else None)


def _elect(turn: Turn) -> Action:
    if _explodes(turn):
        return Action(Option.EXPLODE)
    mates, others = _split(turn, turn.request.targets)
    posing = [seat for seat in mates if seat in turn.memory.claims]
    harmless = [seat for seat in others if seat not in turn.memory.claims]
    wanted = turn.pick(posing, mates, harmless, () if turn.request.may_pass else others)
    return Action(wanted)


def _speak(turn: Turn) -> Action:
    return Action(Option.EXPLODE) if _explodes(turn) else _speech(turn, rally=None)


def _say_last_words(turn: Turn) -> Action:
    return _speech(turn, rally=None)


def _close(turn: Turn) -> Action:
    return Action(Option.EXPLODE) if _explodes(turn) else _speech(turn, rally=_suspect(turn, turn.request.targets))


def _vote(turn: Turn) -> Action:
    if _explodes(turn):
        return Action(Option.EXPLODE)
    mates, _ = _split(turn, turn.request.targets)
    wanted = _suspect(turn, turn.request.targets)
    return Action(turn.pick(mates) if wanted is None and not turn.request.may_pass else wanted)


def _pass_badge(turn: Turn) -> Action:
    mates, _ = _split(turn, turn.request.targets)
    named = _named_by_seers(turn)
    return Action(turn.pick([seat for seat in mates if seat not in named], mates))


def _choose_order(turn: Turn) -> Action:
    return Action(turn.chance.choice(turn.request.options))


def _split(turn: Turn, seats: Collection[int]) -> tuple[list[int], list[int]]:
    """(mates, others) among ``seats``."""
    return (
        [seat for seat in seats if seat in turn.memory.team and seat != turn.me],
        [seat for seat in seats if seat not in turn.memory.team and seat != turn.me],
    )


def _seers(turn: Turn) -> list[int]:
    """Seats that claim to be the seer and are no wolves: one of them, if any, is the seer."""
    return [seat for seat in turn.memory.claims if seat not in turn.memory.team]


def _named_by_seers(turn: Turn) -> set[int]:
    return {seat for seer in _seers(turn) for seat, side in turn.memory.claims[seer].items() if side is Side.WOLF}


def _tiers(turn: Turn, seats: Collection[int]) -> Iterable[Collection[int]]:
    """The good among ``seats``, those worth killing most first."""
    memory = turn.memory
    _, prey = _split(turn, seats)
    seers = _seers(turn)
    cleared = {seat for seer in seers for seat, side in memory.claims[seer].items() if side is Side.GOOD}
    wanted: tuple[Collection[int], ...] = (
        seers,
        [seat for seat, role in memory.gods.items() if role is Role.WITCH],
        (turn.observation.sheriff,),
        memory.gods,
        cleared | {seat for _, seat in memory.vouched},
    )
    return (*([seat for seat in prey if seat in tier] for tier in wanted), prey)


def _prey(turn: Turn) -> int | None:
    """The first victim proposed tonight, else the most dangerous."""
    _, prey = _split(turn, turn.request.targets)
    proposed = next((seat for seat in turn.memory.proposals.values() if seat in prey), None)
    return turn.pick(*_tiers(turn, prey)) if proposed is None else proposed


def _suspect(turn: Turn, seats: Collection[int]) -> int | None:
    """Whom among ``seats`` it wants exiled: a mate that cannot be saved, else one whom good seats may vote for too."""
    memory = turn.memory
    mates, prey = _split(turn, seats)
    named = _named_by_seers(turn)
    lost = [seat for seat in mates if seat in named]
    if lost and turn.me not in named and turn.resolves_today("bus", BUS_RATE):
        return turn.pick(lost)
    told = [reports for seat, reports in memory.claims.items() if seat in memory.team] + [memory.found]
    framed = [seat for seat in prey if any(reports.get(seat) is Side.WOLF for reports in told)]
    cleared = [seat for seat in prey if any(reports.get(seat) is Side.GOOD for reports in told)]
    seers = [seat for seat in prey if seat in _seers(turn)]
    others = [seat for seat in prey if seat not in seers and seat not in cleared]
    # While no wolf is named or poses, to stand against the seer would only show who the wolves are.
    at_odds = any(told) or not named.isdisjoint(memory.team)
    hides = not at_odds and turn.resolves("hide", HIDE_RATE)
    tiers = (others, seers) if hides else (framed, seers, others)
    return turn.pick(*map(turn.loudest, tiers), prey)


def _poses(turn: Turn) -> bool:
    """Whether it calls itself the seer: because it was sent, or, alone, on its own account, or because it was named."""
    memory = turn.memory
    if memory.reports:
        return True
    if memory.poser is not None or any(seat in memory.claims for seat in memory.team):
        return memory.poser == turn.me
    if len(memory.team) == 1 and turn.resolves("pose", LONE_POSE_RATE):
        return True
    return turn.me in _named_by_seers(turn) and turn.resolves("counterclaim", COUNTERCLAIM_RATE)


def _explodes(turn: Turn) -> bool:
    if Option.EXPLODE not in turn.request.options:
        return False
    if turn.me in _named_by_seers(turn) and turn.resolves_today("explode", EXPLOSION_RATE):
        return True
    # A vote for sheriff after the first day is one that was put off: another explosion swallows the badge.
    votes = turn.request.decision is Decision.SHERIFF_VOTE
    # Asked on its own, it is not told who runs.
    put_off = turn.request.day > 1 and (votes or turn.request.phase in (Phase.SHERIFF_VOTE, Phase.UNOPPOSED))
    seer_runs = any(seat in (turn.request.targets if votes else turn.others) for seat in _seers(turn))
    return put_off and seer_runs and turn.resolves_today("swallow", SWALLOW_RATE)


def _invent_checks(turn: Turn) -> None:
    """Add a made-up check for each night that its claim does not yet tell of."""
    memory = turn.memory
    told = {night for night, _, _ in memory.reports}
    for night in range(1, turn.request.day + 1):
        if night in told:
            continue
        mates, others = _split(turn, turn.others)
        fresh = [seat for seat in others if seat not in memory.found]
        rivals = [seat for seat in fresh if seat in memory.claims]
        if rivals and turn.me in _named_by_seers(turn):
            target, side = turn.pick(rivals), Side.WOLF
        elif turn.chance.random() < FRAME_RATE:
            target, side = turn.pick(fresh), Side.WOLF
        else:
            target, side = turn.pick([seat for seat in (*mates, *fresh) if seat not in memory.found]), Side.GOOD
        if target is not None:
            memory.reports.append((night, target, side))


def _speech(turn: Turn, rally: int | None) -> Action:
    words = []
    if _poses(turn):
        _invent_checks(turn)
        words.extend(talk.seer_report(turn.memory.reports))
    else:
        words.append(turn.chance.choice((talk.CLAIM_GOOD, talk.claim_role(Role.VILLAGER))))
    accused = rally if rally is not None else _suspect(turn, turn.others)
    if accused is not None:
        words.append(turn.accuse(accused) if rally is None else turn.say(talk.RALLIES, rally))
    if turn.memory.poser in turn.memory.claims:
        words.append(turn.say(talk.FOLLOWINGS, turn.memory.poser))
    words.append(talk.last_line(turn.chance, turn.request.decision))
    return Action(rally, talk.fit_together(words, turn.request.speech_chars))


WOLF_ANSWERS: Mapping[Decision, Callable[[Turn], Action]] = {
    Decision.WOLF_TALK: _talk_by_night,
    Decision.WOLF_KILL: _hunt,
    Decision.SIGN_UP: _sign_up,
    Decision.CAMPAIGN_SPEECH: _campaign,
    Decision.WITHDRAWAL: _explode_or_wait,
    Decision.EXPLOSION: _explode_or_wait,
    Decision.SHERIFF_VOTE: _elect,
    Decision.SHERIFF_PK_SPEECH: _speak,
    Decision.SHERIFF_PK_VOTE: _elect,
    Decision.SPEECH: _speak,
    Decision.CLOSING_SPEECH: _close,
    Decision.PK_SPEECH: _speak,
    Decision.LAST_WORDS: _say_last_words,
    Decision.EXILE_VOTE: _vote,
    Decision.PK_VOTE: _vote,
    Decision.SHOT: _shoot,
    Decision.BADGE: _pass_badge,
    Decision.SPEAKING_ORDER: _choose_order,
}
