r"""Graders: pure functions of an answer and a target that also say what they read.

    choice("…so the answer is (B).", "B")  →  Score(1.0, "B")
    number("<answer>54 minutes</answer>", "54")  →  Score(1.0, "54 minutes")

What counts is the answer a reply *states*: in `<answer>` tags, in `\boxed{}`, as the "answer" of a
JSON object, after "the answer is" or "####", or by being nothing but an answer. A reply that
states none scores 0 and says so; nothing is guessed from the text around it. Training is
rewarded by these same functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from podium.answers import READ_CHARS, read_answer
from podium.errors import ConfigError
from podium.eval.judges import judge

LITERAL_CHARS = 16 * 1024
"""A longer literal is not parsed: `ast` needs tens of milliseconds for twice as much."""

NOT_STATED = "no answer is stated"


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth, and what was read in it."""

    value: float | None
    """None: the grader itself could not run. Such a sample is unscored and counted apart."""
    answer: str | None
    """None: no answer could be read, and the value is 0."""
    note: str = ""


Grader = Callable[[str, object], Score]


def exact(text: str, target: object) -> Score:
    """The same words: spacing, case and a final full stop do not matter."""
    stated = read_answer(text)
    if stated is None:
        return Score(0.0, None, NOT_STATED)
    return Score(float(_plain(stated) == _plain(str(target))), stated)


def mentions(text: str, target: object) -> Score:
    """The target stands somewhere in the reply as a word, whatever its case."""
    found = re.search(rf"(?<!\w){re.escape(str(target))}(?!\w)", text[-READ_CHARS:], re.IGNORECASE)
    if found is None:
        return Score(0.0, None, f"does not mention {target}")
    return Score(1.0, found.group())


# ── multiple choice ──

_STATEMENT = re.compile(
    r"""
    (?: (?P<tag><answer>) | (?P<box>\\boxed\s*+\{) | (?P<field>"answer"\s*+:)
      | answer (?:\s++is|\s*+[:=]) | \#\#\#\# )
    (?P<wrap>(?:[\s*_`$"':({\[]|\\(?:text|textbf|mathrm|mathbf|boxed)\s*+\{|\\\(){0,40}+)
    (?:(?:option|choice|letter)\s++[*(]*+)?
    (?P<letter>[a-z]) (?![a-z0-9'’_^(|/]|\s*+=) (?=(?P<after>[^\n]{0,40}))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BARE = re.compile(
    r"(?:option\s++)?[\s*`$(\[]*+(?P<letter>[a-z])(?:[\s*`$)\].:]*+|[).:][^\n]*+)", re.I
)
_ALONE = re.compile(r"[\s*`$)\].}\"\\]*+(?:$|<)")
_ANOTHER = re.compile(r"[\s*)]*+(?:,|/|&|and\b|or\b)\s*+[*(]*+[A-Z](?![A-Za-z'’])")
_SECOND_THOUGHT = re.compile(
    r"\b(?:wait|actually|however|but|mistake|instead|no|sorry|check\w*|correct\w*)\b", re.I
)
RECITAL_CHARS = 160
"""Statements closer than this, with no second thought between them, are one recital."""
BARE_CHARS = 200
"""A reply that is nothing but an option is no longer than this."""


def choice(text: str, target: object) -> Score:
    """The stated option. `target` is its letter, or has its `letter` and all the `options`."""
    gold, options = _options(target)
    stated = _letter(text[-READ_CHARS:]) or _option_in_words(text, options)
    if stated is None:
        return Score(0.0, None, NOT_STATED)
    if len(stated) > 1:
        return Score(0.0, stated, "several options are named")
    if options and ord(stated) - ord("A") >= len(options):
        return Score(0.0, stated, "no option has this letter")
    return Score(float(stated == gold), stated)


def _options(target: object) -> tuple[str, Sequence[str]]:
    match target:
        case str(letter):
            return letter.strip().upper(), ()
        case {"letter": str(letter), "options": [*options]}:
            return letter.strip().upper(), [str(option) for option in options]
    raise ConfigError(f"a choice needs a letter, or letter and options, as its target: {target!r}")


def _letter(text: str) -> str | None:
    """The letter that the strongest kind of statement names: tag, box, field, prose."""
    found = [m for m in _STATEMENT.finditer(text) if _meant(m)]
    for kind in ("tag", "box", "field"):
        named = [m for m in found if m[kind] or (kind == "box" and "\\boxed" in m["wrap"])]
        if named:
            return _name(named[-1])
        if kind == "tag" and "</answer>" in text.casefold():
            return None  # it is stated in words
    if found:
        return _name(_conclusion(text, found))
    bare = _BARE.fullmatch(text.strip()) if len(text) <= BARE_CHARS else None
    return bare["letter"].upper() if bare else None


def _meant(statement: re.Match[str]) -> bool:
    """Whether a letter after "answer" names an option: "the answer is a matter of" names none.

    On a line of its own an option has to stand out, since "A. …" may begin a list of them all.
    """
    letter, after = statement["letter"], statement["after"]
    if statement["tag"] or statement["box"] or statement["field"] or _ALONE.match(after):
        return True
    if letter.islower() or (letter in "AI" and re.match(r"\s++[a-z]", after)):
        return False
    _, below, wrap = statement["wrap"].rpartition("\n")
    return not below or bool(wrap.strip())


def _conclusion(text: str, statements: Sequence[re.Match[str]]) -> re.Match[str]:
    """The last conclusion. What is recited right behind a conclusion does not take it back.

    Models that were shown worked examples like to list the answers to all of them at the end.
    """
    conclusion = statements[0]
    for before, statement in pairwise(statements):
        between = text[before.end("letter") : statement.start()]
        if len(between) > RECITAL_CHARS or _SECOND_THOUGHT.search(between):
            conclusion = statement
    return conclusion


def _name(statement: re.Match[str]) -> str:
    another = _ANOTHER.match(statement["after"])
    return statement["letter"].upper() + (another[0] if another else "")


def _option_in_words(text: str, options: Sequence[str]) -> str | None:
    """The letter of the one option whose very words are stated."""
    stated = read_answer(text) if options else None
    if stated is None:
        return None
    same = [i for i, option in enumerate(options) if _plain(option) == _plain(stated)]
    return chr(ord("A") + same[0]) if len(same) == 1 else None


# ── numbers ──

RELATIVE = Fraction(1, 1000)
"""RLPR's tolerance: 0.1 % of the reference."""
ABSOLUTE = Fraction(1, 1_000_000)
"""RLPR's tolerance where the reference is no larger than 1."""

_DIGITS = r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)(?:\.\d++)?|\.\d++"
_NUMBER = re.compile(
    rf"""
    (?<![\w.^]) (?P<sign>[-+]?) (?:
        \\[dt]?frac\{{\s*(?P<top>[-+]?\d{{1,40}})\s*\}}\{{\s*(?P<bottom>\d{{1,40}})\s*\}}
      | (?P<mantissa>{_DIGITS})
        (?: \s*/\s*(?P<over>\d{{1,40}})(?![\d.])
          | \s*(?:×|x|\*|\\times|\\cdot)\s*10\s*\^\s*\{{?(?P<power>[-+]?\d{{1,3}})\}}?
          | e(?P<e>[-+]?\d{{1,3}}) )?
    ) (?:_\{{?\w{{1,3}}\}}?)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|circ|degree)(?![a-z])|\\[!,;: ()\[\]$]|\{,\}(?=\D)|[$€£¥*`~]"
)
_UNIT = re.compile(r"/?\s*[A-Za-zµμΩ°]+(?:\s*/\s*[A-Za-z]+)?(?:\^\{?[-]?[123]\}?)?|[²³°%]")
_VARIABLE = re.compile(r"/?\s*[eijknpqrtxyzπθ](?![A-Za-z])")
_HOUR = re.compile(r"(?<!\d)(\d{1,2}):00(?!:?\d)")
NUMBER_CHARS = 400


def number(text: str, target: object) -> Score:
    """The stated number, within RLPR's tolerance of the target; or the very words of it."""
    return _compare(text, target, lambda a, b: abs(a - b) <= _tolerance(b))


def value(text: str, target: object) -> Score:
    """The stated number, equal to the target: `1,000.0` is `1000`, and 1001 is not."""
    return _compare(text, target, Fraction.__eq__)


def _tolerance(reference: Fraction) -> Fraction:
    return ABSOLUTE if abs(reference) <= 1 else RELATIVE * abs(reference)


def _compare(text: str, target: object, same: Callable[[Fraction, Fraction], bool]) -> Score:
    stated = read_answer(text)
    if stated is None:
        return Score(0.0, None, NOT_STATED)
    if _plain(stated) == _plain(str(target)):
        return Score(1.0, stated)
    ours, theirs = read_number(stated), read_number(str(target))
    if ours is None:
        return Score(0.0, stated, "the stated answer is not one number")
    return Score(float(theirs is not None and same(ours, theirs)), stated)


def read_number(stated: str) -> Fraction | None:
    """The one number in it, whatever its unit; None where there are several, or mathematics."""
    if len(stated) > NUMBER_CHARS:
        return None
    stated = _DROPPED.sub("", _TEXT.sub(r" \1 ", stated.replace("−", "-")))
    stated = _HOUR.sub(r"\1", stated.replace("{,}", ",").replace("\\%", "%"))
    left, _, right = stated.rpartition("=")
    found = list(_NUMBER.finditer(right))
    if len(found) != 1 or "," in left:
        return None
    around = right[: found[0].start()], right[found[0].end() :]
    if _VARIABLE.match(around[1]) or not _is_prose(" ".join(around)):
        return None
    return _fraction(found[0])


def _is_prose(around: str) -> bool:
    return not re.search(r"[\\^_+/<>|{}=×√∞±πθ\d]|(?:^|\s)-(?=\s|$)", _UNIT.sub("", around))


def _fraction(number: re.Match[str]) -> Fraction | None:
    sign = -1 if number["sign"] == "-" else 1
    top = number["top"] or number["mantissa"].replace(",", "")
    bottom = int(number["bottom"] or number["over"] or 1)
    power = int(number["power"] or number["e"] or 0)
    return sign * Fraction(top) / bottom * Fraction(10) ** power if bottom else None


# ── mathematics and literals ──


def math(text: str, target: object) -> Score:
    """Equal as mathematics, by math-verify, in a process that can be stopped.

    It waits for that process: on an event loop, call it in a thread.
    """
    stated = read_answer(text)
    if stated is None:
        return Score(0.0, None, NOT_STATED)
    if _plain(stated) == _plain(str(target)):
        return Score(1.0, stated)
    verdict = judge("math", stated, str(target))
    return Score(verdict.value, stated, verdict.note)


def literal(text: str, target: object) -> Score:
    """Equal as Python values; `target` is a literal in a string, or the value itself."""
    stated = read_answer(text)
    if stated is None:
        return Score(0.0, None, NOT_STATED)
    gold = _parse(target) if isinstance(target, str) else (target,)
    if gold is None:
        raise ConfigError(f"the target is not a Python literal: {target!r:.80}")
    found = _parse(stated)
    if found is None:
        return Score(0.0, stated, "the stated answer is not a Python literal")
    return Score(float(_equal(found[0], gold[0])), stated)


def _parse(source: str) -> tuple[object] | None:
    """The value in a tuple of one, since the value may itself be None."""
    if len(source) > LITERAL_CHARS:
        return None
    try:
        return (ast.literal_eval(source.strip()),)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _equal(a: object, b: object) -> bool:
    try:
        return isinstance(a, bool) == isinstance(b, bool) and a == b
    except RecursionError:
        return False


def _plain(words: str) -> str:
    return " ".join(words.casefold().split()).rstrip(".")


GRADERS: Mapping[str, Grader] = {
    "choice": choice,
    "exact": exact,
    "literal": literal,
    "math": math,
    "mentions": mentions,
    "number": number,
    "value": value,
}
"""By the name an item carries. Code and reasoning-gym are graded by `Task.grade` alone."""
