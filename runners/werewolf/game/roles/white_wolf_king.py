"""白狼王: takes a seat with it when it explodes, and never else."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="白狼王",
    english="White king",
    mark="白",
    rule="白狼王自爆时可带走一名存活者，选完再判胜负。",
    guidance="你与狼人一同行动，白天隐藏身份。{% if preset.wolves_may_explode %}预言家等好人亮明身份后，可自爆带走他；"
    "不自爆就出局则浪费能力。{% endif %}",
    questions={Decision.TAKE: ("你已自爆，请选择是否带走一人", "不带人")},
    by_night=Decision.WOLF_KILL,
    explodes=True,
    explodes_at_seer=0.2,
)
