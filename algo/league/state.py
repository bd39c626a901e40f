"""What a league carries from step to step: who is in the pool, what is published of it, and every game's end."""

from pydantic import BaseModel, ConfigDict

from store.schema import PAST_SELVES


def past_name(version: int) -> str:
    """A past self's name at the table: that of its folder, too."""
    return f"{PAST_SELVES}-{version:06d}"


def is_past(name: str) -> bool:
    """Whether a player's name is a past self's."""
    return name.startswith(f"{PAST_SELVES}-")


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

    @property
    def name(self) -> str:
        """At the table."""
        return past_name(self.version)


class Tally(BaseModel):
    """Games of the learning policy against one opponent, as one side. The rest of them was lost."""

    model_config = ConfigDict(extra="forbid")

    games: int = 0
    wins: int = 0
    draws: int = 0

    @property
    def score(self) -> float:
        """Games won; a draw is half of one."""
        return self.wins + self.draws / 2


class Row(BaseModel):
    """What the learning policy did from one joining to the next.

    first, last: its versions then. games: opponent -> side that the policy played -> its games.
    """

    model_config = ConfigDict(extra="forbid")

    first: int
    last: int
    games: dict[str, dict[str, Tally]] = {}

    @property
    def name(self) -> str:
        """In tables: the policy, and its versions."""
        return f"policy {self.first}" + (f"-{self.last}" if self.last > self.first else "")


class Recent(BaseModel):
    """Games against one opponent, older ones counted for less. score: those won; a draw is half of one."""

    model_config = ConfigDict(extra="forbid")

    games: float = 0.0
    score: float = 0.0


class Published(BaseModel):
    """What runners are told from one version of the policy to the next: they remember it by that version.

    shares: member's name -> how often it is met. servers: the version that each server of the pool holds, with whole
    weights; also one that is not met now.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    shares: dict[str, float]
    servers: list[int] = []


class LeagueState(BaseModel):
    """Part of ``algo.run.checkpoints.RunState``.

    members: in the order in which they joined. left: former ones that games in flight may still meet.
    rows: the last one is the present. recent: by opponent.
    """

    model_config = ConfigDict(extra="forbid")

    members: list[Member] = []
    left: list[Member] = []
    rows: list[Row] = []
    recent: dict[str, Recent] = {}
    published: Published | None = None

    @property
    def needed(self) -> set[int]:
        """Versions whose weights are needed."""
        return {member.version for member in (*self.members, *self.left)}
