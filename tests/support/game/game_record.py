"""A second referee, which replays the record of a game and knows nothing of the engine.

It reads the events alone, in their order, and holds them against the rules: written apart from the engine, so
that a misread rule has to be misread twice. It cannot see answers that leave no event, such as a shot not taken.
"""

from collections import Counter
from collections.abc import Collection

from runners.werewolf.game import BadgeLost, Event, EventKind, GameState, Option, Preset, Result, Role, Side, WinRule

UNDECIDED = -1
"""The wolves' victim before they chose; None is 空刀."""


def check_record(state: GameState) -> None:
    """Replay a finished game. AssertionError, naming the event, where the rules do not allow it."""
    referee = _Replay(state.preset, state.roles)
    for number, event in enumerate(state.events):
        assert referee.result is None, "an event after the end"
        try:
            referee.take(event)
        except AssertionError as error:
            raise AssertionError(f"event {number} of {state.preset.name}: {event}: {error}") from error
    found = (referee.result, referee.alive, referee.sheriff, referee.antidote, referee.poison)
    assert found == (state.result, state.living, state.sheriff, state.antidote, state.poison)


WOLVES = {Role.WOLF, Role.WOLF_KING, Role.WHITE_WOLF_KING}
GODS = {Role.SEER, Role.WITCH, Role.HUNTER, Role.GUARD, Role.IDIOT, Role.KNIGHT}


def who_has_won(preset: Preset, roles: tuple[Role, ...], alive: Collection[int]) -> Result | None:
    """The result with these seats alive; None while neither side has won. With both, the wolves have."""
    standing = Counter(roles[seat - 1] for seat in alive)
    wolves = sum(standing[role] for role in WOLVES)
    if preset.win_rule is WinRule.PARITY:
        wolves_win = wolves > 0 and 2 * wolves >= len(alive)
    else:
        wolves_win = any(kind & {*roles} and not kind & {*standing} for kind in (GODS, {Role.VILLAGER}))
    return Result.WOLF if wolves_win else None if wolves else Result.GOOD


def _expected_order(alive: set[int], total: int, start: int, rising: bool, sheriff: int) -> list[int]:
    """Seat by seat from ``start``'s neighbour, the sheriff last."""
    order, seat = [], start
    for _ in range(total):
        seat = seat % total + 1 if rising else (seat - 2) % total + 1
        if seat in alive and seat != sheriff:
            order.append(seat)
    return [*order, sheriff]


def _is_round_the_table(order: list[int]) -> bool:
    """Whether ``order`` starts anywhere and goes on in one direction without a jump."""
    start = order.index(min(order))
    turned = order[start:] + order[:start]
    return turned in (sorted(order), [min(order), *sorted(order, reverse=True)[:-1]])


class _Replay:
    """The public and the secret facts of a game so far, from its events; one method for each kind of event."""

    def __init__(self, preset: Preset, roles: tuple[Role, ...]) -> None:
        self.preset = preset
        self.roles = dict(enumerate(roles, 1))
        self.alive = set(self.roles)
        self.result: Result | None = None
        self.day = 0
        self.last: Event | None = None
        # Night
        self.victim: int | None = UNDECIDED
        self.guarded: int | None = None
        self.guarded_before: int | None = None
        self.seen_tonight: Counter[tuple[EventKind, int | None]] = Counter()
        self.talk: list[int | None] = []
        self.wolf_votes: dict[int, int | None] = {}
        self.poisoned: int | None = None
        self.saved = False
        self.antidote, self.poison = True, True
        self.hidden_deaths: set[int] = set()
        # Election
        self.election_open = preset.sheriff
        self.put_off = False
        self.ran: set[int] = set()
        self.withdrawn: set[int] = set()
        self.sheriff: int | None = None
        # Day
        self.by_day = False
        self.announced = False
        self.day_over = False
        self.exploded: set[int] = set()
        self.fought: set[int] = set()  # knights
        self.shown: set[int] = set()  # 白痴 that a vote spared
        self.owed_words: list[int] = []
        self.may_shoot: set[int] = set()
        self.order: list[int] = []
        self.spoke: list[int] = []  # since the last ballot or the start of the day
        self.ballot: dict[int, int | None] = {}
        self.ballots = 0  # counted in this election or exile vote
        self.leaders: list[int] | None = None  # of the last of them
        self.stage: list[int] = []

    def take(self, event: Event) -> None:
        """Check one event and learn from it."""
        assert event.day == max(self.day + (event.kind is EventKind.NIGHT_FALLS), 1), "wrong day"
        getattr(self, f"on_{event.kind.value}")(event)
        self.last = event

    # --- helpers ------------------------------------------------------------------------------------------------------

    def living_with(self, *roles: Role) -> set[int]:
        return {seat for seat in self.alive if self.roles[seat] in roles}

    @property
    def wolves(self) -> set[int]:
        return self.living_with(*WOLVES)

    @property
    def candidates(self) -> set[int]:
        return (self.ran - self.withdrawn) & self.alive

    def winner(self) -> Result | None:
        return who_has_won(self.preset, tuple(self.roles.values()), self.alive)

    def is_prey(self, target: int | None, may_pass: bool) -> bool:
        if target is None:
            return may_pass
        return target in self.alive and (self.preset.wolves_may_hit_wolves or target not in self.wolves)

    def bury(self, seat: int, may_shoot: bool = True) -> None:
        self.alive.remove(seat)
        if may_shoot and self.roles[seat] in (Role.HUNTER, Role.WOLF_KING):
            self.may_shoot.add(seat)

    def settled(self) -> bool:
        """Whether the dead have had what they are owed, as far as the record shows it."""
        return not self.owed_words and (self.sheriff is None or self.sheriff in self.alive)

    def clear_the_stage(self) -> None:
        self.stage, self.spoke, self.leaders, self.ballots = [], [], None, 0

    def once_tonight(self, event: Event) -> None:
        self.seen_tonight[event.kind, event.seat] += 1
        assert self.seen_tonight[event.kind, event.seat] == 1, "twice in one night"
        assert not self.by_day

    # --- start and night ----------------------------------------------------------------------------------------------

    def on_game_start(self, event: Event) -> None:
        assert self.last is None and event.data == {"seats": str(len(self.roles))}

    def on_role_dealt(self, event: Event) -> None:
        assert event.data == {"role": self.roles[event.seat]}

    def on_wolf_team(self, event: Event) -> None:
        assert set(event.seats) == self.wolves
        special = {self.roles[seat] for seat in self.wolves} - {Role.WOLF}
        named = {role: ",".join(map(str, sorted(self.living_with(role)))) for role in special}
        assert event.data == {"seats": event.data["seats"], **named}

    def on_night_falls(self, event: Event) -> None:
        assert self.day == 0 or (self.announced and self.day_over and self.settled()), "the day is not over"
        assert self.winner() is None, "the game is decided"
        self.day += 1
        assert self.day <= self.preset.round_limit
        self.guarded_before, self.guarded = self.guarded, None
        self.victim, self.poisoned, self.saved = UNDECIDED, None, False
        self.talk, self.wolf_votes, self.hidden_deaths = [], {}, set()
        self.seen_tonight.clear()
        self.may_shoot.clear()
        self.by_day = self.announced = self.day_over = False
        self.order = []
        self.clear_the_stage()

    def on_wolf_says(self, event: Event) -> None:
        assert event.seat in self.wolves and len(self.wolves) > 1 and self.victim == UNDECIDED
        assert self.is_prey(event.target, may_pass=True)
        wolves = len(self.wolves)
        new_round = bool(self.talk) and len(self.talk) % wolves == 0
        assert not (new_round and None not in self.talk and len({*self.talk[-wolves:]}) == 1), "agreed already"
        self.talk.append(event.target)
        self.seen_tonight[event.kind, event.seat] += 1
        assert self.seen_tonight[event.kind, event.seat] == -(-len(self.talk) // len(self.wolves)), "out of turn"
        assert self.seen_tonight[event.kind, event.seat] <= self.preset.wolf_talk_rounds

    def on_wolf_vote(self, event: Event) -> None:
        self.once_tonight(event)
        assert event.seat in self.wolves and self.is_prey(event.target, self.preset.wolves_may_pass)
        self.wolf_votes[event.seat] = event.target

    def on_wolf_target(self, event: Event) -> None:
        self.once_tonight(event)
        if self.wolf_votes:
            votes = Counter(self.wolf_votes.values())
            assert set(self.wolf_votes) == self.wolves and votes[event.target] == max(votes.values())
        else:
            assert event.target is not None and self.talk[-len(self.wolves) :] == [event.target] * len(self.wolves)
            assert len(self.talk) % len(self.wolves) == 0, "agreed in the middle of a round"
        self.victim = event.target

    def on_guarded(self, event: Event) -> None:
        self.once_tonight(event)
        assert {event.seat} == self.living_with(Role.GUARD)
        assert event.target is None or (event.target in self.alive and event.target != self.guarded_before)
        self.guarded = event.target

    def on_seer_result(self, event: Event) -> None:
        self.once_tonight(event)
        assert {event.seat} == self.living_with(Role.SEER) and event.target in self.alive - {event.seat}
        wolf = self.roles[event.target] in WOLVES
        assert event.data == {"side": Side.WOLF if wolf else Side.GOOD}

    def on_witch_told(self, event: Event) -> None:
        self.once_tonight(event)
        assert {event.seat} == self.living_with(Role.WITCH) and self.antidote and event.target == self.victim

    def on_antidote_used(self, event: Event) -> None:
        self.once_tonight(event)
        assert {event.seat} == self.living_with(Role.WITCH) and self.antidote and self.poisoned is None
        assert event.target is not None and event.target == self.victim
        assert event.target != event.seat or self.preset.witch_self_save
        self.antidote, self.saved = False, True

    def on_poison_used(self, event: Event) -> None:
        self.once_tonight(event)
        assert {event.seat} == self.living_with(Role.WITCH) and self.poison and not self.saved
        assert event.target in self.alive - {event.seat}
        self.poison, self.poisoned = False, event.target

    def on_shot_status(self, event: Event) -> None:
        self.once_tonight(event)
        assert event.data == {"may_shoot": "no" if event.seat == self.poisoned else "yes"}

    def on_day_breaks(self, event: Event) -> None:
        self.by_day = True
        assert self.victim != UNDECIDED, "the wolves did not choose"
        for kind, seats in (
            (EventKind.SHOT_STATUS, self.living_with(Role.HUNTER, Role.WOLF_KING)),
            (EventKind.GUARDED, self.living_with(Role.GUARD)),
            # She was told while she had the antidote: she has it now, or used it tonight.
            (EventKind.WITCH_TOLD, self.living_with(Role.WITCH) if self.antidote or self.saved else set()),
        ):
            assert {seat for told, seat in self.seen_tonight if told is kind} == seats, kind
        if self.victim is not None and (self.victim == self.guarded) == self.saved:
            self.hidden_deaths.add(self.victim)
        if self.poisoned is not None:
            self.hidden_deaths.add(self.poisoned)

    # --- election -----------------------------------------------------------------------------------------------------

    def on_signed_up(self, event: Event) -> None:
        assert self.election_open and self.day == 1 and self.last.kind is EventKind.DAY_BREAKS
        assert set(event.seats) <= self.alive and [*event.seats] == sorted(event.seats)
        self.ran = set(event.seats)

    def on_campaign_speech(self, event: Event) -> None:
        assert self.election_open and not self.put_off and self.leaders is None
        assert event.seat in self.ran and event.seat not in self.spoke
        self.spoke.append(event.seat)

    def on_withdrew(self, event: Event) -> None:
        assert self.election_open and not self.put_off and event.seat in self.candidates
        with_its_speech = self.last.kind is EventKind.CAMPAIGN_SPEECH and self.last.seat == event.seat
        # Or with others, once all have spoken, and before anybody votes.
        after_all = set(self.spoke) == self.ran and self.leaders is None and not self.ballot
        assert with_its_speech or after_all
        self.withdrawn.add(event.seat)

    def on_sheriff_vote(self, event: Event) -> None:
        assert self.election_open and event.seat not in self.ballot
        assert event.seat in (self.alive - set(self.stage) if self.stage else self.alive - self.ran)
        assert len(self.stage or self.candidates) > 1, "nothing to vote on"
        assert event.target in (self.stage or self.candidates) or (event.target is None and self.preset.may_abstain)
        assert self.put_off or set(self.spoke) == (set(self.stage) or self.ran), "somebody has not spoken"
        self.ballot[event.seat] = event.target

    def on_sheriff_pk_speech(self, event: Event) -> None:
        assert self.election_open and not self.put_off
        assert event.seat in self.stage and event.seat not in self.spoke
        self.spoke.append(event.seat)

    def on_sheriff_elected(self, event: Event) -> None:
        if self.leaders is None:
            assert self.candidates == {event.target} and (self.put_off or set(self.spoke) == self.ran)
        else:
            assert self.leaders == [event.target]
        assert self.election_open and self.sheriff is None
        self.sheriff, self.election_open = event.target, False

    def on_election_put_off(self, event: Event) -> None:
        assert self.election_open and self.last.kind is EventKind.EXPLODED and not self.put_off and self.day == 1
        self.put_off = True

    def on_badge_lost(self, event: Event) -> None:
        why = {
            BadgeLost.NOBODY_RUNS: not self.candidates and self.leaders is None,
            BadgeLost.NO_VOTERS: len(self.candidates) > 1 and not self.alive - self.ran,
            BadgeLost.NO_VOTES: self.leaders == [],
            BadgeLost.TIED_TWICE: len(self.leaders or ()) > 1 and self.ballots == 2,
            BadgeLost.SWALLOWED: self.last.kind is EventKind.EXPLODED and self.put_off and self.day == 2,
        }
        assert self.election_open and why[BadgeLost(event.data["reason"])]
        self.election_open = False

    # --- ballots ------------------------------------------------------------------------------------------------------

    def on_vote(self, event: Event) -> None:
        assert not self.election_open or self.put_off
        assert self.order and not self.day_over and event.seat not in self.ballot
        assert event.seat in self.alive - set(self.stage) - self.shown and event.target not in self.shown
        assert event.target in (set(self.stage) or self.alive - {event.seat}) or (
            event.target is None and self.preset.may_abstain
        )
        assert self.spoke == self.order if not self.stage else set(self.spoke) == set(self.stage), "not all have spoken"
        self.ballot[event.seat] = event.target

    def on_vote_count(self, event: Event) -> None:
        exile = self.last.kind is EventKind.VOTE
        voters = self.alive - (set(self.stage) if exile or self.stage else self.ran) - self.shown
        assert set(self.ballot) == voters, "not exactly the voters voted"
        counts: dict[int, float] = {}
        for voter, target in self.ballot.items():
            if target is not None:
                counts[target] = counts.get(target, 0) + (1.5 if exile and voter == self.sheriff else 1)
        written = {int(seat): float(count) for seat, count in self.pairs(event.data["count"])}
        assert written == counts
        ranks = [(-float(count), int(seat)) for seat, count in self.pairs(event.data["count"])]
        assert ranks == sorted(ranks), "not in order"
        self.leaders = sorted(seat for seat, count in counts.items() if count == max(counts.values()))
        self.ballot = {}
        self.ballots += 1
        assert self.ballots <= 2

    @staticmethod
    def pairs(text: str) -> list[list[str]]:
        return [entry.split(":") for entry in text.split(",") if entry]

    def on_vote_tied(self, event: Event) -> None:
        assert self.last.kind is EventKind.VOTE_COUNT
        assert len(self.leaders) > 1 and [*event.seats] == self.leaders
        if self.ballots == 1:
            self.stage, self.spoke = [*event.seats], []

    # --- day ----------------------------------------------------------------------------------------------------------

    def on_deaths_announced(self, event: Event) -> None:
        assert not self.announced and [*event.seats] == sorted(self.hidden_deaths)
        assert not self.election_open or self.last.kind is EventKind.ELECTION_PUT_OFF
        self.announced = True
        self.clear_the_stage()
        for seat in event.seats:
            if seat in self.exploded:
                continue
            self.bury(seat, may_shoot=seat != self.poisoned)
            if self.day == 1:
                self.owed_words.append(seat)

    def on_last_words(self, event: Event) -> None:
        assert event.seat == self.owed_words.pop(0), "no last words are owed, or not yet"
        assert self.winner() is None or self.may_shoot, "the game is decided"

    def on_shot(self, event: Event) -> None:
        assert event.seat in self.may_shoot and event.target in self.alive and not self.owed_words
        white = self.roles[event.seat] is Role.WHITE_WOLF_KING
        assert event.data == ({"exploded": "yes"} if white else {}) and white <= (event.seat in self.exploded)
        self.may_shoot.remove(event.seat)
        self.bury(event.target)

    def on_badge_passed(self, event: Event) -> None:
        self.on_badge_torn(event)
        assert event.target in self.alive
        self.sheriff = event.target

    def on_badge_torn(self, event: Event) -> None:
        assert event.seat == self.sheriff and self.sheriff not in self.alive and not self.owed_words
        assert self.announced and self.winner() is None
        self.sheriff = None

    def on_speaking_order(self, event: Event) -> None:
        assert self.announced and not self.day_over and not self.order and self.settled() and self.winner() is None
        self.may_shoot.clear()  # who has not shot by now did not want to
        self.order = [*event.seats]
        assert event.seat == self.sheriff and set(self.order) == self.alive
        if self.sheriff is None:
            assert event.data["way"] == "" and _is_round_the_table(self.order)
            return
        way = Option(event.data["way"])
        by_the_dead = way in (Option.DEAD_LEFT, Option.DEAD_RIGHT)
        assert by_the_dead is (len(self.hidden_deaths) == 1), "the wrong pair of orders"
        start = next(iter(self.hidden_deaths)) if by_the_dead else self.sheriff
        rising = way in (Option.DEAD_LEFT, Option.SHERIFF_LEFT)
        assert self.order == _expected_order(self.alive, len(self.roles), start, rising, self.sheriff)

    def on_speech(self, event: Event) -> None:
        self.spoke.append(event.seat)
        assert self.spoke == self.order[: len(self.spoke)] and event.seat != self.sheriff

    def on_closing_speech(self, event: Event) -> None:
        self.spoke.append(event.seat)
        assert self.spoke == self.order and event.seat == self.sheriff
        assert event.target is None or event.target in self.alive - {event.seat} - self.shown

    def on_duel(self, event: Event) -> None:
        assert self.order and self.spoke == self.order and not self.day_over and not self.ballots and not self.ballot
        assert {event.seat} == self.living_with(Role.KNIGHT) - self.fought and event.target in self.alive - {event.seat}
        wolf = self.roles[event.target] in WOLVES
        loser = event.target if wolf else event.seat
        assert event.data == {"role": Role.KNIGHT, "side": Side.WOLF if wolf else Side.GOOD, "dead": str(loser)}
        self.fought.add(event.seat)
        self.bury(loser, may_shoot=False)
        self.order = [seat for seat in self.order if seat in self.alive]
        self.spoke = [seat for seat in self.spoke if seat in self.alive]
        self.day_over = wolf

    def on_pk_speech(self, event: Event) -> None:
        assert event.seat in self.stage and event.seat not in self.spoke and not self.day_over
        self.spoke.append(event.seat)

    def on_exiled(self, event: Event) -> None:
        assert self.order and self.leaders == [event.target] and not self.day_over
        assert self.roles[event.target] is not Role.IDIOT
        self.bury(event.target)
        self.owed_words, self.day_over = [event.target], True

    def on_revealed(self, event: Event) -> None:
        assert self.order and self.leaders == [event.target] and not self.day_over
        assert self.roles[event.target] is Role.IDIOT and event.data == {"role": Role.IDIOT}
        self.shown.add(event.target)
        self.day_over = True

    def on_nobody_exiled(self, event: Event) -> None:
        assert self.order and not self.day_over
        if len(voters := self.alive - self.shown) > 1:
            assert self.leaders is not None and len(self.leaders) != 1
            assert not self.leaders or self.ballots == 2 or set(self.leaders) == voters, "no second ballot"
        else:
            assert self.leaders is None and self.spoke == self.order
        self.day_over = True

    def on_exploded(self, event: Event) -> None:
        role = self.roles[event.seat]
        allowed = role in (WOLVES if self.preset.wolf_king_may_explode else WOLVES - {Role.WOLF_KING})
        assert self.preset.wolves_may_explode and allowed and event.seat in self.alive
        assert self.by_day and not self.day_over and not self.ballot and not self.owed_words
        # From the first campaign speech until the badge is given away or lost, and from the discussion on.
        assert bool(self.order) if self.announced else self.election_open and bool(self.ran)
        self.exploded.add(event.seat)
        self.bury(event.seat, may_shoot=False)
        if role is Role.WHITE_WOLF_KING:
            self.may_shoot.add(event.seat)
        self.day_over = True

    def on_game_over(self, event: Event) -> None:
        assert self.announced, "a night's end is announced first"
        decided = self.winner()
        if decided is None:
            assert self.day == self.preset.round_limit and self.day_over and self.settled(), "no reason to end"
        self.result = decided or Result.DRAW
        assert event.data == {"result": self.result}
