"""Which past selves are in the pool, which leave it, and which the policy meets."""

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict, Field

from algo.league.results import Results, Row, past_name
from configs.sections.league import LeagueConfig


class Member(BaseModel):
    """A version of the policy that is, or was, in the pool.

    log_probs: of the run's probe sequence under its weights, one for each token but the first, in nats; empty as long
        as there is no probe.
    left_at: the policy's version when it left; None as long as it is in the pool.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    log_probs: list[float] = []
    left_at: int | None = None


class Published(BaseModel):
    """What runners know from one version of the policy to the next.

    shares: past self's name -> how often it is met. servers: the version that each server of the pool has, with whole
    weights; also one that is not met now.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    shares: dict[str, float]
    servers: list[int] = []


class LeagueState(Results):
    """A run's league from step to step; part of ``algo.run.checkpoints.RunState``.

    members: in the order in which they joined. left: former ones that games in flight may still meet.
    """

    members: list[Member] = Field(default_factory=list)
    left: list[Member] = Field(default_factory=list)
    published: Published | None = None

    @property
    def needed(self) -> set[int]:
        return {member.version for member in (*self.members, *self.left)}

    def join(self, version: int, log_probs: Sequence[float], size: int) -> None:
        """Add the policy of this version, and begin a row; of too many members near copies leave."""
        self.members.append(Member(version=version, log_probs=list(log_probs)))
        self.rows.append(Row(first=version, last=version))
        while len(self.members) > size:
            leaving = _most_redundant(self.members)
            self.members.remove(leaving)
            leaving.left_at = version
            self.left.append(leaving)

    def drop_left(self, version: int, max_lag: int) -> None:
        """Drop those that left and that nothing in flight meets any more.

        A member that left at version v is met by games that were begun under older ones, and those are trained on by
        the step that finds the policy at v - 1 + ``max_lag``, or by an earlier one (``algo.rollouts.schedule``).
        """
        self.left = [one for one in self.left if one.left_at is not None and version < one.left_at + max_lag]

    def shares(self, choice: str) -> dict[str, float]:
        """Past self's name -> how often it is to be met, according to ``league.choice``; all together are 1."""
        names = [past_name(member.version) for member in self.members]
        if choice == "newest":
            return {names[-1]: 1.0}
        if choice == "uniform":
            return dict.fromkeys(names, 1 / len(names))
        return self.pfsp_shares(names)

    def publish(self, version: int, settings: LeagueConfig, servers: int, seed: int) -> Published:
        """Decide whom the policy meets at ``version``, unless that is decided.

        servers: of the pool, each of which has one member, drawn by the members' shares, and all met alike; 0 where
            every member is served.
        seed: the run's, from which the draw follows with the version.
        """
        before = self.published
        if before is not None and before.version == version and len(before.servers) == servers:
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
    """Of those that are neither the first nor the newest, the one that is most alike another member; the older of two.

    How unlike two are is the mean difference of their log-probs on the run's probe sequence, in nats per token.
    """

    def distance(member: Member) -> float:
        return min(
            fmean(abs(a - b) for a, b in zip(member.log_probs, other.log_probs, strict=True))
            for other in members
            if other is not member
        )

    return min(members[1:-1], key=lambda member: (distance(member), member.version))


def _draw(shares: Mapping[str, float], count: int, seed: str) -> list[str]:
    """Different names, one after another by their shares."""
    rng, left, drawn = random.Random(seed), dict(shares), []
    while left and len(drawn) < count:
        drawn.append(rng.choices(list(left), list(left.values()))[0])
        del left[drawn[-1]]
    return drawn


def _placed(drawn: Sequence[int], held: Sequence[int], initial: int) -> list[int]:
    """Which version each server is to have: one that it has already stays where it is.

    A server that is not needed is left with the initial one, whose weights stay for as long as the run.
    """
    new = iter([version for version in drawn if version not in held])
    stays = [version in drawn and version not in held[:number] for number, version in enumerate(held)]
    return [version if stay else next(new, initial) for version, stay in zip(held, stays, strict=True)]
