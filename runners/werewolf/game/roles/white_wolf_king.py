"""白狼王: takes a seat with it when it explodes, and never else."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="白狼王",
    english="White wolf king",
    mark="白",
    rule="白狼王自爆时可以带走一名存活者，此外不能带人；他选完再判胜负。",
    guidance="你夜里与狼人一同行动，白天隐藏身份。你的能力只能靠自爆发动：预言家等重要的好人亮明身份后，自爆带走他，"
    "换掉好人的核心并中断当天；不自爆就被放逐或死在夜里，能力就浪费了。",
    questions={Decision.TAKE: ("你已自爆，请选择是否带走一人", "不带人")},
    by_night=Decision.WOLF_KILL,
    explodes=True,
    explodes_at_seer=0.2,
)
