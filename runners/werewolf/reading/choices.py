"""Which choice a text states, if it states exactly one: in a clause that says it and nothing else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from runners.werewolf.game import Decision, Option, Request
from runners.werewolf.prompts_zh.names import OPTION_WORDS, PASS_WORDS
from runners.werewolf.reading import words
from runners.werewolf.reading.clauses import LONGEST_CLAUSE, Clause, clauses_of, digits

Stated = str | Option | None
"""A seat's number as it was written (it may be of any length), an option, or nobody."""

_NO_WORDS = words.Words(before=r"(?!)")
_TOWARDS = r"(?:把|将|让|给|对|向|朝|由)"
_PRONOUN = re.compile(r"(?:他|她|它|这个人|此人)?")
_LEAD_IN = re.compile(words.LEAD_IN)
_LEAD_IN_EN = re.compile(words.LEAD_IN_EN)
_ENGLISH = re.compile(r"[a-z]{2}")
_NEGATED_ENGLISH = re.compile(
    r"(?:i |we )?(?:will |do |am |would |should |can )?(?:not|dont|wont|never|cannot|cant)(?: going)?(?: to)? "
)
_NUMBER = re.compile(words.NUMBER)
_MYSELF = re.compile("我?自己")
_SEAT_NUMBER = re.compile(rf"{words.NUMBER}(?=号)")
_SETTLING = re.compile(r"选|决定|(?:投票|答案|结论|目标|票)(?:对象|目标)?(?:就?是|为)$")
"""Words before a seat alone that make a choice of it."""
_CANONICAL = frozenset({*OPTION_WORDS.values(), *PASS_WORDS.values()})
_MOST_STATEMENTS = 20
"""A text with more is a loop, and none of them is looked at further."""
_SAVE = re.compile(words.SAVE)
_DIGITS = re.compile("[0-9]+")
_LONG_SEAT = re.compile("[0-9]+号")


@dataclass(frozen=True, slots=True)
class Statement:
    """What a clause states. bare: a seat alone, without a verb. mine: in the first person."""

    stated: Stated
    bare: bool = False
    mine: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text states. stated: everything that is chosen, at most once each. problem: why none of it may count.

    problem is a code of ``replies.ReplyError``, or "" where exactly one choice is stated in earnest.
    rejected: what it says is not chosen.
    """

    stated: tuple[Stated, ...]
    problem: str
    rejected: tuple[Stated, ...] = ()


def read_choice(answer: str, request: Request, *, marked: bool, rest: str = "", first_only: bool = False) -> Reading:
    """What the plain text ``answer`` chooses.

    marked: whether it stands where the decision belongs; elsewhere a seat alone counts only on a line of its own.
    rest: what follows a marked answer, which may take it back.
    first_only: whether only the first sentence counts, since the text was cut off.
    """
    answer = answer.strip().removeprefix(f"{request.seat}号:")
    return _Reader(request, marked, first_only).read(clauses_of(answer), clauses_of(rest))


def statement_of(text: str, request: Request) -> Statement | None:
    """What a clause states, if it states a choice and nothing else."""
    if len(text) > LONGEST_CLAUSE:
        return None
    return _statement(text, request.decision, request.seat, frozenset(request.options), request.subject)


def names_option(text: str, option: Option) -> bool:
    """Whether a plain text has the word of ``option`` somewhere."""
    return OPTION_WORDS[option] in text or (option is Option.EXPLODE and "自曝" in text)


def options_taken(text: str, request: Request) -> tuple[set[Option], bool]:
    """(offered options that a plain speech says are taken, whether it nearly says so of one)."""
    taken: set[Option] = set()
    nearly = False
    for clause in clauses_of(text):
        offered = [option for option in request.options if names_option(clause.text, option)]
        if not offered or clause.supposed or len(clause.text) > LONGEST_CLAUSE:
            continue
        statement = statement_of(clause.text, request)
        if statement is not None and isinstance(statement.stated, Option):
            if clause.earnest:
                taken.add(statement.stated)
            nearly = nearly or not clause.earnest
        elif not words.NEGATION.search(clause.text):
            nearly = nearly or words.NEARLY_TAKEN.match(clause.text) is not None
    return taken, nearly


def seats_proposed(text: str, request: Request) -> set[str]:
    """Seats that a plain speech names in the way that its question asks for: 归票3号, or 今晚刀3号 among wolves."""
    proposed: set[str] = set()
    for clause in clauses_of(text):
        if not clause.earnest or (request.decision is Decision.CLOSING_SPEECH and "归" not in clause.text):
            continue
        statement = statement_of(clause.text, request)
        if statement is not None and not statement.bare and isinstance(statement.stated, str):
            proposed.add(statement.stated)
    return proposed


class _Reader:
    def __init__(self, request: Request, marked: bool, first_only: bool):
        self._request = request
        self._marked = marked
        self._first_only = first_only

    def read(self, clauses: Sequence[Clause], rest: Sequence[Clause]) -> Reading:
        stated: dict[Stated, None] = {}
        problem = ""
        led_in = True  # only words that lead in have come so far
        first = len(clauses)
        count = 0
        for index, clause in enumerate(clauses):
            statement = statement_of(digits(clause.text), self._request)
            if statement is not None and self._counts(clause, statement, clauses, index, led_in):
                count += 1
                if clause.alternative or count > _MOST_STATEMENTS:
                    problem = problem or "ambiguous"
                elif doubt := self._taken_back(index, statement, clauses):
                    problem = problem or doubt
                stated[statement.stated] = None
                first = min(first, index)
            elif self._unsettled(clause, bool(stated)):
                problem = problem or "negated"
            elif self._marked and statement is not None and statement.bare and statement.stated not in stated:
                problem = problem or "ambiguous"  # a list of seats
            led_in = led_in and not _LEAD_IN.sub("", clause.text, count=1)
        rejections = [_rejected(clause.text, self._request) for clause in clauses]
        rejected = tuple(one for rejection in rejections if rejection for one in rejection)
        # A refusal that names nobody is of what was spoken of before it: 昨天投了他，今天不会了，我投3号.
        begin = 0 if self._marked else first
        problem = (
            problem or self._contradiction(stated, clauses, rest) or ("negated" if () in rejections[begin:] else "")
        )
        problem = problem or ("negated" if any(one in stated for one in rejected) else "")
        if not stated:
            problem = problem or self._why_nothing(clauses)
        return Reading(tuple(stated), "ambiguous" if len(stated) > 1 else problem, rejected)

    def _counts(
        self, clause: Clause, statement: Statement, clauses: Sequence[Clause], index: int, led_in: bool
    ) -> bool:
        if not clause.earnest or (self._first_only and clause.sentence > 0):
            return False
        if '"' in clause.text and not (self._marked or len(clauses) == 1 or clause.text.startswith("我")):
            return False
        if clause.label:
            return False
        if not statement.bare:
            return True
        if self._marked:
            return clause.sentence == clauses[0].sentence and led_in
        alone = clause.place == 0 and clause.last
        outermost = clause.sentence in (clauses[0].sentence, clauses[-1].sentence)
        return alone and outermost and not (index > 0 and clauses[index - 1].label)

    def _taken_back(self, index: int, statement: Statement, clauses: Sequence[Clause]) -> str:
        for number in range(index + 1, len(clauses)):
            later = clauses[number]
            same_sentence = later.sentence == clauses[index].sentence
            if not (same_sentence or statement.bare):
                break
            if same_sentence and words.CONTRAST.match(later.text):
                return "ambiguous"
            following = number == index + 1 and same_sentence
            if following and not statement.mine and words.CONSEQUENCE.match(later.text):
                return "no_choice"
            if self._speaks_against(later):
                return "ambiguous"
        return ""

    def _speaks_against(self, later: Clause) -> bool:
        if _SEAT_NUMBER.search(later.text):
            return False
        decision = self._request.decision
        return (decision in words.HOSTILE and bool(words.GOOD_WORD.search(later.text))) or (
            decision in words.TRUSTING and bool(words.BAD_WORD.search(later.text))
        )

    def _unsettled(self, clause: Clause, after_statement: bool) -> bool:
        """Whether a clause says that nothing is settled: where the decision belongs, or behind a statement."""
        if len(clause.text) > LONGEST_CLAUSE or not (self._marked or after_statement):
            return False
        return bool(words.DOUBT.fullmatch(clause.text))

    def _contradiction(self, stated: dict[Stated, None], clauses: Sequence[Clause], rest: Sequence[Clause]) -> str:
        for clause in rest:
            if len(clause.text) <= LONGEST_CLAUSE and words.DOUBT.fullmatch(clause.text):
                return "negated"
            later = statement_of(clause.text, self._request)
            if later is not None and not later.bare and clause.earnest and later.stated not in stated:
                return "ambiguous"
        taken_back = None not in stated and any(
            len(clause.text) <= LONGEST_CLAUSE and words.BARE_NEGATION.fullmatch(clause.text) for clause in clauses
        )
        return "negated" if taken_back else ""

    def _why_nothing(self, clauses: Sequence[Clause]) -> str:
        if len(clauses) == 1 and clauses[0].earnest:
            only = clauses[0].text
            witch = self._request.decision is Decision.WITCH
            if only in _CANONICAL or _SAVE.fullmatch(only) or (_LONG_SEAT.fullmatch(only) and not witch):
                return "illegal_target"
        mentioned = {number for clause in clauses for number in _DIGITS.findall(clause.text)}
        if len(mentioned) > 1:
            return "ambiguous"
        if any(words.NEGATION.search(clause.text) for clause in clauses):
            return "negated"
        return "ambiguous" if self._request.decision is Decision.WITCH and mentioned else "no_choice"


def _rejected(text: str, request: Request) -> tuple[Stated, ...] | None:
    """What a clause refuses to choose; empty for whatever was spoken of before, None where it refuses nothing."""
    if len(text) > LONGEST_CLAUSE or statement_of(text, request) is not None:
        return None
    core = _LEAD_IN.sub("", text, count=1)
    grammar = _grammar(request.decision)
    if negated := words.NEGATED_VERB.match(core) or re.match(r"并?(?:不是|非)", core):
        rest = core[negated.end() :]
        statement = statement_of(rest, request)
        if statement is not None:
            return (statement.stated,)
        return () if rest and grammar.verb_alone.fullmatch(rest) else None
    if negated := _NEGATED_ENGLISH.match(core):
        statement = statement_of(core[negated.end() :], request)
        return None if statement is None else (statement.stated,)
    if seat := grammar.seat_refused.fullmatch(core):
        return (_number(seat[0]),)
    return None


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The patterns of one kind of question, each for a whole clause behind its lead-in."""

    nobody: re.Pattern[str]
    seat: re.Pattern[str]
    bare: re.Pattern[str]
    number: re.Pattern[str]
    english: re.Pattern[str]
    english_nobody: re.Pattern[str]
    verb_alone: re.Pattern[str]
    seat_refused: re.Pattern[str]


@lru_cache
def _grammar(decision: Decision) -> _Grammar:
    of = words.WORDS.get(decision, _NO_WORDS)
    out, aim = words.LEAD_OUT, of.aim
    word = re.escape(PASS_WORDS[decision]) if decision in PASS_WORDS else r"(?!)"
    if decision is Decision.WITCH:
        seat, english, bare = words.POISON_WORD, words.POISON_EN, r"(?!)"
    else:
        seat = rf"(?:{of.before}){words.SEAT}{aim}|{_TOWARDS}{words.SEAT}(?:{of.after}){aim}"
        english, bare = rf"(?:{of.english}){words.SEAT_EN}{aim}", words.NAMED_SEAT + aim
    return _Grammar(
        nobody=re.compile(rf"(?:{word}|{of.nobody}){out}"),
        seat=re.compile(rf"(?:{seat}){out}"),
        bare=re.compile(rf"(?:{bare}){out}"),
        number=re.compile(words.NUMBER if decision is not Decision.WITCH else r"(?!)"),
        english=re.compile(rf"(?:{english}){words.LEAD_OUT_EN}"),
        english_nobody=re.compile(rf"(?:{of.english_nobody}){words.LEAD_OUT_EN}"),
        verb_alone=re.compile(rf"(?:{of.before})?(?:{of.after}|投|守|刀|验|打|给|毒|救|选)?{_PRONOUN.pattern}{out}"),
        seat_refused=re.compile(rf"{words.NAMED_SEAT}(?:我)?(?:{words.NEGATED_VERB.pattern}).{{0,6}}"),
    )


_OPTION_PATTERNS = {option: re.compile(rf"(?:{form}){words.LEAD_OUT}") for option, form in words.OPTIONS.items()}
_OPTION_PATTERNS_EN = {
    option: re.compile(rf"(?:{form}){words.LEAD_OUT_EN}") for option, form in words.OPTIONS_EN.items()
}


@lru_cache(maxsize=4096)
def _statement(
    text: str, decision: Decision, me: int, offered: frozenset[Option], subject: int | None
) -> Statement | None:
    text = text.replace('"', "").rstrip("~ ")
    core = _LEAD_IN.sub("", text, count=1)
    own = f"{me}号"
    if core.startswith(own) and len(core) > len(own):  # 2号投3号
        core = _LEAD_IN.sub("", core[len(own) :].lstrip(), count=1)
    if decision in words.MAY_NAME_ITSELF:
        core = _MYSELF.sub(own, core)
    mine = text.startswith(("我", "本人", own)) or core != text
    named = core == text or not _SETTLING.search(text[: len(text) - len(core)])
    grammar = _grammar(decision)
    if grammar.nobody.fullmatch(core):
        return Statement(None, mine=mine)
    for option in offered:
        if _OPTION_PATTERNS[option].fullmatch(core):
            return Statement(_whom_saved(core, option, subject), mine=mine)
    if grammar.seat.fullmatch(core):
        return Statement(_number(core), mine=mine)
    if grammar.bare.fullmatch(core) or grammar.number.fullmatch(core):
        return Statement(_number(core), bare=named, mine=mine)
    if _ENGLISH.search(text):
        return _english_statement(text, grammar, offered, subject)
    return None


def _whom_saved(core: str, option: Option, subject: int | None) -> Stated:
    """The option, or the number of a seat that cannot be saved."""
    number = _NUMBER.search(core) if option is Option.SAVE else None
    return option if number is None or number[0].lstrip("0") == str(subject) else f"救{number[0]}"


def _english_statement(
    text: str, grammar: _Grammar, offered: frozenset[Option], subject: int | None
) -> Statement | None:
    core = _LEAD_IN_EN.sub("", text, count=1)
    if grammar.english_nobody.fullmatch(core):
        return Statement(None, mine=True)
    for option in offered:
        if _OPTION_PATTERNS_EN[option].fullmatch(core):
            return Statement(_whom_saved(core, option, subject), mine=True)
    if grammar.english.fullmatch(core) or (core != text and re.fullmatch(words.SEAT_EN, core)):
        return Statement(_number(core), mine=True)
    return None


def _number(text: str) -> str:
    return _NUMBER.search(text)[0].lstrip("0") or "0"
