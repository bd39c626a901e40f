"""The fourteenth of the mistakes that tests/runners/werewolf/game/test_mistakes.py lists."""

import pytest

from algo.advantages.estimators import token_advantages
from algo.loop.startup import check_before_starting
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig
from tests.support.algo.trajectories import made_trajectory


def trajectory(game_id: str, reward: float):
    return made_trajectory((0, 1), task_id=game_id, reward=reward)


def test_mistake_14_training_with_one_game_per_group_is_refused(tiny_model):
    """Training with one game per group gives a group-relative advantage of zero."""
    alone = token_advantages([trajectory("a", 1.0)], AdvantageConfig())
    assert alone.per_token[0].tolist() == [0.0, 0.0] and alone.informative == (False,)
    assert alone.metrics["advantage/groups_of_one_game"] == 1
    compared = token_advantages([trajectory("a", 1.0), trajectory("b", -1.0)], AdvantageConfig())
    assert compared.informative == (True, True)
    assert compared.per_token[0][1] > 0 > compared.per_token[1][1]
    settings = [f"model.path={tiny_model}", "rollout.rollouts_per_group={}"]
    with pytest.raises(ConfigError, match=r"rollouts_per_group must be at least 2 .*grpo.*the rollout itself"):
        check_before_starting(load_config(None, [settings[0], settings[1].format(1)]))
    check_before_starting(load_config(None, [settings[0], settings[1].format(2)]))
