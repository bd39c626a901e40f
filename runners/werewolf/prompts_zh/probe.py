"""What a policy is asked beside the game: what it takes a seat for."""

from collections.abc import Iterable

from runners.werewolf.game import Role
from runners.werewolf.prompts_zh.names import REFEREE, ROLE_NAMES, seat_name


def render_probe(target: int, roles: Iterable[Role]) -> str:
    """The question about one seat, on one line; its answer is the bare name of one of ``roles``."""
    names = "、".join(ROLE_NAMES[role] for role in roles)
    return f"{REFEREE}场外提问，不计入游戏：你认为{seat_name(target)}的身份是什么？只回答一个身份：{names}。"
