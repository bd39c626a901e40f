"""猎人: shoots when it dies, unless poisoned."""

from runners.werewolf.game.roles.card import Card

CARD = Card(
    name="猎人",
    english="Hunter",
    mark="猎",
    guidance="平时像村民一样听对跳、看票型，站边更可信的预言家，不必急着公开身份；快被误投出局时可以亮明身份。"
    "随时想好最像狼人的人，出局时若能开枪就带走他。",
    shoots=True,
    kills_at=1.0,  # it has nothing to lose
    runs=0.15,
    worth=0.6,
)
