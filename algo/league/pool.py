"""Who joins the pool, who leaves it, and whom of it the policy meets."""

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from algo.league.payoff import pfsp_shares
from algo.league.state import LeagueState, Member, Published, Row, past_name
from configs.sections.league import LeagueConfig


def join(state: LeagueState, version: int, log_probs: Sequence[float], size: int) -> None:
    """The policy of this version joins; of too many members, near copies leave (``superfluous``). A row begins."""
    state.members.append(Member(version=version, log_probs=list(log_probs)))
    state.rows.append(Row(first=version, last=version))
    while len(state.members) > size:
        leaving = superfluous(state.members)
        state.members.remove(leaving)
        leaving.left_at = version
        state.left.append(leaving)


def superfluous(members: Sequence[Member]) -> Member:
    """Of those that are neither the first nor the newest, the one that is most alike another member; the older of two.

    How unlike two are is the mean difference of their log-probs on the run's probe sequence, in nats per token.
    """

    def loneliness(member: Member) -> float:
        return min(_difference(member, other) for other in members if other is not member)

    return min(members[1:-1], key=lambda member: (loneliness(member), member.version))


def _difference(one: Member, other: Member) -> float:
    return fmean(abs(a - b) for a, b in zip(one.log_probs, other.log_probs, strict=True))


def forget_left(state: LeagueState, version: int, max_lag: int) -> None:
    """Drop those that left and that nothing in flight meets any more.

    Who left at version v is met by games that were begun under older ones, and those are trained on by the step that
    finds the policy at v - 1 + ``max_lag``, or by an earlier one (``algo.rollouts.schedule``).
    """
    state.left = [member for member in state.left if member.left_at is not None and version < member.left_at + max_lag]


def shares_of(state: LeagueState, choice: str) -> dict[str, float]:
    """Member's name -> how often it is to be met, as ``league.choice`` says; all shares together are 1."""
    names = [member.name for member in state.members]
    if choice == "newest":
        return {names[-1]: 1.0}
    if choice == "uniform":
        return {name: 1 / len(names) for name in names}
    return pfsp_shares(state, names)


def publish(state: LeagueState, version: int, settings: LeagueConfig, servers: int, seed: int) -> None:
    """Settle who is met as long as the policy is at ``version``, unless that is settled.

    servers: of the pool, each of which holds one member, drawn by the members' shares, and all met alike; 0 where every
        member is served.
    seed: the run's, from which the draw follows with the version.
    """
    before = state.published
    if before is not None and before.version == version and len(before.servers) == servers:
        return
    shares = shares_of(state, settings.choice)
    if not servers:
        state.published = Published(version=version, shares=shares)
        return
    held = [*(before.servers if before else []), *[state.members[0].version] * servers][:servers]
    versions = {member.name: member.version for member in state.members}
    drawn = [versions[name] for name in _draw(shares, servers, f"{seed}/league/{version}")]
    state.published = Published(
        version=version,
        shares={past_name(one): 1 / len(drawn) for one in drawn},
        servers=_placed(drawn, held, state.members[0].version),
    )


def _draw(shares: Mapping[str, float], count: int, seed: str) -> list[str]:
    """Different names, one after another by their shares."""
    rng, left, drawn = random.Random(seed), dict(shares), []
    while left and len(drawn) < count:
        drawn.append(rng.choices(list(left), list(left.values()))[0])
        del left[drawn[-1]]
    return drawn


def _placed(drawn: Sequence[int], held: Sequence[int], initial: int) -> list[int]:
    """Which version each server is to hold: one that it holds already stays where it is.

    A server that is not needed is left with the initial one, whose weights stay for as long as the run.
    """
    placed: dict[int, int] = {}
    for number, version in enumerate(held):
        if version in drawn and version not in placed.values():
            placed[number] = version
    others = iter([version for version in drawn if version not in placed.values()])
    return [placed[number] if number in placed else next(others, initial) for number in range(len(held))]
