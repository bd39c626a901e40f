"""Schedules groups of rollouts: which are in flight, and which make a step. Pure logic, without hub and clock.

A step takes whole groups, since baselines compare the rollouts of one group: the first that finish. Slow ones are not
discarded. ``rollout.max_policy_lag`` holds since the number of started groups is limited (``Schedule.room``), and since
a step waits for groups that would be too old for the next one (``Schedule.choose``).
"""

from collections.abc import Collection, Iterable, Sequence

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """A group in flight.

    number: its index in the run, from 0, which determines its tasks.
    version: of the policy at its start; none of its turns is older.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    version: int


class Schedule:
    """The groups of a run, started in order of their numbers, and each used once.

    Weights change at most once a step, and a group started at version v may be in a step with the policy at version
    v + max_lag at the latest. So of the groups in flight, those that become too old within the next k steps must fit
    into k steps (k × per_step), for every k; ``choose`` and ``room`` ensure this.
    """

    def __init__(
        self,
        per_step: int,
        max_lag: int,
        in_all: int,
        open_groups: Iterable[Group] = (),
        begun: int = 0,
        most: int | None = None,
    ):
        """per_step: groups per step. in_all: of the run. open_groups, begun: state of an earlier process.

        most: maximum in flight, if lower than the lag allows.
        """
        self._per_step = per_step
        self._max_lag = max_lag
        self._in_all = in_all
        self._most = (max_lag + 1) * per_step if most is None else min(most, (max_lag + 1) * per_step)
        self._open = {group.number: group for group in open_groups}
        self.begun = begun
        """Number of groups started so far."""

    @property
    def open(self) -> list[Group]:
        return [self._open[number] for number in sorted(self._open)]

    @property
    def room(self) -> int:
        """Number of groups that may start now: more could become too old for any step."""
        return max(0, min(self._most - len(self._open), self._in_all - self.begun))

    def begin(self, count: int, version: int) -> list[Group]:
        """Start the next ``count`` groups, with the policy at ``version``."""
        groups = [Group(number=self.begun + place, version=version) for place in range(count)]
        self._open |= {group.number: group for group in groups}
        self.begun += count
        return groups

    def choose(self, finished: Sequence[int], version: int) -> list[int] | None:
        """The groups of a step with the policy at ``version``, by number; None if more must finish first.

        finished: numbers of finished groups, in order; those that are not in flight are ignored.
        """
        ready = [number for number in finished if number in self._open]
        chosen: list[int] = []
        for further in range(self._max_lag + 1):
            due = {group.number for group in self.open if group.version + self._max_lag <= version + further}
            must = len(due) - further * self._per_step - len(due.intersection(chosen))
            of_due = [number for number in ready if number in due and number not in chosen]
            if len(of_due) < must:
                return None
            chosen += of_due[: max(must, 0)]
        chosen += [number for number in ready if number not in chosen][: max(self._per_step - len(chosen), 0)]
        return sorted(chosen) if len(chosen) >= self._per_step else None

    def take(self, numbers: Collection[int]) -> None:
        for number in numbers:
            del self._open[number]
