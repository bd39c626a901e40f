"""Which groups of rollouts are in flight, and which of them make a step: numbers alone, no hub and no clock.

A step takes whole groups, since baselines compare the rollouts of one group: those that finish first of all that are in
flight. None is thrown away for being slow. What keeps each within ``rollout.max_policy_lag`` is how many are begun
(``Schedule.room``), and that a step waits for those that a later one could not train any more (``Schedule.choose``).
"""

from collections.abc import Collection, Iterable, Sequence

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """A group that is in flight.

    number: its place in the run, from 0; tasks follow from it.
    version: of the policy when it was begun, so that none of its turns is older.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    version: int


class Schedule:
    """The groups of a run, from the first to the last: begun in the order of their numbers, trained on once each.

    Weights change at most once a step, and a group that was begun under version v may make the step that finds the
    policy at version v + max_lag, and none later. So it must hold at the end of each step, for every k, that at most
    k steps' groups are left that must be gone within the next k steps; ``choose`` and ``room`` see to it.
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
        """per_step: groups of a step. in_all: of the run. open_groups, begun: where an earlier process stopped.

        most: that may be in flight, if that is less than the lag allows.
        """
        self._per_step = per_step
        self._max_lag = max_lag
        self._in_all = in_all
        self._most = (max_lag + 1) * per_step if most is None else min(most, (max_lag + 1) * per_step)
        self._open = {group.number: group for group in open_groups}
        self.begun = begun
        """Groups begun so far, whether they still are in flight or not."""

    @property
    def open(self) -> list[Group]:
        """The groups in flight, by number: begun, and in no step yet."""
        return [self._open[number] for number in sorted(self._open)]

    @property
    def room(self) -> int:
        """How many may be begun now: more would be too old, one day, before there is a step to take them."""
        return max(0, min(self._most - len(self._open), self._in_all - self.begun))

    def begin(self, count: int, version: int) -> list[Group]:
        """Begin the next ``count`` groups, with the policy at ``version``."""
        groups = [Group(number=self.begun + place, version=version) for place in range(count)]
        self._open |= {group.number: group for group in groups}
        self.begun += count
        return groups

    def choose(self, finished: Sequence[int], version: int) -> list[int] | None:
        """The groups that make the step which finds the policy at ``version``, by number; None: more must finish first.

        finished: numbers of groups that are played, in the order in which they finished; others than those in flight
            are ignored.
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
        """These make a step, and are no longer in flight."""
        for number in numbers:
            del self._open[number]
