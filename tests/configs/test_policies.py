"""Several policies that learn at one table: which configurations can, and who of them plays whom."""

import pytest

from configs.loading import load_config
from configs.roles_and_decks import Role
from configs.section import ConfigError
from configs.sections.policies import learner_of

SIDES = ["policies={wolves: {side: wolf, learning_rate: 0.01}, villagers: {side: good}}"]
WOLVES, VILLAGERS = "policies={wolves: {side: wolf}}", "policies={w: {side: wolf}, v: {roles: [villager]}}"


def test_the_first_that_matches_a_seat_plays_it():
    team = load_config(None, ["policies={seers: {roles: [seer]}, others: {side: good}, wolves: {}}"]).team
    assert [learner_of(team, role) for role in (Role.SEER, Role.VILLAGER, Role.WOLF)] == ["seers", "others", "wolves"]
    assert [learner_of({}, role) for role in (Role.SEER, Role.WOLF)] == [None, None]


def test_who_is_never_seated_needs_no_policy():
    alone = [WOLVES, "game.train_sides=[wolf]", "game.opponent=scripted"]
    assert [*load_config(None, alone).team] == ["wolves"]
    seated = [VILLAGERS, "game.seating=[{role: seer, players: {expert: 1}}]"]
    assert [*load_config(None, seated).team] == ["w", "v"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["policies={wolves: {side: wolf}}"], "none plays the seer, which the policy may be seated as"),
        # Evaluations seat the policy on both sides.
        ([WOLVES, "game.train_sides=[wolf]", "game.opponent=random", "evaluation.deals=2"], "none plays the seer"),
        # One seat of a role is not all of them.
        ([VILLAGERS, "game.seating=[{seat: 2, players: {expert: 1}}]"], "none plays the seer"),
        (["policies={w: {side: wolf}, g: {side: good}, s: {roles: [seer]}}"], "policies.s plays no role"),
        (["policies={w: {roles: [witch]}, others: {}}"], "policies.w.roles: 'witch' is not dealt"),
        (["policies={w: {roles: [wolff]}, others: {}}"], "roles: 'wolff' is not dealt: did you mean 'wolf'"),
        (["policies={w: {roles: [seer], side: wolf}, others: {}}"], "policies.w plays no role: none is dealt"),
        (["policies={policy: {}}"], "'policy' cannot name a player"),
        (["policies={policy-base: {}}"], "policies has 'policy-base', a name that"),
        ([*SIDES, "frozen.wolves.path=runs/tiny_model"], "policies has 'wolves', a name that"),
        ([*SIDES, "game.opponent=past", "league.every_steps=1"], "would need servers for each"),
        ([*SIDES, "serving.mode=attach", "serving.urls=[http://h:1]"], "or train adapters"),
        ([*SIDES, "serving.public_urls=[http://h:1]"], r"remove serving\.urls .* or train adapters"),
        ([*SIDES, "training.device=cuda", "serving.weight_transfer=nccl"], "sends the weights of one policy"),
        ([*SIDES, "serving.port=65535"], "serving.port is too high for the servers of all policies"),
    ],
)
def test_what_cannot_learn_together_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, overrides)
