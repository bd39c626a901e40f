"""Settings of several policies that learn at one table: who of them plays which seats, and how fast it learns."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from configs.roles_and_decks import Role, SideName
from configs.section import Section, nearest_name

SOLE_LEARNER = "policy"
"""Name of the policy that learns, where there is one."""


class LearnerConfig(Section):
    """One policy of the team that plays where ``policy`` is seated. What is not set does not matter."""

    side: SideName | None = Field(None, description="it plays seats of this side")
    roles: tuple[str, ...] | None = Field(None, min_length=1, description="it plays seats that are dealt these roles")
    learning_rate: float | None = Field(None, gt=0, description="its own; null: training.learning_rate")

    def plays(self, role: Role) -> bool:
        """Whether seats that are dealt this role match."""
        return self.side in (None, role.side) and (self.roles is None or role in self.roles)


def learner_of(team: Mapping[str, LearnerConfig], role: Role) -> str | None:
    """Name of the first policy of the team that plays this role; None where none does."""
    return next((name for name, learner in team.items() if learner.plays(role)), None)


def problem_with_team(team: Mapping[str, LearnerConfig], dealt: Iterable[Role], seated: Iterable[Role]) -> str | None:
    """Why these policies cannot play; None when they can.

    dealt: the preset's roles. seated: those that ``policy`` may play, in training or in an evaluation.
    """
    dealt = list(dict.fromkeys(dealt))
    for name, learner in team.items():
        for role in learner.roles or ():
            if role not in dealt:
                return f"policies.{name}.roles has {role!r}, which is not dealt: {nearest_name(role, dealt, 'roles')}"
    for role in dict.fromkeys(seated):
        if learner_of(team, role) is None:
            return (
                f"policies: none plays the {role.value}, whom the policy may be seated as; add one, e.g. "
                f"others: {{side: {role.side.value}}}"
            )
    playing = {learner_of(team, role) for role in dealt}
    for name in team:
        if name not in playing:
            return f"policies.{name} plays no role that is dealt, or those before it take all that it would play"
    return None
