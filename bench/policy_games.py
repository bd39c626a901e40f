"""Games whose policy seats a real server plays."""

from collections.abc import Mapping

from runners.policy.chat_tokens import ChatTokens
from runners.policy.model import TokenExactChatModel
from runners.policy.server import PolicyServer
from runners.werewolf.game import Side, get_preset
from runners.werewolf.players import PolicyPlayer
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.schema import TRAINED_POLICY
from store.werewolf import GameTask, TurnSpan


async def play_deal(
    preset: str, seed: int, limits: Mapping[str, int], tokens: ChatTokens, servers: Mapping[Side, PolicyServer], **rules
) -> list[TurnSpan]:
    """The turns of one game. limits: as a task has them. servers: who plays each side."""
    task = GameTask(
        game_id=f"{preset}-{seed}", group_id=preset, seed=seed, sampling_seed=seed, preset=preset, rules=rules,
        seating=dict.fromkeys(Side, TRAINED_POLICY), trainable=frozenset(), limits=limits,
    )  # fmt: skip

    def seat_player(seat, role, name) -> PolicyPlayer:
        model = TokenExactChatModel(servers[role.side], tokens, task.limits, f"{seed}/{seat}")
        return PolicyPlayer(seat, model, system_prompt(get_preset(preset), seat, role))

    turns: list[TurnSpan] = []
    await play_game(task, 0, seat_player, lambda turn, *times: turns.append(turn))
    return turns
