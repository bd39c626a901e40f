"""村民."""

from runners.werewolf.game.roles.card import Card

CARD = Card(
    name="村民",
    english="Villager",
    mark="民",
    called=("平民", "民", "闭眼玩家", "白板"),
    guidance="你没有夜间能力，发言和投票就是你的武器。留意前后矛盾的发言和言行不一的投票。有多人自称预言家时，"
    "用已知事实比较他们的查验，跟随更可信的一位，把票投给最像狼人的人。",
    runs=0.1,
    worth=0.8,
)
