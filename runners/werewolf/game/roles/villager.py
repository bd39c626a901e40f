"""村民."""

from runners.werewolf.game.roles.card import Card

CARD = Card(
    name="村民",
    english="Villager",
    mark="民",
    called=("平民", "民", "闭眼玩家", "白板"),
    guidance="你没有夜间能力，发言和投票就是你的武器。听对跳，用已知事实比较各家查验，站边更可信的预言家；"
    "看票型，留意言行不一、总护着狼人的人，把票投给最像狼人的人。",
    runs=0.1,
    worth=0.8,
)
