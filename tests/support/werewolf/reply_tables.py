"""The tables of replies in ``tests/runners/werewolf/language``: the questions, and how the lines are read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runners.werewolf.game import PRESETS, Action, Choice, Decision, Observation, Option, Phase, Request, Role, Unsaved
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.prompts_zh.names import OPTION_WORDS, choice_name

FOLDER = Path(__file__).parents[2] / "runners" / "werewolf" / "language"
REASK = "re-ask"
_ALL = (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
_PHASES = {
    **{decision: decision.value for decision in Decision},
    **dict.fromkeys((Decision.GUARD, Decision.WOLF_KILL, Decision.SEER_CHECK), Phase.NIGHT_ACTIONS),
    **dict.fromkeys((Decision.SPEECH, Decision.CLOSING_SPEECH), Phase.DISCUSSION),
    Decision.EXPLOSION: Phase.SHERIFF_VOTE,
    Decision.TAKE: Phase.SHOT,
    Decision.WITCH: Phase.WITCH_ACTION,
    Decision.CAMPAIGN_SPEECH: Phase.CAMPAIGN,
}


def ask(decision, targets=(), options=(), *, may_pass=True, chars=0, subject=None) -> Request:
    """A question to seat 2 on day 1, whose default is nobody or the first that may be chosen."""
    default = Action() if may_pass else Action((*targets, *options)[0])
    return Request(2, decision, 1, Phase(_PHASES[decision]), targets, options, may_pass, chars, default, subject)


_EXPLODE, _SAVE = (Option.EXPLODE,), (Option.SAVE,)
QUESTIONS = {
    "vote": ask(Decision.EXILE_VOTE, _ALL),
    "forced_vote": ask(Decision.EXILE_VOTE, _ALL, may_pass=False),
    "wolf_vote": ask(Decision.EXILE_VOTE, _ALL, _EXPLODE),
    "pk": ask(Decision.PK_VOTE, (3, 7)),
    "sheriff": ask(Decision.SHERIFF_VOTE, (3, 5, 9, 11)),
    "sign_up": ask(Decision.SIGN_UP, (), (Option.RUN,)),
    "badge": ask(Decision.BADGE, _ALL),
    "order": ask(Decision.SPEAKING_ORDER, (), (Option.SHERIFF_LEFT, Option.SHERIFF_RIGHT), may_pass=False),
    "dead_order": ask(Decision.SPEAKING_ORDER, (), (Option.DEAD_LEFT, Option.DEAD_RIGHT), may_pass=False),
    "guard": ask(Decision.GUARD, (1, 2, *_ALL[1:])),
    "kill": ask(Decision.WOLF_KILL, (1, 2, *_ALL[1:])),
    "check": ask(Decision.SEER_CHECK, _ALL),
    "shot": ask(Decision.SHOT, _ALL),
    "duel": ask(Decision.DUEL, _ALL),
    "take": ask(Decision.TAKE, _ALL),
    "witch": ask(Decision.WITCH, _ALL, _SAVE, subject=5),
    "poison": replace(ask(Decision.WITCH, _ALL), unsaved=Unsaved.USED),
    "save": ask(Decision.WITCH, (), _SAVE, subject=5),
    "speech": ask(Decision.SPEECH, chars=200),
    "wolf_speech": ask(Decision.SPEECH, (), _EXPLODE, chars=200),
    "campaign": ask(Decision.CAMPAIGN_SPEECH, (), (Option.WITHDRAW,), chars=200),
    "wolf_campaign": ask(Decision.CAMPAIGN_SPEECH, (), (Option.WITHDRAW, Option.EXPLODE), chars=200),
    "closing": ask(Decision.CLOSING_SPEECH, _ALL, chars=200),
    "wolf_closing": ask(Decision.CLOSING_SPEECH, _ALL, _EXPLODE, chars=200),
    "sheriff_pk_speech": ask(Decision.SHERIFF_PK_SPEECH, (), _EXPLODE, chars=200),
    "sheriff_pk": ask(Decision.SHERIFF_PK_VOTE, (3, 11), _EXPLODE),
    "pk_speech": ask(Decision.PK_SPEECH, (), _EXPLODE, chars=200),
    "last_words": ask(Decision.LAST_WORDS, chars=200),
    "withdrawal": ask(Decision.WITHDRAWAL, (), (Option.WITHDRAW, Option.EXPLODE)),
    "explosion": ask(Decision.EXPLOSION, (), _EXPLODE),
    "talk": ask(Decision.WOLF_TALK, (1, 2, *_ALL[1:]), chars=200),
}


def seen(request: Request, *events, role: Role = Role.SEER, day: int = 1) -> Observation:
    """What seat 2 sees when it is asked."""
    living, deck = (2, *request.targets), PRESETS["12p_sheriff"].deck
    return Observation(2, role, role.side, day, request.phase, living, None, events, request, deck)


@dataclass(frozen=True)
class Row:
    """One line of a table. accepted: what its reply may be read as, the best first; see ``outcome``."""

    where: str
    question: str
    reply: str
    accepted: tuple[str, ...]

    def outcome(self, *, cut: bool = False) -> str:
        """Result of the parser: a choice's word, ``say: …``, both, or ``re-ask``."""
        request = QUESTIONS[self.question]
        try:
            action = parse_reply(self.reply, request, cut=cut)
        except ReplyError:
            return REASK
        chosen = "" if request.speaks and action.choice is None else _word(action.choice, request.decision)
        heard = f"say: {action.text}".strip() if request.speaks and action.choice is not Option.EXPLODE else ""
        return f"{chosen} {heard}".strip()


def rows(name: str) -> Iterator[Row]:
    """The rows of a table."""
    for number, line in enumerate((FOLDER / name).read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        question, reply, accepted = line.replace("\\|", "\0").split(" | ")
        text = reply.replace("\\\\", "\1").replace("\\n", "\n").replace("\0", "|").replace("\1", "\\")
        yield Row(f"{name}:{number}", question, text, tuple(part.strip() for part in accepted.split(" / ")))


def _word(choice: Choice, decision: Decision) -> str:
    return OPTION_WORDS[choice] if isinstance(choice, Option) else choice_name(choice, decision)
