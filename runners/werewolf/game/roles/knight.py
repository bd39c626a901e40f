"""骑士: may fight one duel, after the day's speeches."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="骑士",
    english="Knight",
    mark="骑",
    rule="骑士可在发言后、投票前翻牌决斗一次：对方是狼人则出局，当天结束；是好人则骑士出局，再投票。决斗出局不能开枪。",
    guidance="平时像村民一样听对跳、看票型，站边更可信的预言家，不必急着公开身份。有把握时决斗最像狼人的人，尤其是悍跳的狼人；"
    "决斗错了你会出局，没有把握就再等一天，但别把能力带进夜里。",
    questions={Decision.DUEL: ("发言结束，请选择是否翻牌决斗一人", "不决斗")},
    unique=True,
    runs=0.1,
    worth=1.2,
    kills_at=4.0,
)
