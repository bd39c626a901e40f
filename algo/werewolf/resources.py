"""What runners are told of a run's games, beside the policy: prompts that replace the built-in ones, the judge."""

from typing import Any

from configs.section import ConfigError
from configs.werewolf import WerewolfConfig


def game_resources(config: WerewolfConfig) -> dict[str, Any]:
    """Fields of ``PolicyResources``. Raises ConfigError for a prompt that cannot be read."""
    return {
        "prompt_templates": read_prompts(config),
        "players": config.players,
        "judge": config.judge,
    }


def read_prompts(config: WerewolfConfig) -> dict[str, str]:
    """The configured prompts by name; read once, so that editing a file does not change a run. Raises ConfigError."""
    prompts = {}
    for name, path in config.game.prompts.items():
        try:
            prompts[name] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"game.prompts.{name}: cannot read {path}: {error}") from error
    return prompts
