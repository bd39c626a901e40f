"""白痴: survives the first vote that would exile it, by showing its card, and has no vote from then on."""

from runners.werewolf.game.roles.card import Card

CARD = Card(
    name="白痴",
    english="Idiot",
    mark="白",
    rule="白痴被投票放逐时翻开身份牌，不出局，此后可以发言，但不能投票，也不会再被投票"
    "{{ '；是警长的保留警徽' if preset.sheriff }}。",
    guidance="夜里没有能力，被投票放逐时会自动翻牌，不会出局，因此不必怕被投；不要让好人为你浪费一天，快被投出时可以亮明身份。"
    "翻牌后人人知道你是好人，你虽不能投票，仍可用发言带领好人；狼人只能在夜里杀你。",
    runs=0.1,
    worth=0.7,
)
