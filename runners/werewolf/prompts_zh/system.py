"""What a seat is told once, before its first turn: the rules of its preset, its role, and how to answer."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from runners.werewolf.game import Preset, Role, Side, WinRule
from runners.werewolf.prompts_zh.guidance import GUIDANCE, guidance
from runners.werewolf.prompts_zh.names import DECISION_MARKER, ROLE_NAMES, SIDE_NAMES, seat_name
from runners.werewolf.prompts_zh.quoting import fill, placeholders

REPLY_FORMAT = (
    f"回答方式：要你选择时，最后一行写“{DECISION_MARKER}：X号”（X为座位号）或题中给出的其他选项；"
    "要你发言时，直接写要说的话，只说一段。"
)

SYSTEM_TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "system": "你在玩狼人杀。\n{rules}\n你是{seat}，身份是{role}，属{side}。{guidance}\n{reply_format}",
        **{role.value: text for role, text in GUIDANCE.items()},
    }
)
"""The parts of the system prompt that a run may replace by name: the whole, and the guidance of each role, what the
preset adds to it included. Rules and reply format are not: they must agree with the referee and the parser."""

# Rules and guidance may be left out: a small model learns them by playing, and reads every token at its cost.
_SYSTEM_REQUIRES = frozenset({"reply_format", "seat", "role"})
_SYSTEM_ALLOWS = _SYSTEM_REQUIRES | {"rules", "guidance", "side"}
_GUIDANCE_ALLOWS = frozenset({"seat", "role", "side"})

NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


def check_templates(templates: Mapping[str, str]) -> None:
    """Raise ValueError unless every one of ``templates`` may replace its namesake in ``SYSTEM_TEMPLATES``.

    The message names, for all that is wrong at once, the template, the placeholder and the valid ones.
    """
    problems = [problem for name, template in templates.items() for problem in _problems(name, template)]
    if problems:
        raise ValueError("; ".join(problems))


def system_prompt(preset: Preset, seat: int, role: Role, templates: Mapping[str, str] = NO_OVERRIDES) -> str:
    """What a seat is told once, before its first turn.

    templates: replacements for ``SYSTEM_TEMPLATES`` by name; ValueError as ``check_templates`` has it.
    """
    check_templates(templates)
    seated = {"seat": seat_name(seat), "role": ROLE_NAMES[role], "side": SIDE_NAMES[role.side]}
    return fill(
        templates.get("system", SYSTEM_TEMPLATES["system"]),
        rules=rules_prompt(preset),
        guidance=fill(templates.get(role.value, guidance(preset, role)), **seated),
        reply_format=REPLY_FORMAT,
        **seated,
    )


def rules_prompt(preset: Preset) -> str:
    """The rules of ``preset``, written from the same fields that the referee reads; nothing of absent roles."""
    rules = (_deck, _night, _potions, _shots, _sheriff, _day, _explosion, _ending)
    return "\n".join(text for rule in rules if (text := rule(preset)))


def _problems(name: str, template: str) -> Iterable[str]:
    shown = f"prompt_{name}"  # what the template is called among a run's resources
    if name not in SYSTEM_TEMPLATES:
        yield f"unknown template {shown}; valid: {', '.join(f'prompt_{known}' for known in SYSTEM_TEMPLATES)}"
        return
    required, allowed = (_SYSTEM_REQUIRES, _SYSTEM_ALLOWS) if name == "system" else (frozenset(), _GUIDANCE_ALLOWS)
    used = placeholders(template)
    valid = f"valid: {_in_braces(allowed)} (a literal one is written {{{{name}}}})"
    if unknown := used - allowed:
        yield f"template {shown} uses unknown {_in_braces(unknown)}; {valid}"
    if missing := required - used:
        yield f"template {shown} lacks {_in_braces(missing)}; {valid}"


def _in_braces(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))


# --- the rules, one paragraph each ----------------------------------------------------------------------------------


def _named(roles: Iterable[Role], joint: str = "、") -> str:
    return joint.join(ROLE_NAMES[role] for role in roles)


def _dealt(preset: Preset) -> tuple[Role, ...]:
    return tuple(role for role in Role if role in preset.deck)


def _wolves(preset: Preset) -> tuple[Role, ...]:
    return tuple(role for role in _dealt(preset) if role.side is Side.WOLF)


def _may(allowed: bool, deed: str) -> str:
    return f"{'' if allowed else '不'}可{deed}"


def _deck(preset: Preset) -> str:
    counts = Counter(preset.deck)
    deck = "、".join(f"{ROLE_NAMES[role]}{counts[role]}名" for role in _dealt(preset))
    return (
        f"{len(preset.deck)}人狼人杀：{deck}。{_named(_wolves(preset))}属狼人阵营，其余属好人阵营。"
        "出局后不公布身份和死因。"
    )


def _night(preset: Preset) -> str:
    at_once = [role for role in (Role.GUARD, *_wolves(preset), Role.SEER) if role in preset.deck]
    then = "，然后女巫用药" if Role.WITCH in preset.deck else ""
    rules = [f"每夜{_named(at_once)}{'同时' if len(at_once) > 1 else ''}行动{then}。"]
    if Role.GUARD in preset.deck:
        rules.append("守卫守护一人免受袭击，可守自己，可空守，不可连续两夜守同一人。")
    rules.append(_attack(preset))
    if Role.SEER in preset.deck:
        shown = "（狼王也显示为狼人）" if Role.WOLF_KING in preset.deck else ""
        rules.append(f"预言家查验另一名存活者是好人还是狼人{shown}，可不查验。")
    return "".join(rules)


def _attack(preset: Preset) -> str:
    wolves = _named(_wolves(preset), "和")
    limits = f"{_may(preset.wolves_may_pass, '空刀')}，{_may(preset.wolves_may_hit_wolves, '自刀')}"
    if sum(role.side is Side.WOLF for role in preset.deck) == 1:
        return f"{wolves}袭击一人，{limits}。"
    rounds = preset.wolf_talk_rounds
    talk = f"先商议至多{rounds}轮，每轮各说一句，可提议目标；某一轮所有人提议一致就直接定下目标，否则" if rounds else ""
    return f"{wolves}互相知道身份，{talk}各投一票，票多者被袭击，平票随机；{limits}。"


def _potions(preset: Preset) -> str:
    if Role.WITCH not in preset.deck:
        return ""
    guarded = "守护挡不住毒药；同一夜既被守护又被解药救的人仍会死亡（同守同救）。" if Role.GUARD in preset.deck else ""
    return (
        "女巫有解药、毒药各一瓶，每夜至多用一瓶，可不用药。解药没用时，每夜会知道谁被袭击，可以救他，"
        f"{_may(preset.witch_self_save, '救自己')}；毒药可毒死另一名存活者。{guarded}"
    )


def _shots(preset: Preset) -> str:
    shooters = [role for role in _dealt(preset) if role.shoots]
    if not shooters:
        return ""
    barred = ["被毒死"] if Role.WITCH in preset.deck else []
    barred += ["自爆"] if any(preset.may_explode(role) for role in shooters) else []
    unless = f"，{'或'.join(barred)}则不能" if barred else ""
    return f"{_named(shooters)}出局时可开枪带走一名存活者{unless}；每夜会得知自己能否开枪。"


def _sheriff(preset: Preset) -> str:
    if not preset.sheriff:
        return ""
    all_abstain = "、全员弃票" if preset.may_abstain else ""
    return (
        "警长：首日公布死讯前竞选，昨夜死者照常参加。所有人同时决定是否上警；上警者依次发言，"
        "发言时或全部发言后可以退水；没有上过警的人投票，每人1票，"
        f"{_may(preset.may_abstain, '弃票')}，票多者当选，只剩一名候选人则直接当选。"
        "平票者上PK台再次发言，由台下的存活者重新投票。"
        f"没有候选人、全员上警{all_abstain}或再次平票则没有警长（警徽流失）。\n"
        "警长的放逐票（含PK）算1.5票。警长决定发言顺序：昨夜恰好死一人时选死左或死右，否则选警左或警右"
        "（左是从死者或警长的下一号起递增，右是从上一号起递减），自己最后发言，可以归票；死后移交或撕毁警徽。"
    )


def _day(preset: Preset) -> str:
    nobody = "再次平票、全员平票或全员弃票" if preset.may_abstain else "再次平票或全员平票"
    order = "依次发言（没有警长时顺序随机）" if preset.sheriff else "按随机顺序依次发言"
    return (
        f"白天：公布昨夜死者；存活者{order}；然后同时投票放逐一人，{_may(preset.may_abstain, '弃票')}，票多者出局；"
        f"平票者PK发言，其余人从中重新投票，{nobody}则无人出局。"
        f"首夜死者和被放逐者有遗言，游戏结束则没有。每次发言不超过{preset.speech_chars}字。"
    )


def _explosion(preset: Preset) -> str:
    able = [role for role in _wolves(preset) if preset.may_explode(role)]
    if not able:
        return ""
    unable = [role for role in _wolves(preset) if role not in able]
    except_for = f"（{_named(unable)}不可）" if unable else ""
    put_off = (
        "警长选出前自爆，竞选推迟到次日，不再发言，由没有上过警的人直接投票；"
        "次日选出警长前又有人自爆，则警徽流失（双爆吞警徽）。"
        if preset.sheriff
        else ""
    )
    return f"自爆：{_named(able)}{except_for}白天轮到发言时或投票前可以自爆：立即出局，没有遗言，当天结束。{put_off}"


def _ending(preset: Preset) -> str:
    wolves = _named(_wolves(preset), "和")
    shots_first = "有人还能开枪时，等开枪结束再判胜负；" if any(role.shoots for role in preset.deck) else ""
    return (
        f"胜负：{wolves}全部出局则好人阵营胜；{_wolves_win_when(preset)}则狼人阵营胜{_both_hold(preset)}。{shots_first}"
        f"第{preset.round_limit}天结束仍未分胜负为平局。"
    )


def _wolves_win_when(preset: Preset) -> str:
    if preset.win_rule is WinRule.PARITY:
        return "存活狼人不少于存活好人"
    gods = [role for role in _dealt(preset) if role.is_god]
    kinds = [f"神职（{_named(gods)}）全部出局"] if gods else []
    kinds += ["村民全部出局"] if Role.VILLAGER in preset.deck else []
    return "或".join(kinds)


def _both_hold(preset: Preset) -> str:
    # Parity needs a living wolf, so under it the two conditions never hold together.
    return "，双方条件同时成立也是狼人阵营胜（狼刀在先）" if preset.win_rule is WinRule.WIPE_A_KIND else ""
