"""狼人."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="狼人",
    english="Wolf",
    mark="狼",
    guidance="白天隐藏身份，像好人那样分析{{ '，也可冒充预言家等身份' if wolf_count == 1 }}。"
    "夜里优先除掉预言家等能找出狼人的人。"
    "让好人互相怀疑{{ '，不要总与同伴投同一人' if wolf_count > 1 }}。",
    questions={
        Decision.WOLF_TALK: ("请对同伴说一句今夜的打算，可以提议袭击谁", "不提议"),
        Decision.WOLF_KILL: ("请选择今夜袭击谁", "空刀"),
    },
    by_night=Decision.WOLF_KILL,
    explodes=True,
)
