"""The skills: small exact functions on numbers, each with several ways to ask for it in words.

A skill is what one specialist of the pool can do. Digits are single tokens for the models used
here, so a skill that works digit by digit is learnt in minutes, and exactly. Numbers are split at
random: with one that appears in a test question nobody worked in training, neither a specialist
nor the Conductor. Digits 1 to 9 belong to every split, there being too few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

Numbers = tuple[int, ...]
Split = Literal["train", "dev", "test"]
Draw = Callable[[Random, Split], Numbers]


@dataclass(frozen=True, slots=True)
class Wordings:
    """Ways to say one thing, with `{x}` for the numbers or for what stands in their place."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    """Never read by anybody in training."""
    more: tuple[str, ...] = ()
    """Further ones of training questions, which the Conductor has to put into plainer words: a
    specialist meets none of them."""

    def of(self, split: Split) -> tuple[str, ...]:
        return self.test if split == "test" else self.train

    def asked(self, split: Split) -> tuple[str, ...]:
        """As people ask, not as a Conductor orders."""
        return self.test if split == "test" else (*self.train, *self.more)


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    """One line, fit for the card of a worker that has the skill."""
    apply: Callable[[Numbers], str]
    """The exact answer."""
    takes: Callable[[Numbers], bool]
    """Whether these numbers are within what its specialist is taught."""
    draw: Draw
    """Numbers as a question gives them."""
    reads: Draw
    """Numbers as earlier steps hand them over, which reach further."""
    tasks: Wordings
    """What to do, as an order without a capital or a full stop. The first is the plainest."""
    nouns: Wordings
    """The result, as a noun: it can stand inside another wording."""
    merges: bool = False
    """It can put two earlier answers together."""


def split_of(number: int) -> Split | None:
    """The only split that may show this number; None for a single digit, which all may."""
    if number < 10:
        return None
    place = Random(f"number {number}").random()
    return "test" if place < 0.2 else "dev" if place < 0.35 else "train"


@cache
def numbers(split: Split, low: int, high: int, *, zeros: bool = True) -> Numbers:
    """The split's numbers from `low` to `high`, if need be only those without a digit 0."""
    return tuple(
        n
        for n in range(low, high + 1)
        if split_of(n) in (None, split) and (zeros or "0" not in str(n))
    )


def _drawn(*ranges: tuple[int, int], zeros: bool = True) -> Draw:
    """Draw one number from a range that is itself drawn."""

    def draw(rng: Random, split: Split) -> Numbers:
        low, high = rng.choice(ranges)
        return (rng.choice(numbers(split, low, high, zeros=zeros)),)

    return draw


def _several(counts: Sequence[int], low: int, high: int) -> Draw:
    """Draw several different numbers."""

    def draw(rng: Random, split: Split) -> Numbers:
        return tuple(rng.sample(numbers(split, low, high), rng.choice(counts)))

    return draw


def _pair(*ranges: tuple[int, int]) -> Draw:
    """Draw two numbers, each from a range of its own that is drawn too."""

    def draw(rng: Random, split: Split) -> Numbers:
        return tuple(rng.choice(numbers(split, *rng.choice(ranges))) for _ in range(2))

    return draw


_SMALL = {
    **dict(enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight"))),
    **dict(enumerate(("nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen"), 9)),
    **dict(enumerate(("sixteen", "seventeen", "eighteen", "nineteen"), 16)),
}
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(number: int) -> str:
    """A number below 1000 in English: 482 is `four hundred eighty-two`."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")
    hundreds, rest = divmod(number, 100)
    return f"{_SMALL[hundreds]} hundred" + (f" {in_words(rest)}" if rest else "")


def ordinal(number: int) -> str:
    """482 is `482nd`, 12 is `12th`."""
    if number // 10 % 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _one(low: int, high: int, *, zeros: bool = True) -> Callable[[Numbers], bool]:
    return lambda xs: len(xs) == 1 and low <= xs[0] <= high and (zeros or "0" not in str(xs[0]))


def _some(counts: Sequence[int], low: int, high: int) -> Callable[[Numbers], bool]:
    return lambda xs: len(xs) in counts and all(low <= x <= high for x in xs)


REVERSE = Skill(
    "reverse",
    "turns numbers around",
    apply=lambda xs: str(xs[0])[::-1],
    takes=_one(10, 9999, zeros=False),
    draw=_drawn((100, 999), (1000, 9999), zeros=False),
    reads=_drawn((10, 99), (100, 999), (1000, 9999), zeros=False),
    tasks=Wordings(
        (
            "reverse the digits of {x}",
            "write {x} backwards",
            "flip the digits of {x}",
            "write the digits of {x} in reverse order",
        ),
        ("read {x} from right to left", "turn {x} around, last digit first"),
        more=(
            "invert the order of the digits of {x}",
            "spell the digits of {x} from the end to the start",
            "swap the digits of {x} end for end",
        ),
    ),
    nouns=Wordings(
        ("the reverse of {x}", "{x} written backwards"),
        ("the mirror image of {x}",),
        more=("the reversed form of {x}", "{x} with its digits reversed"),
    ),
)
SORT = Skill(
    "sort",
    "sorts digits",
    apply=lambda xs: "".join(sorted(str(xs[0]))),
    takes=_one(100, 9999, zeros=False),
    draw=_drawn((100, 999), (1000, 9999), zeros=False),
    reads=_drawn((100, 999), (1000, 9999), zeros=False),
    tasks=Wordings(
        (
            "sort the digits of {x}",
            "put the digits of {x} in ascending order",
            "order the digits of {x} from lowest to highest",
            "arrange the digits of {x} from small to large",
        ),
        (
            "line up the digits of {x} from least to greatest",
            "rank the digits of {x}, smallest first",
        ),
        more=(
            "bring the digits of {x} into rising order",
            "sort {x} digit by digit, lowest first",
            "rearrange the digits of {x} so that they go up",
        ),
    ),
    nouns=Wordings(
        ("the sorted digits of {x}", "{x} with its digits in ascending order"),
        ("the digits of {x} from least to greatest",),
        more=("the digits of {x} in increasing order", "{x} sorted by digit"),
    ),
)
LAST = Skill(
    "last",
    "gives the last digit",
    apply=lambda xs: str(xs[0] % 10),
    takes=_one(10, 9999),
    draw=_drawn((100, 999), (1000, 9999)),
    reads=_drawn((10, 99), (100, 999), (1000, 9999)),
    tasks=Wordings(
        (
            "give the last digit of {x}",
            "take the final digit of {x}",
            "find the units digit of {x}",
            "name the digit that {x} ends in",
        ),
        ("keep only the rightmost digit of {x}", "tell the digit at the very end of {x}"),
        more=(
            "pick out the ones digit of {x}",
            "say which digit comes last in {x}",
            "cut off all but the last digit of {x}",
        ),
    ),
    nouns=Wordings(
        ("the last digit of {x}", "the final digit of {x}"),
        ("the rightmost digit of {x}",),
        more=("the units digit of {x}", "the digit {x} ends with"),
    ),
)
ORDINAL = Skill(
    "ordinal",
    "makes ordinals",
    apply=lambda xs: ordinal(xs[0]),
    takes=_one(1, 9999),
    draw=_drawn((1, 99), (10, 99), (100, 999), (1000, 9999)),
    reads=_drawn((1, 9), (10, 99), (100, 999), (1000, 9999)),
    tasks=Wordings(
        (
            "write {x} as an ordinal",
            "turn {x} into an ordinal number",
            "give the ordinal form of {x}",
            "change {x} to its ordinal",
        ),
        ("make an ordinal out of {x}", "give {x} its ordinal ending"),
        more=(
            "convert {x} to an ordinal number",
            "state {x} as a rank, like 1st or 2nd",
            "add the right ordinal suffix to {x}",
        ),
    ),
    nouns=Wordings(
        ("the ordinal of {x}", "{x} as an ordinal"),
        ("the ordinal number for {x}",),
        more=("the ordinal form of {x}", "{x} as a position in a row"),
    ),
)
WORDS = Skill(
    "words",
    "spells numbers in words",
    apply=lambda xs: in_words(xs[0]),
    takes=_one(1, 999),
    draw=_drawn((1, 99), (100, 999), (100, 999), (100, 999)),
    reads=_drawn((1, 9), (10, 99), (100, 999), (100, 999)),
    tasks=Wordings(
        (
            "write {x} in words",
            "spell out {x} in English",
            "say {x} in words",
            "write out {x} as English words",
        ),
        ("put {x} into words", "express {x} in English words"),
        more=(
            "write {x} with letters instead of digits",
            "turn {x} into English words",
            "name {x} in plain English",
        ),
    ),
    nouns=Wordings(
        ("{x} in words", "the English name of {x}"),
        ("{x} spelled out in words",),
        more=("{x} as English words", "{x} written with letters"),
    ),
)
MAXIMUM = Skill(
    "maximum",
    "finds the largest number",
    apply=lambda xs: str(max(xs)),
    takes=_some((3, 4), 10, 99),
    draw=_several((3, 4), 10, 99),
    reads=_several((3, 4), 10, 99),
    tasks=Wordings(
        (
            "find the largest of {x}",
            "pick the biggest of {x}",
            "give the maximum of {x}",
            "name the highest number among {x}",
        ),
        ("choose the greatest of {x}", "select the top number among {x}"),
        more=(
            "choose the largest number out of {x}",
            "determine the biggest among {x}",
            "see which is the highest of {x}",
        ),
    ),
    nouns=Wordings(
        ("the largest of {x}", "the maximum of {x}"),
        ("the greatest of {x}",),
        more=("the biggest of {x}", "the highest number among {x}"),
    ),
)
ADD = Skill(
    "add",
    "adds two numbers",
    apply=lambda xs: str(sum(xs)),
    takes=_some((2,), 1, 49),
    draw=_pair((1, 49)),
    reads=_pair((1, 9), (1, 49)),
    tasks=Wordings(
        ("add {x}", "compute the sum of {x}", "sum up {x}", "work out the total of {x}"),
        ("calculate the sum of {x}", "find what {x} add up to"),
        more=(
            "put {x} together as a sum",
            "get the total when you add {x}",
            "do the addition of {x}",
        ),
    ),
    nouns=Wordings(
        ("the sum of {x}", "the total of {x}"),
        ("the result of adding {x}",),
        more=("{x} added up", "what {x} make in total"),
    ),
    merges=True,
)
JOIN = Skill(
    "join",
    "joins two numbers",
    apply=lambda xs: "".join(map(str, xs)),
    takes=_some((2,), 1, 999),
    draw=_pair((1, 9), (10, 99), (100, 999)),
    reads=_pair((1, 9), (10, 99), (100, 999)),
    tasks=Wordings(
        (
            "join {x} into one number",
            "concatenate {x}",
            "write {x} next to each other as one number",
            "glue {x} together",
        ),
        ("stick {x} together end to end", "merge {x} into a single string of digits"),
        more=(
            "chain {x} into one long number",
            "append {x} one after the other",
            "form one number from {x} side by side",
        ),
    ),
    nouns=Wordings(
        ("the number made by joining {x}", "the concatenation of {x}"),
        ("the number that you get by gluing {x} together",),
        more=("{x} joined into one number", "the single number formed from {x}"),
    ),
    merges=True,
)

SKILLS = {s.name: s for s in (REVERSE, SORT, LAST, ORDINAL, WORDS, MAXIMUM, ADD, JOIN)}


def listed(xs: Sequence[object]) -> str:
    """`12`, `12 and 34`, `12, 34 and 56`."""
    *most, last = map(str, xs)
    return f"{', '.join(most)} and {last}" if most else last


def sentence(text: str, end: str = ".") -> str:
    return text[0].upper() + text[1:] + end
