"""预言家: learns by night which side a seat is of."""

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Decision

CARD = Card(
    name="预言家",
    english="Seer",
    mark="预",
    called=("先知",),
    rule="预言家查验另一名存活者是好人还是狼人"
    "{% set others = wolves | reject('equalto', 'wolf') | map('name_of') | join('、') %}"
    "{{ '（' ~ others ~ '也显示为狼人）' if others }}，可不查验。",
    guidance="夜里查验最可疑或最有影响力的人，不要重复查验。"
    "{% if preset.sheriff %}首日应当上警，报出查验，并留警徽流：接下来两夜依次验谁，自己出局后按查验结果把警徽交给谁。"
    "以后每天报清每夜验了谁、结果如何，带领好人投出狼人。有人悍跳时，比较双方的查验和警徽流，说服好人站在你这边。"
    "{% else %}白天选好时机公布身份，报清每夜验了谁、结果如何，带领好人投出狼人。"
    "公开后你会成为狼人的目标，别把查验烂在手里。{% endif %}",
    questions={Decision.SEER_CHECK: ("请选择今夜查验谁", "不查验")},
    by_night=Decision.SEER_CHECK,
    unique=True,
    runs=1.0,
    worth=3.0,
)
