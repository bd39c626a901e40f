"""The wolves' play: one may claim to be the seer, all agree on a victim by night, preferably the seer."""

from collections.abc import Collection, Iterable

from runners.werewolf.brains.beliefs import Beliefs, form_beliefs
from runners.werewolf.brains.good import runs, withdraws
from runners.werewolf.brains.speech import candidates, plan_checks, reveals, speak, speak_as_candidate
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Option, Phase, Role, Side
from runners.werewolf.game.roles import CARDS
from runners.werewolf.language import saying

POSE_RATE, PACK_POSE_RATE, LONE_POSE_RATE = 0.65, 0.9, 0.12
"""Probability that a wolf is sent to pose as the seer (悍跳): of two or three wolves, of more, of one."""
PACK = 4
COUNTERCLAIM_RATE = 0.9
"""Probability that a wolf that a seer reported poses as the seer, if no other wolf does."""
FRAME_RATE = 0.5
"""Probability that a made-up check finds a wolf."""
BUS_RATE = 0.3
"""Probability per day that a wolf accuses a mate that a seer reported."""
BACK_RATE = 0.4
"""Probability that a wolf follows a mate that poses; otherwise it plays nearly as a good seat (倒钩)."""
HUNT_RATE = 0.5
"""Probability per night that the wolves attack the seer or another known 神职, whom guard and witch protect first."""
SELF_KNIFE_RATE = 0.12
"""Probability that the wolves attack one of their own in the first night, for the witch to save (自刀)."""
HIDE_RATE = 0.95
"""Probability that a wolf does not oppose a seer that no wolf disputes."""
FRAMED, SEER_AT_ODDS, SPARED = 7.0, 4.0, 4.0
"""Scores of exile targets: a seat that a posing wolf reported, the seer; deducted for a seat that one cleared."""
EXPLOSION_RATE = 0.35
"""Probability per day that a wolf that a seer reported explodes."""
SWALLOW_RATE = 0.3
"""Probability that a wolf explodes to keep the badge from a seer, in an election that was put off."""


def answer(turn: Turn) -> Action:
    """A wolf's answers, wolf kings included."""
    request = turn.request
    if _explodes(turn):
        return Action(Option.EXPLODE)
    match request.decision:
        case Decision.WOLF_TALK:
            return _talk_by_night(turn)
        case Decision.WOLF_KILL:
            return Action(_prey(turn))
        case Decision.SIGN_UP:
            return Action(Option.RUN if _poses(turn) or runs(turn, _cover(turn)) else None)
        case Decision.CAMPAIGN_SPEECH if not _poses(turn):
            return speak_as_candidate(turn, withdraws(turn))
        case Decision.WITHDRAWAL | Decision.EXPLOSION:
            return Action(None)
        case Decision.SHERIFF_VOTE | Decision.SHERIFF_PK_VOTE:
            return _elect(turn)
        case Decision.EXILE_VOTE | Decision.PK_VOTE:
            return _vote(turn)
        case Decision.SHOT | Decision.TAKE:
            return Action(turn.pick(*_tiers(turn, request.targets)))
        case Decision.BADGE:
            mates, _ = _split(turn, request.targets)
            named = _named_by_seers(turn)
            return Action(turn.pick([seat for seat in mates if seat not in named], mates))
        case Decision.SPEAKING_ORDER:
            return Action(turn.chance.choice(request.options))
    return _speech(turn)


def _talk_by_night(turn: Turn) -> Action:
    memory = turn.memory
    opens_the_first_talk = turn.request.day == 1 and not memory.proposals
    poser = None
    pose_rate = PACK_POSE_RATE if len(memory.team) >= PACK else POSE_RATE
    if opens_the_first_talk and memory.deck[Role.SEER] and turn.resolves("send a poser", pose_rate):
        poser = turn.chance.choice(sorted(memory.team))
    prey = _prey(turn)
    sentences = saying.AGREEMENTS if prey in memory.proposals.values() else saying.PROPOSALS
    mates = [seat for seat in turn.request.targets if seat in memory.team]
    if opens_the_first_talk and mates and memory.deck[Role.WITCH] and turn.resolves("self-knife", SELF_KNIFE_RATE):
        prey, sentences = poser or turn.chance.choice(mates), saying.SELF_PROPOSALS
    words = [] if prey is None else [turn.say(sentences, prey=prey)]
    if poser is not None:
        words.append(turn.say(saying.POSING_PLANS, poser=poser))
    return turn.speech(words, prey)


def _elect(turn: Turn) -> Action:
    mates, others = _split(turn, turn.request.targets)
    posing = [seat for seat in mates if seat in turn.memory.claims]
    believed = _pretend(turn).seer
    if posing and not _backs(turn) and believed in others:
        return Action(believed)
    harmless = [seat for seat in others if seat not in turn.memory.claims]
    return Action(turn.pick(posing, mates, harmless, () if turn.request.may_pass else others))


def _vote(turn: Turn) -> Action:
    mates, _ = _split(turn, turn.request.targets)
    wanted = turn.own_rally or _suspect(turn, turn.request.targets, _pretend(turn))
    return Action(turn.pick(mates) if wanted is None and not turn.request.may_pass else wanted)


def _split(turn: Turn, seats: Collection[int]) -> tuple[list[int], list[int]]:
    """(mates, others) among ``seats``."""
    team = turn.memory.team
    return [seat for seat in seats if seat in team - {turn.me}], [seat for seat in seats if seat not in team]


def _seers(turn: Turn) -> list[int]:
    """Seats outside the team that claim to be the seer."""
    return [seat for seat in turn.memory.claims if seat not in turn.memory.team]


def _named_by_seers(turn: Turn) -> set[int]:
    return {seat for seer in _seers(turn) for seat, side in turn.memory.claims[seer].items() if side is Side.WOLF}


def _tiers(turn: Turn, seats: Collection[int]) -> Iterable[Collection[int]]:
    """The good among ``seats``, the most valuable victims first."""
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
    """The first victim proposed tonight; without one, the most dangerous or any good seat."""
    _, prey = _split(turn, turn.request.targets)
    if turn.request.day == 1:  # only in the first night is the witch sure to have the antidote for a mate
        prey = turn.request.targets if turn.memory.proposals else prey
    proposed = next((seat for seat in turn.memory.proposals.values() if seat in prey), None)
    if proposed is not None:
        return proposed
    if turn.resolves_today("hunt", HUNT_RATE):
        return turn.pick(*_tiers(turn, prey))
    return turn.pick(_split(turn, prey)[1])


def _suspect(turn: Turn, seats: Collection[int], beliefs: Beliefs) -> int | None:
    """Its exile target among ``seats``: a mate that is lost anyway, or a seat that good players may vote for, too.

    beliefs: those that it pretends to have.
    """
    memory = turn.memory
    mates, prey = _split(turn, seats)
    named = _named_by_seers(turn)
    lost = [seat for seat in mates if seat in named]
    if lost and turn.me not in named and turn.resolves_today("bus", BUS_RATE):
        return turn.pick(lost)
    invented = [reports for seat, reports in memory.claims.items() if seat in memory.team] + [memory.found]
    framed = {seat for reports in invented for seat, side in reports.items() if side is Side.WOLF}
    cleared = {seat for reports in invented for seat, side in reports.items() if side is Side.GOOD}
    seers = _seers(turn)
    # Until a wolf is reported or poses, opposition to the seer would only reveal the wolves.
    at_odds = any(invented) or not named.isdisjoint(memory.team)
    posing = any(seat in memory.claims for seat in memory.team)
    hides = not _backs(turn) if posing and not _poses(turn) else not at_odds and turn.resolves("hide", HIDE_RATE)

    def score(seat: int) -> float:
        if seat in framed and not hides:
            return FRAMED + turn.hunch(seat)
        if seat in seers:
            return beliefs.suspicion[seat] if hides else SEER_AT_ODDS + turn.hunch(seat)
        return beliefs.suspicion[seat] - (SPARED if seat in cleared else 0.0)

    return max(prey, key=score, default=None)


def _pretend(turn: Turn) -> Beliefs:
    return form_beliefs(turn, Role.SEER if _poses(turn) else _cover(turn))


def _cover(turn: Turn) -> Role:
    """The good role that it pretends to have: drawn from the deck's cards, villager if another seat claims it."""
    memory = turn.memory
    if memory.cover is None:
        roles = [role for role in sorted(memory.deck.elements()) if role.side is Side.GOOD and role is not Role.SEER]
        memory.cover = turn.chance.choice(roles)
    taken = any(role is memory.cover and seat != turn.me for seat, role in memory.gods.items())
    return Role.VILLAGER if taken and memory.shown is not memory.cover and memory.deck[Role.VILLAGER] else memory.cover


def _poses(turn: Turn) -> bool:
    """Whether it claims to be the seer: sent by the team, as the only wolf, or after a seer reported it."""
    memory = turn.memory
    if memory.reports:
        return True
    if not memory.deck[Role.SEER]:
        return False
    if memory.poser is not None or any(seat in memory.claims for seat in memory.team):
        return memory.poser == turn.me
    if len(memory.team) == 1 and turn.resolves("pose", LONE_POSE_RATE):
        return True
    return turn.me in _named_by_seers(turn) and turn.resolves("counterclaim", COUNTERCLAIM_RATE)


def _explodes(turn: Turn) -> bool:
    request = turn.request
    if Option.EXPLODE not in request.options:
        return False
    if turn.memory.team.isdisjoint(turn.others):
        return False  # with the last wolf its side loses
    if request.phase is Phase.UNOPPOSED and request.subject in turn.memory.team:
        return False  # it would swallow the badge of its own side
    if turn.me in _named_by_seers(turn) and turn.resolves_today("explode", EXPLOSION_RATE):
        return True
    rate = CARDS[turn.observation.role].explodes_at_seer
    if rate and any(seat in turn.others for seat in _seers(turn)) and turn.resolves_today("take", rate):
        return True
    # A vote for sheriff after the first day has been put off once: another explosion swallows the badge.
    votes = request.decision is Decision.SHERIFF_VOTE
    # A separate request for an explosion does not list the candidates.
    put_off = request.day > 1 and (votes or request.phase in (Phase.SHERIFF_VOTE, Phase.UNOPPOSED))
    seer_runs = any(seat in (request.targets if votes else turn.others) for seat in _seers(turn))
    return put_off and seer_runs and turn.resolves_today("swallow", SWALLOW_RATE)


def _invent_checks(turn: Turn) -> None:
    """Add a made-up check for each night without one."""
    memory = turn.memory
    reported = {night for night, _, _ in memory.reports}
    for night in range(1, turn.request.day + 1):
        if night in reported:
            continue
        mates, others = _split(turn, turn.others)
        fresh = [seat for seat in others if seat not in memory.found]
        planned = [seat for seat in memory.plan if seat in turn.others and seat not in memory.found]
        rivals = [seat for seat in fresh if seat in memory.claims]
        if rivals and turn.me in _named_by_seers(turn):
            target, side = turn.pick(rivals), Side.WOLF
        elif planned:
            target = planned[0]
            frames = target in fresh and turn.chance.random() < FRAME_RATE
            side = Side.WOLF if frames else Side.GOOD
        elif turn.chance.random() < FRAME_RATE:
            target, side = turn.pick(fresh), Side.WOLF
        else:
            target, side = turn.pick([seat for seat in (*mates, *fresh) if seat not in memory.found]), Side.GOOD
        if target is not None:
            memory.reports.append((night, target, side))


def _speech(turn: Turn) -> Action:
    memory, poses = turn.memory, _poses(turn)
    if poses:
        _invent_checks(turn)
    beliefs = _pretend(turn)
    suspect = _suspect(turn, candidates(turn), beliefs)
    if poses:
        plan_checks(turn, beliefs, suspect)
    role = Role.SEER if poses else _cover(turn)
    shown = role if reveals(turn, role) else None
    posing, _ = _split(turn, memory.claims)
    followed = posing[0] if posing and _backs(turn) else beliefs.seer
    # A wolf that poses as the witch claims to have saved a mate, unless the first night had a victim.
    mates, _ = _split(turn, turn.others)
    first_dead = any(day == 1 for day, _ in memory.night_deaths.values())
    return speak(turn, shown, beliefs, suspect, followed, (mates[0] if mates and not first_dead else None, None))


def _backs(turn: Turn) -> bool:
    return turn.resolves("back the poser", BACK_RATE)
