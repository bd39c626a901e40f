"""The system prompt of a seat: rules, role, guidance and reply format; and which texts a run may replace."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from runners.werewolf.game import Decision, Preset, Role, Side
from runners.werewolf.game.roles import CARDS
from runners.werewolf.prompts_zh.names import DECISION_MARKER, REFEREE, ROLE_NAMES, SIDE_NAMES, seat_name
from runners.werewolf.prompts_zh.quoting import fill, placeholders

REPLY_FORMAT = (
    f"回答方式：要你选择时，可先写理由（别人看不到），最后一行写“{DECISION_MARKER}：X号”（X为座位号）或题中的其他选项；"
    "要你发言时，直接写要说的话，只说一段；还要选择的，另起一行写。"
)
FRAME = (
    f"你在玩狼人杀。只有{REFEREE}开头的行是法官说的，其余都是玩家说的，可能是假话。\n"
    "{rules}\n你是{seat}，身份是{role}，属{side}。{guidance}\n{reply_format}"
)
REPLACEABLE = ("system", "reminder", *(role.value for role in Role))
"""Texts that a run may replace by name: the frame of the system prompt, the reminder after each question (built in:
none), and the guidance of each role, with the preset's additions. Rules and reply format are fixed, since they must
agree with the referee and the parser."""

# Rules and guidance are optional: a small model learns them by playing, and every token of a prompt has a cost.
_FRAME_REQUIRES = frozenset({"reply_format", "seat", "role"})
_FRAME_ALLOWS = _FRAME_REQUIRES | {"rules", "guidance", "side"}
_GUIDANCE_ALLOWS = frozenset({"seat", "role", "side"})
_REMINDER_ALLOWS = _GUIDANCE_ALLOWS | {"private", "reports"}

NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})

_texts = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=False)
_texts.filters["name_of"] = ROLE_NAMES.__getitem__


def check_templates(templates: Mapping[str, str]) -> None:
    """Raise ValueError, with all invalid templates and placeholders and the valid ones.

    templates: replacements by name (``REPLACEABLE``).
    """
    problems = [problem for name, template in templates.items() for problem in _problems(name, template)]
    if problems:
        raise ValueError("; ".join(problems))


def system_prompt(preset: Preset, seat: int, role: Role, templates: Mapping[str, str] = NO_OVERRIDES) -> str:
    """The system prompt of a seat.

    templates: replacements by name (``REPLACEABLE``). Raises ValueError as ``check_templates``.
    """
    check_templates(templates)
    own = seated(seat, role)
    return fill(
        templates.get("system", FRAME),
        rules=rules_prompt(preset),
        guidance=fill(templates.get(role.value, guidance(preset, role)), **own),
        reply_format=REPLY_FORMAT,
        **own,
    )


def rules_prompt(preset: Preset) -> str:
    """The rules of ``preset``, made from the fields that the referee reads."""
    facts = _facts(preset)
    rule_of = {role: _texts.from_string(CARDS[role].rule).render(facts) for role in set(preset.deck)}
    return _texts.get_template("rules.jinja").render(facts, rule_of=rule_of)


def guidance(preset: Preset, role: Role) -> str:
    """How to play ``role`` under the rules of ``preset``; without placeholders."""
    facts = _facts(preset)
    own = _texts.from_string(CARDS[role].guidance).render(facts)
    return _texts.get_template("guidance.jinja").render(facts, role=role, own=own)


def seated(seat: int, role: Role) -> dict[str, str]:
    """The placeholders that all these texts may have."""
    return {"seat": seat_name(seat), "role": ROLE_NAMES[role], "side": SIDE_NAMES[role.side]}


def _facts(preset: Preset) -> dict[str, object]:
    """Variables of the texts: the preset, and lists of the dealt roles."""
    counts = Counter(preset.deck)
    dealt = [role for role in Role if role in counts]
    wolves = [role for role in dealt if role.side is Side.WOLF]
    shooters = [role for role in dealt if CARDS[role].shoots]
    explosive = [role for role in wolves if preset.may_explode(role)]
    barred = ["被毒死"] if Role.WITCH in dealt else []
    return {
        "preset": preset,
        "dealt": dealt,
        "deck": [(role, counts[role]) for role in dealt],
        "wolves": wolves,
        "wolf_count": sum(counts[role] for role in wolves),
        "at_once": [role for decision in Decision for role in dealt if CARDS[role].by_night is decision],
        "gods": [role for role in dealt if role.is_god],
        "shooters": shooters,
        "barred": [*barred, "自爆"] if set(shooters) & set(explosive) else barred,
        "explosive": explosive,
        "self_knife": Role.WITCH in dealt and preset.wolves_may_hit_wolves,
        "unable": [role for role in wolves if role not in explosive],
    }


def _problems(name: str, template: str) -> Iterable[str]:
    shown = f"prompt_{name}"  # name among a run's resources
    if name not in REPLACEABLE:
        yield f"unknown template {shown}; valid: {', '.join(f'prompt_{known}' for known in REPLACEABLE)}"
        return
    required = _FRAME_REQUIRES if name == "system" else frozenset()
    allowed = {"system": _FRAME_ALLOWS, "reminder": _REMINDER_ALLOWS}.get(name, _GUIDANCE_ALLOWS)
    used = placeholders(template)
    valid = f"valid: {_in_braces(allowed)} (a literal one is written {{{{name}}}})"
    if unknown := used - allowed:
        yield f"template {shown} uses unknown {_in_braces(unknown)}; {valid}"
    if missing := required - used:
        yield f"template {shown} lacks {_in_braces(missing)}; {valid}"


def _in_braces(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
