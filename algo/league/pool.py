"""Members of the pool of past selves, and the choice of opponents."""

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict, Field

from algo.league.results import Results, Row, past_name
from configs.sections.league import LeagueConfig


class Member(BaseModel):
    """A version of the policy that is, or was, in the pool.

    log_probs: of the run's probe sequence under its weights, one for each token but the first, in nats; empty without a
        probe.
    left_at: the policy's version when it left; None as long as it is in the pool.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    log_probs: list[float] = []
    left_at: int | None = None


class Published(BaseModel):
    """Opponents that runners use until the next version of the policy.

    shares: past self -> share of games. servers: with whole weights, the version on each server of the pool, including
    unused ones.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    shares: dict[str, float]
    servers: list[int] = []


class LeagueState(Results):
    """A run's league from step to step; part of ``algo.run.checkpoints.RunState``.

    members: in order of joining. left: former ones that games in flight may still use.
    """

    members: list[Member] = Field(default_factory=list)
    left: list[Member] = Field(default_factory=list)
    published: Published | None = None

    @property
    def needed(self) -> set[int]:
        return {member.version for member in (*self.members, *self.left)}

    def join(self, version: int, log_probs: Sequence[float], size: int) -> None:
        """Add the policy of this version, and begin a row; above ``size`` the most redundant member leaves."""
        self.members.append(Member(version=version, log_probs=list(log_probs)))
        self.rows.append(Row(first=version, last=version))
        while len(self.members) > size:
            leaving = _most_redundant(self.members)
            self.members.remove(leaving)
            leaving.left_at = version
            self.left.append(leaving)

    def drop_left(self, version: int, max_lag: int) -> None:
        """Drop former members that no game in flight uses.

        Games begun before version v may use a member that left at v; the last step that trains on them has the policy
        at v - 1 + ``max_lag`` (``algo.rollouts.schedule``).
        """
        self.left = [one for one in self.left if one.left_at is not None and version < one.left_at + max_lag]

    def shares(self, choice: str) -> dict[str, float]:
        """Past self -> share of games, by ``league.choice``; the shares sum to 1."""
        names = [past_name(member.version) for member in self.members]
        if choice == "newest":
            return {names[-1]: 1.0}
        if choice == "uniform":
            return dict.fromkeys(names, 1 / len(names))
        return self.pfsp_shares(names)

    def publish(self, version: int, settings: LeagueConfig, servers: int, seed: int) -> Published:
        """Choose the opponents of ``version``, once per version unless one of them has left the pool.

        servers: number of servers of the pool; each serves one member, drawn by the shares, and gets an equal share of
            games. 0 if every member is served.
        seed: of the run; with the version it seeds the draw.
        """
        before, members = self.published, {past_name(member.version) for member in self.members}
        if (
            before is not None
            and before.version == version
            and len(before.servers) == servers
            and before.shares.keys() <= members  # after a step without an update one may leave under the same version
        ):
            return before
        shares = self.shares(settings.choice)
        self.published = Published(version=version, shares=shares)
        if servers:
            initial = self.members[0].version
            held = [*(before.servers if before else []), *[initial] * servers][:servers]
            drawn = _draw(shares, servers, f"{seed}/league/{version}")
            self.published.shares = {name: 1 / len(drawn) for name in drawn}
            versions = {past_name(member.version): member.version for member in self.members}
            self.published.servers = _placed([versions[name] for name in drawn], held, initial)
        return self.published


def _most_redundant(members: Sequence[Member]) -> Member:
    """The member, not the first or newest, with the nearest other member; the older of two.

    Distance: mean absolute difference of the log-probs on the run's probe sequence, in nats per token.
    """

    def distance(member: Member) -> float:
        return min(
            fmean(abs(a - b) for a, b in zip(member.log_probs, other.log_probs, strict=True))
            for other in members
            if other is not member
        )

    return min(members[1:-1], key=lambda member: (distance(member), member.version))


def _draw(shares: Mapping[str, float], count: int, seed: str) -> list[str]:
    """Draw without replacement, by share."""
    rng, left, drawn = random.Random(seed), dict(shares), []
    while left and len(drawn) < count:
        drawn.append(rng.choices(list(left), list(left.values()))[0])
        del left[drawn[-1]]
    return drawn


def _placed(drawn: Sequence[int], held: Sequence[int], initial: int) -> list[int]:
    """Version for each server; a version that a server already has stays there.

    An unused server gets the initial version, whose weights exist for the whole run.
    """
    new = iter([version for version in drawn if version not in held])
    stays = [version in drawn and version not in held[:number] for number, version in enumerate(held)]
    return [version if stay else next(new, initial) for version, stay in zip(held, stays, strict=True)]
