"""What a seat earns, worked out by hand: outcome by side, facts and judgements, averaged or summed."""

import pytest

from algo.werewolf.rewards import FACT_DIMENSIONS, JUDGE_DIMENSIONS, seat_reward, turn_dimensions
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.rewards import OutcomeReward, RewardConfig
from store.werewolf import NEUTRAL_FACTS, TURN_FACTS
from tests.support.fakes import make_result

NOTHING = RewardConfig(
    **dict.fromkeys((*FACT_DIMENSIONS, *JUDGE_DIMENSIONS), 0.0), wolf=OutcomeReward(), good=OutcomeReward()
)


def weights(**changes):
    """Only what is named weighs anything."""
    return NOTHING.model_copy(update=changes)


def seat(side="good", outcome=1.0):
    return make_result().seats[0].model_copy(update={"side": side, "outcome": outcome})


def facts(**measured):
    return {**NEUTRAL_FACTS, **measured}


def reward(config, *turns, scores=None, **who):
    return seat_reward(seat(**who), dict(enumerate(turns)), scores or {}, config)


@pytest.mark.parametrize("side", ["wolf", "good"])
@pytest.mark.parametrize(("outcome", "worth"), [(1.0, 15), (-1.0, -10), (0.0, -3)])
def test_the_outcome_is_worth_what_the_side_says(side, outcome, worth):
    config = weights(**{side: OutcomeReward(win=15, lose=-10, draw=-3)})
    found = reward(config, facts(), facts(), side=side, outcome=outcome)
    assert (found.total, found.outcome) == (worth, worth) and found.turns == {0: 0, 1: 0}
    other = reward(config, side="wolf" if side == "good" else "good", outcome=outcome)
    assert other.total == outcome


GOOD_FACTS = ("vote_against_enemy", "attack_on_enemy")
"""The dimensions that earn something; all others cost."""


def priced(size, *names):
    return {name: size if name in GOOD_FACTS else -size for name in names}


FACT_OF = {name: {name: 1.0} for name in FACT_DIMENSIONS} | {"foreign_language": {"chinese_share": 0.0}}


@pytest.mark.parametrize("name", FACT_DIMENSIONS)
def test_each_weight_weighs_its_own_dimension(name):
    turns = [facts(**FACT_OF[name]), facts(), facts(), facts()]
    config = weights(**priced(2.0, name))
    sign = 1 if name in GOOD_FACTS else -1
    averaged = reward(config, *turns)
    assert averaged.turns == {0: sign * 0.5, 1: 0, 2: 0, 3: 0} and averaged.total == 1 + sign * 0.5
    assert averaged.dimensions == {"outcome": 1.0, **dict.fromkeys(FACT_DIMENSIONS, 0.0), name: 0.25}
    summed = reward(config.model_copy(update={"turns": "summed"}), *turns)
    assert summed.turns[0] == sign * 2.0 and summed.total == 1 + sign * 2.0
    others = weights(**priced(2.0, *(other for other in FACT_DIMENSIONS if other != name)))
    assert reward(others, *turns).total == 1.0


def test_a_missing_judgement_is_no_punishment():
    config = weights(judge_score=2.0, low_judgement=-1.0)
    turns = [facts() for _ in range(4)]
    judged = reward(config, *turns, scores=dict.fromkeys(range(4), 0.8))
    # Where only some turns were judged, their mean stands for all; where none was, nothing is added.
    assert reward(config, *turns, scores={2: 0.8}).total == pytest.approx(judged.total) == pytest.approx(1 + 2 * 0.6)
    assert reward(config, *turns).total == 1.0 == reward(config, *turns, scores={1: 0.5}).total
    assert reward(config, *turns, scores={2: 0.8}).turns == pytest.approx({0: 0, 1: 0, 2: 1.2, 3: 0})
    assert not set(reward(config, *turns).dimensions) & set(JUDGE_DIMENSIONS)
    assert reward(config, *turns, scores={2: 0.8}).dimensions["judge_score"] == pytest.approx(0.6)


def test_low_and_very_low_judgements():
    config = weights(
        low_judgement=-5.0, very_low_judgement=-10.0, low_judgement_below=0.4, very_low_judgement_below=0.2
    )
    turns = [facts() for _ in range(4)]
    found = reward(config.model_copy(update={"turns": "summed"}), *turns, scores={0: 0.4, 1: 0.39, 2: 0.2, 3: 0.1})
    assert found.turns == {0: 0, 1: -5, 2: -5, 3: -10} and found.total == 1 - 20
    assert (found.dimensions["low_judgement"], found.dimensions["very_low_judgement"]) == (0.5, 0.25)
    assert reward(config, *turns, scores={0: 0.1, 1: 0.9}).total == 1 - 5
    # Without a second threshold no judgement is very low.
    assert turn_dimensions(facts(), 0.0, RewardConfig())["very_low_judgement"] == 0
    with pytest.raises(ConfigError, match=r"very_low_judgement_below \(0.5\) must not exceed low"):
        load_config(None, ["reward.very_low_judgement_below=0.5"])


def test_with_the_default_weights_even_the_worst_form_costs_less_than_losing():
    config = RewardConfig()
    spoken = facts(
        **{name: 1.0 for name in FACT_DIMENSIONS if name in TURN_FACTS and name not in ("invalid", *GOOD_FACTS)},
        chinese_share=0.0,
    )
    unusable = facts(invalid=1.0, reask=1.0, cut=1.0)
    for worst in (spoken, unusable):
        assert reward(config, *[worst] * 30).total > reward(config, facts(), outcome=-1.0).total
