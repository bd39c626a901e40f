"""Settings of several policies that learn together: their seats and learning rates."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from configs.roles_and_decks import Role, SideName
from configs.section import Section, nearest_name

SOLE_LEARNER = "policy"
"""Name of the policy if only one learns."""


class LearnerConfig(Section):
    """One of the policies that share the seats of ``policy``; settings that are null match all seats."""

    side: SideName | None = Field(None, description="plays seats of this side")
    roles: tuple[str, ...] | None = Field(None, min_length=1, description="plays seats with these roles")
    learning_rate: float | None = Field(
        None, gt=0, description="learning rate of this policy; null: training.learning_rate"
    )

    def plays(self, role: Role) -> bool:
        return self.side in (None, role.side) and (self.roles is None or role in self.roles)


def learner_of(team: Mapping[str, LearnerConfig], role: Role) -> str | None:
    """Name of the first policy that plays this role, or None."""
    return next((name for name, learner in team.items() if learner.plays(role)), None)


def problem_with_team(team: Mapping[str, LearnerConfig], dealt: Iterable[Role], seated: Iterable[Role]) -> str | None:
    """The error of a team that does not fit the deck, or None.

    dealt: the preset's roles. seated: roles that ``policy`` may play, in training or in an evaluation.
    """
    dealt = list(dict.fromkeys(dealt))
    for name, learner in team.items():
        for role in learner.roles or ():
            if role not in dealt:
                return f"policies.{name}.roles: {role!r} is not dealt: {nearest_name(role, dealt, 'roles')}"
    for role in dict.fromkeys(seated):
        if learner_of(team, role) is None:
            return (
                f"policies: none plays the {role.value}, which the policy may be seated as; add one, e.g. "
                f"others: {{side: {role.side.value}}}"
            )
    playing = {learner_of(team, role) for role in dealt}
    for name in team:
        if name not in playing:
            return f"policies.{name} plays no role: none is dealt, or earlier policies take them; reorder or remove it"
    return None
