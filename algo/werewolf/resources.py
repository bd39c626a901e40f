"""Resources of a run's games besides the policy: prompts, players, judge."""

from typing import Any

from configs.section import ConfigError
from configs.werewolf import WerewolfConfig


def game_resources(config: WerewolfConfig) -> dict[str, Any]:
    """Fields of ``PolicyResources``. Raises ConfigError for an unreadable prompt."""
    prompts = {}
    for name, path in config.game.prompts.items():
        try:
            prompts[name] = path.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"game.prompts.{name}: cannot read {path}: {error}") from error
    return {"prompt_templates": prompts, "players": config.players, "judge": config.judge}
