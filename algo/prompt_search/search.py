"""The whole search: a race for each prompt, edits and further races, winners together, then a confirmation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from algo.prompt_search.arena import Arena, Played, Say, Stage
from algo.prompt_search.candidates import Candidate, Slot, Tree
from algo.prompt_search.intervals import Interval, confidence_sequence
from algo.prompt_search.plan import SearchPlan
from algo.prompt_search.proposer import Proposer
from algo.prompt_search.racing import FEWEST_TASKS, Confirmation, Ending, Plays, Race, Verdict
from configs.section import ConfigError

ENDINGS: Mapping[Ending, str] = {
    "clear": "the best is clear",
    "halved": "the last rivals were shown to be worse",
    "budget": "its budget is spent",
}
"""Why a race ended, in words."""

_FIRST_LOOK = 8
"""Tasks that a prompt does without a rival, so that the proposer has something to read."""


@dataclass(frozen=True)
class Entrant:
    """One candidate in a race. reward: its mean, with an interval that holds at all times for this one candidate."""

    number: int
    reward: Interval
    left: str


@dataclass(frozen=True)
class RaceReport:
    """How a race went. spent: rollouts. uniform: what every candidate doing all the winner's tasks would have cost."""

    stage: str
    winner: int
    ending: Ending
    spent: int
    uniform: int
    entrants: tuple[Entrant, ...]


@dataclass
class Findings:
    """What a search found.

    winner: number of the candidate that was chosen. verdict: of its confirmation; None where the incumbent won already.
    before, after: a held-out task that the two did most differently, as (incumbent, winner); None without a verdict.
    """

    winner: int = 0
    verdict: Verdict | None = None
    races: list[RaceReport] = field(default_factory=list)
    spent: int = 0
    failed: int = 0
    examples: tuple[Played, Played] | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the winner may be called better."""
        return self.verdict is not None and self.verdict.better

    @property
    def saved(self) -> float | None:
        """Rollouts spent on races, as a share of what testing all as often as the winner would have cost."""
        uniform = sum(race.uniform for race in self.races)
        return sum(race.spent for race in self.races) / uniform if uniform else None


def check_search(
    plan: SearchPlan, slots: Mapping[str, Slot], tree: Tree, with_proposer: bool, size_of: Callable[[str | None], int]
) -> None:
    """Raise ConfigError where there is nothing to compare, or the budget is too small for the first races.

    size_of: rollouts that a prompt needs for one task, by the slot that is searched; None for several.
    """
    generations = plan.generations if with_proposer else 0
    count = _races(slots, tree, generations)
    if not count:
        raise ConfigError("there is one prompt and no proposer: nothing to compare; add prompts, or --proposer-url")
    of_edits = 1 + plan.edits if generations else 0
    races: list[tuple[str | None, int]] = [(name, max(len(_entrants(tree, name)), of_edits)) for name in slots]
    if len(slots) > 1:
        races.append((None, 2 + len(slots)))
    looks = _FIRST_LOOK if generations else 0
    share = int(plan.budget * plan.for_search) // count
    for slot, entrants in races:
        least = size_of(slot) * (entrants * FEWEST_TASKS + looks)
        if share < least:
            need = int((least + 1) * count / plan.for_search) + 1
            raise ConfigError(
                f"--budget {plan.budget} is too small: {count} races, one of {entrants} prompts "
                f"({slot or 'together'}), need at least {need} rollouts"
            )


def _races(slots: Mapping[str, Slot], tree: Tree, generations: int) -> int:
    rivals = sum(len(_entrants(tree, name)) > 1 for name in slots)
    return rivals + generations * len(slots) + (len(slots) > 1)


def _entrants(tree: Tree, slot: str) -> list[Candidate]:
    """The incumbent, and what the files have to replace this prompt."""
    return [tree.incumbent, *(one for one in tree.candidates if one.slot == slot and one.parent == 0)]


class Search:
    """One search. slots: the prompts searched, one at a time and then together. proposer: None for no edits."""

    def __init__(
        self, plan: SearchPlan, slots: Mapping[str, Slot], tree: Tree, arena: Arena, proposer: Proposer | None, say: Say
    ):
        self.findings = Findings()
        self._plan = plan
        self._slots = slots
        self._tree = tree
        self._arena = arena
        self._proposer = proposer
        self._say = say
        self._generations = plan.generations if proposer else 0
        self._races_left = _races(slots, tree, self._generations)

    async def run(self) -> Findings:
        """Search, then confirm. Raises what ``Arena.play`` and ``Proposer.edits`` do."""
        incumbent = self._tree.incumbent
        winners = {name: await self._search_slot(name) for name in self._slots}
        won = {name: winner for name, winner in winners.items() if winner is not incumbent}
        best = next(iter(won.values()), incumbent)
        if len(won) > 1:
            templates = dict(incumbent.templates)
            for name, winner in won.items():
                templates[name] = winner.templates[name]
            together = self._tree.add(templates, None, incumbent, f"the winners for {', '.join(won)} together")
            best = await self._race(Stage("together", None), [incumbent, together, *won.values()])
        self.findings.winner = best.number
        if best is not incumbent:
            await self._confirm(best)
        self._tell()
        return self.findings

    async def _search_slot(self, name: str) -> Candidate:
        entrants, leader, stage = _entrants(self._tree, name), self._tree.incumbent, Stage(f"{name}-0", name)
        if len(entrants) > 1:
            leader = await self._race(stage, entrants)
        for generation in range(1, self._generations + 1):
            assert self._proposer is not None
            if not self._arena.results(stage, leader):
                await self._arena.play(stage, Plays((0,), range(_FIRST_LOOK)), [leader])
            played = self._arena.results(stage, leader)
            children = await self._proposer.edits(self._tree, self._slots[name], leader, played, self._plan.edits)
            if not children:
                self._races_left -= self._generations - generation + 1
                break
            stage = Stage(f"{name}-{generation}", name)
            leader = await self._race(stage, [leader, *children])
        return leader

    async def _race(self, stage: Stage, entrants: Sequence[Candidate]) -> Candidate:
        workload, size = self._arena.workload, self._arena.workload.rollouts_a_task(stage)
        share = (int(self._plan.budget * self._plan.for_search) - self._arena.spent) // max(1, self._races_left)
        self._races_left -= 1
        try:
            race = Race(len(entrants), share // size, workload.low, workload.high, self._plan.error)
        except ValueError as error:
            raise ConfigError(f"race {stage.name}: {error}; raise --budget") from error
        while plays := race.ask():
            race.tell(plays, await self._arena.play(stage, plays, entrants))
            self._say(
                f"race {stage.name}: {len(race.racing)} of {len(entrants)} prompts left after {race.tasks_done} tasks, "
                f"{entrants[race.winner].name} ahead; {self._arena.spent} of {self._plan.budget} rollouts spent"
            )
        winner = entrants[race.winner]
        assert race.ending is not None
        self._say(f"race {stage.name} ends, {ENDINGS[race.ending]}: prompt {winner.name} goes on")
        self.findings.races.append(
            RaceReport(
                stage.name,
                winner.number,
                race.ending,
                race.spent * size,
                len(entrants) * race.tasks_done * size,
                tuple(
                    Entrant(one.number, self._interval(standing.rewards), standing.left)
                    for one, standing in zip(entrants, race.standings, strict=True)
                ),
            )
        )
        return winner

    def _interval(self, rewards: Sequence[float]) -> Interval:
        known = [reward for reward in rewards if reward == reward]
        return confidence_sequence(known, self._arena.workload.low, self._arena.workload.high, self._plan.error)

    async def _confirm(self, winner: Candidate) -> None:
        incumbent, workload = self._tree.incumbent, self._arena.workload
        differing = [name for name in self._slots if winner.templates.get(name) != incumbent.templates.get(name)]
        stage = Stage("held-out", differing[0] if len(differing) == 1 else None, held_out=True)
        budget = (self._plan.budget - self._arena.spent) // workload.rollouts_a_task(stage)
        try:
            confirmation = Confirmation(budget, workload.low, workload.high, self._plan.error, self._plan.until_apart)
        except ValueError as error:
            raise ConfigError(f"{error}; raise --budget") from error
        while plays := confirmation.ask():
            confirmation.tell(plays, await self._arena.play(stage, plays, [winner, incumbent]))
            self._say(
                f"held-out tasks: {winner.name} against {incumbent.name} on {confirmation.tasks_done} tasks; "
                f"{self._arena.spent} of {self._plan.budget} rollouts spent"
            )
        self.findings.verdict = confirmation.verdict()
        pairs = zip(self._arena.results(stage, incumbent), self._arena.results(stage, winner), strict=True)
        known = [(one, other) for one, other in pairs if one.reward == one.reward and other.reward == other.reward]
        if known:
            self.findings.examples = max(known, key=lambda pair: pair[1].reward - pair[0].reward)

    def _tell(self) -> None:
        findings, incumbent = self.findings, self._tree.incumbent
        findings.spent, findings.failed = self._arena.spent, self._arena.failed
        self._say(verdict_text(findings, incumbent, self._tree.candidates[findings.winner]))
        if findings.saved is not None:
            self._say(
                f"{findings.spent} of {self._plan.budget} rollouts spent, {findings.failed} failed; the races took "
                f"{findings.saved:.0%} of what testing every prompt as often as the winner would have taken"
            )


def verdict_text(findings: Findings, incumbent: Candidate, winner: Candidate) -> str:
    """What may be said in the end, and why the search ended."""
    verdict = findings.verdict
    if verdict is None:
        return f"no prompt was found that does better than the first one, {incumbent.name}"
    rewards = f"mean reward {verdict.challenger} against {verdict.incumbent}, difference {verdict.difference}"
    if verdict.better:
        return f"prompt {winner.name} is better than {incumbent.name} on held-out tasks: {rewards}; the best is clear"
    if verdict.worse:
        return (
            f"prompt {winner.name} is worse than {incumbent.name} on held-out tasks: {rewards}; keep {incumbent.name}"
        )
    return (
        f"whether prompt {winner.name} is better than {incumbent.name} is not clear, and the budget is spent: on "
        f"held-out tasks {rewards}"
    )
