"""How to play each role: what holds in every preset, and what the rules of one add to it."""

from collections.abc import Callable, Mapping

from runners.werewolf.game import Preset, Role, Side

GUIDANCE: Mapping[Role, str] = {
    Role.WOLF: (
        "白天隐藏身份，像没有夜间信息的好人那样分析，也可冒充预言家等身份。"
        "夜里优先除掉能找出狼人的人，如预言家。让好人互相怀疑，投票时不要露出破绽。"
    ),
    Role.WOLF_KING: (
        "你夜里与狼人一同行动，白天隐藏身份，可大胆冒充好人。"
        "出局时若能开枪，带走对好人最重要的人，如预言家。不要浪费这一枪，也不要带走同伴。"
    ),
    Role.VILLAGER: (
        "你没有夜间能力，发言和投票就是你的武器。留意前后矛盾的发言和言行不一的投票。"
        "有多人自称预言家时，用已知事实比较他们的查验，跟随更可信的一位，把票投给最像狼人的人。"
    ),
    Role.SEER: (
        "夜里查验最可疑或最有影响力的人，不要重复查验。白天选好时机公布身份，"
        "报清每夜验了谁、结果如何，带领好人投出狼人。公开后你会成为狼人的目标，别把查验烂在手里。"
    ),
    Role.WITCH: (
        "解药留给对好人重要的人，毒药只在很有把握时用：毒错好人等于帮狼人。"
        "记住每夜谁被袭击，这是别人没有的线索。不必急着公开身份，局势需要时再说出用药情况。"
    ),
    Role.HUNTER: (
        "平时像村民一样发言，不必急着公开身份；快被误投出局时可以亮明身份。"
        "随时想好最像狼人的人，出局时若能开枪就带走他；没有把握就不开枪，以免误伤好人。"
    ),
    Role.GUARD: (
        "守护狼人最想除掉的人，如可信的预言家。不能连续两夜守同一人，要预先想好下一夜守谁。"
        "尽量隐藏身份，用发言和投票帮助好人。"
    ),
}
"""By role; what every preset has in common."""

_WOLVES = frozenset({Role.WOLF, Role.WOLF_KING})
_SEER, _WITCH, _GUARD = frozenset({Role.SEER}), frozenset({Role.WITCH}), frozenset({Role.GUARD})
_OTHERS = frozenset(Role) - _WOLVES - _SEER


def _wolves_may_fake_a_seer(preset: Preset) -> bool:
    return Role.SEER in preset.deck and sum(role.side is Side.WOLF for role in preset.deck) > 1


def _wolves_may_trick_the_witch(preset: Preset) -> bool:
    return Role.WITCH in preset.deck and preset.wolves_may_hit_wolves


def _antidote_may_meet_the_guard(preset: Preset) -> bool:
    return Role.WITCH in preset.deck


def _seer_may_be_sheriff(preset: Preset) -> bool:
    return preset.sheriff and Role.SEER in preset.deck


_ADVICE: tuple[tuple[frozenset[Role], Callable[[Preset], bool], str], ...] = (
    (
        _WOLVES,
        _wolves_may_fake_a_seer,
        "可由一人悍跳预言家，每夜的查验要编得前后一致；其他人可以倒钩：假装站边真预言家，"
        "必要时投出已经暴露的同伴，换取好人信任。",
    ),
    (_WOLVES, _seer_may_be_sheriff, "悍跳的人要上警抢警徽，同样要报查验、留警徽流。"),
    (_WOLVES, _wolves_may_trick_the_witch, "首夜可以自刀，骗女巫用掉解药，被救的同伴成为银水，更容易取信于人。"),
    (
        _SEER,
        _seer_may_be_sheriff,
        "首日应当上警，在警上报出查验，并留警徽流：接下来两夜依次验谁，自己出局后按查验结果把警徽交给谁。"
        "有人悍跳时，比较双方的查验和警徽流，说服好人站在你这边。",
    ),
    (_OTHERS, _seer_may_be_sheriff, "警徽应当交给更可信的预言家；没有查验不必抢警徽，上了警也可以退水。"),
    (_WITCH, _wolves_may_trick_the_witch, "首夜被袭击的也可能是自刀的狼人，银水不一定是好人。"),
    (_GUARD, _antidote_may_meet_the_guard, "首夜女巫多半会用解药，空守可以避免同守同救。"),
)
"""(roles, where it holds, what it says)."""

_EXPLOSION = "局面不利时可以自爆，中断当天的发言和投票。"
_EXPLOSION_IN_ELECTION = "警长选出前自爆，预言家当天就拿不到警徽。"


def guidance(preset: Preset, role: Role) -> str:
    """How to play ``role`` under the rules of ``preset``; without placeholders."""
    advice = [text for roles, holds, text in _ADVICE if role in roles and holds(preset)]
    if preset.may_explode(role):
        advice.append(_EXPLOSION)
        if preset.sheriff:
            advice.append(_EXPLOSION_IN_ELECTION)
    return "".join((GUIDANCE[role], *advice))
