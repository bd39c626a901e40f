"""A run's configuration; settings of game and rollout are passed without their section."""

from configs.sections.rollout import RolloutSettings
from configs.werewolf import WerewolfConfig


def werewolf_config(name="run", seed=1, **settings):
    """settings: of the sections game and rollout, by their own names, or whole sections."""
    rollout = {key: settings.pop(key) for key in list(settings) if key in RolloutSettings.model_fields}
    sections = {key: settings.pop(key) for key in list(settings) if key in WerewolfConfig.model_fields}
    return WerewolfConfig(**sections, run={"name": name, "seed": seed}, game=settings, rollout=rollout)
