"""守卫: protects a seat by night."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="守卫",
    english="Guard",
    mark="守",
    rule="守卫守护一人免受袭击，可守自己，可空守，不可连续两夜守同一人。",
    guidance="守护狼人最想除掉的人，如可信的预言家。不能连续两夜守同一人，要预先想好下一夜守谁。"
    "尽量隐藏身份，用发言和投票帮助好人。"
    "{% if 'witch' in dealt %}首夜女巫多半会用解药，空守可以避免同守同救。{% endif %}",
    questions={Decision.GUARD: ("请选择今夜守护谁", "空守")},
    by_night=Decision.GUARD,
    unique=True,
    worth=1.5,
)
