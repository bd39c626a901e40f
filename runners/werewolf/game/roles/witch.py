"""女巫: an antidote and a poison, once each."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="女巫",
    english="Witch",
    mark="女",
    rule="女巫有解药、毒药各一瓶，每夜至多用一瓶，可不用药。解药没用时每夜会知道谁被袭击，可救他，"
    "{{ '可' if preset.witch_self_save else '不可' }}救自己；毒药毒死另一名存活者"
    "{% if 'guard' in dealt %}，守护挡不住；同一夜既被守护又被救的人仍会死亡（同守同救）{% endif %}。",
    guidance="解药留给对好人重要的人，毒药只在很有把握时用：毒错好人等于帮狼人。记住每夜谁被袭击，这是别人没有的线索。"
    "不必急着公开身份，局势需要时再说出用药情况。"
    "{% if self_knife %}首夜被袭击的也可能是自刀的狼人，银水不一定是好人。{% endif %}",
    questions={Decision.WITCH: ("请选择今夜如何用药", "不用药")},
    unique=True,
    runs=0.05,
    worth=2.2,
)
