"""Questions that need one skill, two in a row, or two side by side and a third that merges them.

Every question is made from a seed and its number alone, so the first ten of a hundred are the ten
of ten. Test questions hold numbers and wordings that no training question holds, and the kind
`new` holds chains and merges of skills that training never puts together. A question is dropped if
one skill alone, applied to the numbers in it, happens to give the answer: a chain must need both
its links. The maximum merges nothing for the same reason: it would always be one of its two parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Literal, get_args

from podium.errors import ConfigError
from podium.eval.tiny.skills import SKILLS, Numbers, Skill, Split, listed, sentence

Kind = Literal["single", "chain", "merge", "new"]

CHAINS = (
    ("reverse", "last"),
    ("reverse", "ordinal"),
    ("reverse", "words"),
    ("sort", "reverse"),
    ("sort", "last"),
    ("sort", "ordinal"),
    ("sort", "words"),
    ("last", "ordinal"),
    ("last", "words"),
    ("maximum", "reverse"),
    ("maximum", "last"),
    ("maximum", "ordinal"),
    ("maximum", "words"),
    ("add", "reverse"),
    ("add", "last"),
    ("add", "ordinal"),
    ("add", "words"),
    ("join", "reverse"),
    ("join", "sort"),
    ("join", "ordinal"),
    ("join", "words"),
)
NEW_CHAINS = frozenset(
    {("reverse", "ordinal"), ("sort", "words"), ("maximum", "last"), ("add", "reverse")}
    | {("join", "words")}
)
"""First and second skill of chains that no training question has."""

SIDES = ("reverse", "sort", "last", "maximum")
MERGES = tuple(
    (a, b, merge)
    for a in SIDES
    for b in SIDES
    for merge in ("add", "join")
    if merge == "join" or (a, b) in {("last", "last"), ("last", "maximum"), ("maximum", "last")}
)
"""Two sides and who merges them. What is added must stay small, so a last digit is part of it."""
NEW_MERGES = frozenset({("reverse", "last"), ("sort", "maximum"), ("maximum", "reverse")})
"""First and second side of merges that no training question has."""


@dataclass(frozen=True, slots=True)
class Call:
    """A step of the plain solution: whose skill, told what, reading which earlier steps."""

    skill: str
    subtask: str
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    question: str
    answer: str
    kind: Kind
    calls: tuple[Call, ...]
    """One workflow that solves it, for analysis and the cold start; the reward never sees it."""

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(c.skill for c in self.calls)


def right(answer: str, gold: str) -> bool:
    """The same literal, but for case and the space around it."""
    return answer.strip().casefold() == gold.casefold()


def generate(
    seed: int, n: int, split: Split, kinds: Sequence[Kind] = ("single", "chain", "merge")
) -> list[Item]:
    """`n` different items, the kinds in turn, the skills and chains of each kind evenly used."""
    if "new" in kinds and split != "test":
        raise ConfigError(
            "questions of kind 'new' are for split 'test': training must not see them"
        )
    if unknown := set(kinds) - set(get_args(Kind)):
        raise ConfigError(f"no kind of question is called {min(unknown)!r}: {get_args(Kind)}")
    items: dict[str, Item] = {}
    numbered = count()
    while len(items) < n:
        turn, place = divmod(next(numbered), len(kinds))
        item = _item(seed, turn, split, kinds[place])
        items.setdefault(item.question, item)
    return list(items.values())


def _item(seed: int, turn: int, split: Split, kind: Kind) -> Item:
    """The plans of a kind are dealt from a shuffled deck, so that each is used equally often."""
    deck, card = divmod(turn, len(PLANS[kind]))
    plan = Random(f"{seed} {split} {kind} {deck}").sample(PLANS[kind], len(PLANS[kind]))[card]
    return _compose(plan, kind, split, Random(f"{seed} {split} {kind} {turn}"))


def _is_new(plan: tuple[str, ...]) -> bool:
    return plan in NEW_CHAINS or (len(plan) == 3 and plan[:2] in NEW_MERGES)


PLANS: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "single": tuple((name,) for name in SKILLS),
    "chain": tuple(p for p in CHAINS if not _is_new(p)),
    "merge": tuple(p for p in MERGES if not _is_new(p)),
    "new": tuple(p for p in (*CHAINS, *MERGES) if _is_new(p)),
}
"""By kind, which skills a question may need, in the order of its steps."""


def _compose(plan: tuple[str, ...], kind: Kind, split: Split, rng: Random) -> Item:
    skills = [SKILLS[name] for name in plan]
    while True:
        sides = skills[:-1] if len(skills) == 3 else skills[:1]
        given = [s.draw(rng, split) for s in sides]
        answer = _answer(skills, given)
        if answer and not _shortcut(given, answer, steps=len(skills)):
            text, calls = asked(skills, given, split, rng)
            return Item(text, answer, kind, calls)


def asked(
    skills: Sequence[Skill],
    given: Sequence[Numbers],
    split: Split,
    rng: Random,
    frame: str | None = None,
) -> tuple[str, tuple[Call, ...]]:
    """A question that needs these skills, one after the other, and a workflow that solves it."""
    text, subtasks = _text(skills, given, _Words(split, rng, frame))
    return text, _calls(skills, subtasks)


def _answer(skills: Sequence[Skill], given: Sequence[Numbers]) -> str | None:
    """The gold answer, or None where a skill would be asked beyond what it takes."""
    first = [s.apply(xs) for s, xs in zip(skills, given, strict=False)]
    if len(skills) == 1:
        return first[0]
    last, reads = skills[-1], tuple(map(int, first))
    return last.apply(reads) if last.takes(reads) else None


def _shortcut(given: Sequence[Numbers], answer: str, *, steps: int) -> bool:
    """Whether copying a number gives it or, in place of several steps, a single skill does.

    The skill is tried on all the numbers, on those of each side, on the first and on the last.
    """
    every = tuple(x for xs in given for x in xs)
    if steps == 1:
        return len(every) == 1 and answer == str(every[0])
    inputs = (every, *given, every[:1], every[-1:])
    return answer in map(str, every) or any(
        s.takes(xs) and s.apply(xs) == answer for s in SKILLS.values() for xs in inputs
    )


def _calls(skills: Sequence[Skill], subtasks: Sequence[str]) -> tuple[Call, ...]:
    """A step a skill; the last of several reads all before it."""
    last = len(skills) - 1
    return tuple(
        Call(skill.name, sentence(subtask), tuple(range(i)) if i == last else ())
        for i, (skill, subtask) in enumerate(zip(skills, subtasks, strict=True))
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """Chooses among the wordings of a split."""

    split: Split
    rng: Random
    frame: str | None = None
    """What tasks are put into, in place of one of the split's own frames."""

    def task(self, skill: Skill) -> str:
        return self.rng.choice(skill.tasks.asked(self.split))

    def noun(self, skill: Skill) -> str:
        return self.rng.choice(skill.nouns.asked(self.split))

    def one_of(self, train: Sequence[str], dev: Sequence[str], test: Sequence[str]) -> str:
        return self.rng.choice({"train": train, "dev": dev, "test": test}[self.split])

    def form(self, train: Sequence[str], dev: Sequence[str], test: Sequence[str]) -> str:
        return self.frame or self.one_of(train, dev, test)


Asked = tuple[str, tuple[str, ...]]
"""A question, and its steps in the question's own words."""


def _text(skills: Sequence[Skill], given: Sequence[Numbers], words: _Words) -> Asked:
    xs = [listed(numbers) for numbers in given]
    if len(skills) == 1:
        return _single(skills[0], xs[0], words)
    if len(skills) == 2:
        return _chain(skills, xs[0], words)
    return _merge(skills, xs, words)


def _single(skill: Skill, x: str, words: _Words) -> Asked:
    form = words.form(
        (
            "{Task}.",
            "Please {task}.",
            "What is {noun}?",
            "Can you {task}?",
            "Give me {noun}.",
            "I need {noun}.",
            "I want you to {task}.",
            "{Noun}?",
            "Work out {noun}.",
            "I would like you to {task}.",
            "Your task: {task}.",
            "{Task} for me.",
            "Find {noun}.",
            "Which one is {noun}?",
            "Show me {noun}.",
            "Now {task}.",
            "Here is something to do: {task}.",
            "How do you {task}?",
            "Let me have {noun}.",
            "I wonder what {noun} is.",
            "Would you {task}?",
            "Kindly {task}.",
            "{Task}, will you?",
            "Let me know {noun}.",
            "May I have {noun}?",
            "I am looking for {noun}.",
            "Be so kind as to {task}.",
            "Reply with {noun}.",
            "All I want is {noun}.",
            "Try to {task}.",
            "Next, {task}.",
            "Hello! {Task}.",
            "Quick: {task}.",
            "My question: what is {noun}?",
            "You are asked to {task}.",
            "How about {noun}?",
            "Is it possible to {task}?",
            "We need {noun}.",
            "Somebody wants to know {noun}.",
            "Are you able to {task}?",
        ),
        ("Help me to {task}.", "Do you know {noun}?"),
        ("Could you {task}?", "Tell me {noun}.", "{Task}, please."),
    )
    task, noun = words.task(skill).format(x=x), words.noun(skill).format(x=x)
    return _fill(form, task=task, noun=noun), (_said(form, task=task, noun=f"give {noun}"),)


def _chain(skills: Sequence[Skill], x: str, words: _Words) -> Asked:
    first, second = skills
    it = words.one_of(
        (
            "the result",
            "that",
            "what you get",
            "it",
            "the answer",
            "the new number",
            "this",
            "that number",
            "what comes out",
            "the first answer",
            "the number you get",
            "the one before",
            "this value",
            "the previous result",
            "your result",
            "what came of it",
        ),
        ("what is left", "the reply"),
        ("the outcome", "the number found"),
    )
    form = words.form(
        (
            "{Task}, then {then}.",
            "{Task} and {then}.",
            "First {task}. Then {then}.",
            "{Nested}.",
            "What is {noun}?",
            "Step 1: {task}. Step 2: {then}.",
            "{Task}; afterwards {then}.",
            "Can you {task} and then {then}?",
            "I want you to {task}. With that done, {then}.",
            "Start like this: {task}. Now {then}.",
            "When you have found {inner}, {then}.",
            "Take {inner} and {then}.",
            "Give me {noun}.",
            "I want you to {nested}.",
            "Before you {then}, {task}.",
            "{Task}. {Then}.",
            "{Task}, and when that is done, {then}.",
            "1) {task} 2) {then}",
            "Can you {nested}?",
            "I need {noun}.",
            "{Noun}?",
            "Work out {inner}, then {then}.",
            "Find {inner}. Then {then}.",
            "You should {task} before you {then}.",
            "{Then}, but first {task}.",
            "From {inner}, {then}.",
            "Do two things: {task}, and {then}.",
            "Here is {inner}: {then}.",
            "To begin with, {task}. As a second step, {then}.",
            "Your task: {nested}.",
            "Would you {task}, and {then} at the end?",
            "Initially {task}. Subsequently {then}.",
            "{Task}. Having done so, {then}.",
            "I need two things: {task}; {then}.",
            "a) {task} b) {then}",
            "To start, {task}; to finish, {then}.",
            "Use {inner}: {then}.",
            "With {inner} at hand, {then}.",
            "{Then}. To do so, {task} beforehand.",
            "First thing: {task}. Second thing: {then}.",
            "{Task} before anything else; {then} only afterwards.",
            "Be so kind as to {task} and to {then}.",
            "Kindly {nested}.",
            "Try to {nested}.",
            "Is it possible to {nested}?",
            "You are asked to {nested}.",
            "{Nested}, will you?",
            "May I have {noun}?",
            "I am looking for {noun}.",
            "Reply with {noun}.",
            "We need {noun}.",
            "Let me know {noun}.",
        ),
        ("For a start {task}, and later {then}.", "Help me to {nested}.", "Do you know {noun}?"),
        ("After you {task}, {then}.", "Begin: {task}. Next: {then}.", "Please {nested}."),
    )
    inner, task = words.noun(first).format(x=x), words.task(first).format(x=x)
    then, nested, noun = words.task(second).format(x=it), words.task(second), words.noun(second)
    text = _fill(
        form,
        task=task,
        then=then,
        inner=inner,
        nested=nested.format(x=inner),
        noun=noun.format(x=inner),
    )
    begins = _said(form, task=task) or f"give {inner}"
    return text, (begins, _end(form, then, nested, noun, "the previous answer"))


def _merge(skills: Sequence[Skill], xs: Sequence[str], words: _Words) -> Asked:
    a, b, last = skills
    both = words.one_of(
        (
            "the two results",
            "both results",
            "them",
            "the two",
            "both answers",
            "these",
            "these two",
            "the two numbers you get",
            "what comes out of the two",
            "the results",
            "the pair",
            "both numbers",
            "your two results",
        ),
        ("the two replies", "what is left of both"),
        ("the two outcomes",),
    )
    form = words.form(
        (
            "{Task} and {other}, then {then}.",
            "First {task}. Next {other}. Finally {then}.",
            "{Nested}.",
            "What is {noun}?",
            "Step 1: {task}. Step 2: {other}. Step 3: {then}.",
            "{Task}; {other}; afterwards {then}.",
            "Can you {task}, {other} and then {then}?",
            "I want you to {task} and {other}. With that done, {then}.",
            "Start like this: {task}, besides {other}. Now {then}.",
            "When you have found {inner}, {then}.",
            "Take {inner} and {then}.",
            "Give me {noun}.",
            "I want you to {nested}.",
            "Before you {then}, {task} and {other}.",
            "{Task}. {Other}. {Then}.",
            "{Task}, {other}, and when that is done, {then}.",
            "1) {task} 2) {other} 3) {then}",
            "Can you {nested}?",
            "I need {noun}.",
            "{Noun}?",
            "Work out {inner}, then {then}.",
            "Find {inner}. Then {then}.",
            "You should {task} as well as {other} before you {then}.",
            "{Then}, but first {task} and {other}.",
            "From {inner}, {then}.",
            "Do three things: {task}, {other}, and {then}.",
            "Here are {inner}: {then}.",
            "To begin with, {task}. As a second step, {other}. As a third step, {then}.",
            "On one side {task}, on the other {other}; in the end {then}.",
            "Your task: {nested}.",
            "Would you {task} and {other}, and {then} at the end?",
            "Initially {task} and {other}. Subsequently {then}.",
            "{Task}. Likewise {other}. With both done, {then}.",
            "I need three things: {task}; {other}; {then}.",
            "a) {task} b) {other} c) {then}",
            "To start, {task}, and {other}; to finish, {then}.",
            "Use {inner}: {then}.",
            "With {inner} at hand, {then}.",
            "{Then}. To do so, {task} and {other} beforehand.",
            "First thing: {task}. Second thing: {other}. Last thing: {then}.",
            "{Task} and {other} before anything else; {then} only afterwards.",
            "Be so kind as to {task}, to {other} and to {then}.",
            "Kindly {nested}.",
            "Try to {nested}.",
            "Is it possible to {nested}?",
            "You are asked to {nested}.",
            "{Nested}, will you?",
            "May I have {noun}?",
            "I am looking for {noun}.",
            "Reply with {noun}.",
            "We need {noun}.",
            "Let me know {noun}.",
        ),
        (
            "For a start {task}, as well {other}, and later {then}.",
            "Help me to {nested}.",
            "Do you know {noun}?",
        ),
        (
            "Once you {task} and also {other}, {then}.",
            "One: {task}. Two: {other}. Three: {then}.",
            "Please {nested}.",
        ),
    )
    sides = words.noun(a).format(x=xs[0]), words.noun(b).format(x=xs[1])
    task, other = words.task(a).format(x=xs[0]), words.task(b).format(x=xs[1])
    then, nested, noun = words.task(last).format(x=both), words.task(last), words.noun(last)
    inner = f"{sides[0]} and {sides[1]}"
    text = _fill(
        form,
        task=task,
        other=other,
        inner=inner,
        then=then,
        nested=nested.format(x=inner),
        noun=noun.format(x=inner),
    )
    begins = _said(form, task=task) or f"give {sides[0]}"
    goes_on = _said(form, other=other) or f"give {sides[1]}"
    return text, (begins, goes_on, _end(form, then, nested, noun, "the two answers"))


def _end(form: str, then: str, nested: str, noun: str, earlier: str) -> str:
    """The last step: what stands inside it in the question has become an earlier answer."""
    return _said(
        form, then=then, nested=nested.format(x=earlier), noun=f"give {noun.format(x=earlier)}"
    )


def _said(form: str, **parts: str) -> str:
    """The first of the parts that the form has a place for; nothing where it has none."""
    return next((text for name, text in parts.items() if f"{{{name}}}" in form.lower()), "")


def _fill(form: str, **parts: str) -> str:
    """Fill a form in; a part named with a capital is written with one."""
    return form.format(**parts, **{k.title(): sentence(v, "") for k, v in parts.items()})
