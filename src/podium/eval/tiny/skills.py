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
    dev: tuple[str, ...]
    """Nor are these, so that dev foretells what test will say."""
    more: tuple[str, ...]
    """Further ones of training questions, which the Conductor has to put into plainer words: a
    specialist meets none of them."""

    def of(self, split: Split) -> tuple[str, ...]:
        return self.test if split == "test" else self.train

    def asked(self, split: Split) -> tuple[str, ...]:
        """As people ask, not as a Conductor orders."""
        return {"train": (*self.train, *self.more), "dev": self.dev, "test": self.test}[split]


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
        dev=(
            "show {x} back to front",
            "write down the digits of {x} beginning at the end",
        ),
        more=(
            "invert the order of the digits of {x}",
            "spell the digits of {x} from the end to the start",
            "swap the digits of {x} end for end",
            "list the digits of {x} in the opposite order",
            "rewrite {x} starting with its last digit",
            "put the digits of {x} back to front",
            "run through {x} in reverse",
            "flip {x}",
            "reverse {x}",
            "switch the digits of {x} front to back",
            "type {x} the wrong way round",
            "copy {x} from its last digit to its first",
            "take the digits of {x} in backward order",
            "give {x} in reverse",
            "produce {x} with the order of its digits reversed",
        ),
    ),
    nouns=Wordings(
        ("the reverse of {x}", "{x} written backwards"),
        ("the mirror image of {x}",),
        dev=("{x} the other way round",),
        more=(
            "the reversed form of {x}",
            "{x} with its digits reversed",
            "{x} back to front",
            "{x} in reverse",
            "the backward version of {x}",
            "{x} flipped",
            "what {x} becomes in reverse order",
            "{x} read backwards",
            "the digits of {x} in opposite order",
        ),
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
        dev=(
            "write the digits of {x} so that each is at least the one before",
            "put the lower digits of {x} ahead of the higher ones",
        ),
        more=(
            "bring the digits of {x} into rising order",
            "sort {x} digit by digit, lowest first",
            "rearrange the digits of {x} so that they go up",
            "place the digits of {x} from low to high",
            "put the digits of {x} in order of size",
            "write the digits of {x} in increasing order",
            "sort {x}",
            "order {x} by digit",
            "get the digits of {x} into sorted order",
            "set out the digits of {x} with the small ones in front",
            "list the digits of {x} in growing order",
            "organise the digits of {x} by value",
            "reorder the digits of {x}, low ones before high ones",
            "sort all digits of {x} upwards",
            "shuffle the digits of {x} into ascending order",
        ),
    ),
    nouns=Wordings(
        ("the sorted digits of {x}", "{x} with its digits in ascending order"),
        ("the digits of {x} from least to greatest",),
        dev=("the digits of {x} by growing value",),
        more=(
            "the digits of {x} in increasing order",
            "{x} sorted by digit",
            "{x} with its digits sorted",
            "the digits of {x} in order",
            "the digits of {x} ordered by size",
            "{x} rearranged in rising order",
            "the sorted form of {x}",
            "{x} put in digit order",
            "the digits of {x} from low to high",
        ),
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
        dev=(
            "say what {x} ends on",
            "throw away all digits of {x} before the last",
        ),
        more=(
            "pick out the ones digit of {x}",
            "say which digit comes last in {x}",
            "cut off all but the last digit of {x}",
            "read off the last digit of {x}",
            "state the closing digit of {x}",
            "return only the last digit of {x}",
            "look up the units place of {x}",
            "find out which digit {x} finishes with",
            "tell which digit stands at the end of {x}",
            "extract the final digit of {x}",
            "get the ones place of {x}",
            "give what {x} ends with",
            "drop every digit of {x} except the last",
            "report the digit in the units place of {x}",
            "note the last digit of {x}",
        ),
    ),
    nouns=Wordings(
        ("the last digit of {x}", "the final digit of {x}"),
        ("the rightmost digit of {x}",),
        dev=("the digit {x} finishes on",),
        more=(
            "the units digit of {x}",
            "the digit {x} ends with",
            "the ones digit of {x}",
            "the digit in the ones place of {x}",
            "the closing digit of {x}",
            "the end digit of {x}",
            "the digit that comes last in {x}",
            "what {x} ends in",
            "the one digit at the end of {x}",
        ),
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
        dev=(
            "write {x} like a floor of a house, as in 5th",
            "say which ordinal goes with {x}",
        ),
        more=(
            "convert {x} to an ordinal number",
            "state {x} as a rank, like 1st or 2nd",
            "add the right ordinal suffix to {x}",
            "write {x} the way a place in a race is written",
            "put st, nd, rd or th after {x}",
            "write {x} as a position",
            "return {x} as an ordinal",
            "show {x} in ordinal form",
            "express {x} as a place in a queue",
            "attach st, nd, rd or th to {x}",
            "transform {x} into its ordinal form",
            "name the position numbered {x}",
            "write the ordinal that belongs to {x}",
            "say {x} as in 3rd or 4th",
            "use {x} as an ordinal",
        ),
    ),
    nouns=Wordings(
        ("the ordinal of {x}", "{x} as an ordinal"),
        ("the ordinal number for {x}",),
        dev=("{x} with the suffix of a position",),
        more=(
            "the ordinal form of {x}",
            "{x} as a position in a row",
            "{x} with its ordinal suffix",
            "{x} in ordinal form",
            "the ordinal version of {x}",
            "{x} written as a position",
            "{x} with st, nd, rd or th",
            "the ordinal that belongs to {x}",
            "{x} as a place in a race",
        ),
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
        dev=(
            "write {x} as on a cheque",
            "pronounce {x} in English",
        ),
        more=(
            "write {x} with letters instead of digits",
            "turn {x} into English words",
            "name {x} in plain English",
            "spell {x}",
            "spell the number {x} in letters",
            "write out {x} in full",
            "give the English words for {x}",
            "read {x} aloud in English",
            "translate {x} to words",
            "write {x} as it is spoken",
            "say what {x} is called in English",
            "convert {x} to words",
            "type out {x} with letters",
            "give {x} as words",
            "write the name of {x}",
        ),
    ),
    nouns=Wordings(
        ("{x} in words", "the English name of {x}"),
        ("{x} spelled out in words",),
        dev=("the way {x} is read aloud",),
        more=(
            "{x} as English words",
            "{x} written with letters",
            "the words for {x}",
            "{x} written out",
            "{x} in plain English",
            "{x} in letters",
            "the name of {x} in English",
            "how {x} is said in English",
            "{x} written as words",
        ),
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
        dev=(
            "say which one is bigger than the others: {x}",
            "find the number that none exceeds among {x}",
        ),
        more=(
            "choose the largest number out of {x}",
            "determine the biggest among {x}",
            "see which is the highest of {x}",
            "find the maximum of {x}",
            "take the largest of {x}",
            "compare {x} and give the biggest",
            "return the highest of {x}",
            "say which of {x} is the largest",
            "look for the biggest number in {x}",
            "tell me the max of {x}",
            "identify the largest among {x}",
            "pick out the highest value of {x}",
            "keep the biggest of {x}",
            "decide which is biggest: {x}",
            "get the largest value from {x}",
        ),
    ),
    nouns=Wordings(
        ("the largest of {x}", "the maximum of {x}"),
        ("the greatest of {x}",),
        dev=("the number no other exceeds among {x}",),
        more=(
            "the biggest of {x}",
            "the highest number among {x}",
            "the highest of {x}",
            "the max of {x}",
            "the largest number out of {x}",
            "the biggest value in {x}",
            "whichever is largest of {x}",
            "the largest value among {x}",
            "the biggest number of {x}",
        ),
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
        dev=(
            "say how much {x} come to",
            "tally {x}",
        ),
        more=(
            "put {x} together as a sum",
            "get the total when you add {x}",
            "do the addition of {x}",
            "find the sum of {x}",
            "add up {x}",
            "total {x}",
            "add {x} together",
            "work out the sum of {x}",
            "return the total of {x}",
            "take the sum of {x}",
            "sum {x}",
            "count {x} together",
            "determine how much {x} are together",
            "tell how much {x} make",
            "form the sum of {x}",
        ),
    ),
    nouns=Wordings(
        ("the sum of {x}", "the total of {x}"),
        ("the result of adding {x}",),
        dev=("what {x} come to",),
        more=(
            "{x} added up",
            "what {x} make in total",
            "the sum you get from {x}",
            "the total when {x} are added",
            "how much {x} are together",
            "{x} added together",
            "the addition of {x}",
            "the sum total of {x}",
            "{x} in total",
        ),
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
        dev=(
            "write {x} as if there were no gap",
            "fuse {x} into one",
        ),
        more=(
            "chain {x} into one long number",
            "append {x} one after the other",
            "form one number from {x} side by side",
            "write {x} side by side",
            "put {x} next to each other",
            "combine the digits of {x} in a row",
            "string {x} together",
            "run {x} together into one number",
            "make one long number of {x}",
            "attach {x} to each other as one number",
            "connect {x} to a single number",
            "write {x} without a space between",
            "put {x} one behind the other",
            "link {x} into one number",
            "set {x} down next to each other as one number",
        ),
    ),
    nouns=Wordings(
        ("the number made by joining {x}", "the concatenation of {x}"),
        ("the number that you get by gluing {x} together",),
        dev=("{x} with no gap between them",),
        more=(
            "{x} joined into one number",
            "the single number formed from {x}",
            "the number formed by {x} side by side",
            "{x} concatenated",
            "{x} written side by side",
            "{x} put next to each other",
            "the long number made of {x}",
            "{x} linked into one number",
            "{x} run together",
        ),
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
