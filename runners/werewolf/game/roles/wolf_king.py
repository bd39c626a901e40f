"""狼王: shoots when it dies. Whether it may explode is a rule of the preset."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="狼王",
    english="Wolf king",
    mark="王",
    guidance="你夜里与狼人一同行动，白天隐藏身份，可大胆冒充好人。出局时若能开枪，带走对好人最重要的人，如预言家。"
    "不要浪费这一枪，也不要带走同伴。",
    by_night=Decision.WOLF_KILL,
    shoots=True,
)
