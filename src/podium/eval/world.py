"""A recorded world: questions, and what real models answered to each of them.

A directory with `questions.jsonl.gz` (id, split, question, options, answer, category, grader),
`replies.jsonl.gz` (id, worker, text, extracted, correct, tokens_in, tokens_out) and `pool.json`
(name, usd_per_mtok_in, usd_per_mtok_out). Choosing workers, voting over them and stopping early
can be scored here exactly and for nothing. A new sub-prompt has no recorded reply, and none is
made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from podium.errors import ConfigError, NotRecorded
from podium.eval.tasks.choices import lettered, target
from podium.eval.tasks.source import Row, read_file
from podium.eval.tasks.task import Item, Task

QUESTIONS, REPLIES, POOL = "questions.jsonl.gz", "replies.jsonl.gz", "pool.json"

GRADERS = {"number": "value", "choice": "choice", "literal": "literal"}
"""Ours for theirs: a recorded number is right if it is equal, not if it is close."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    output: float

    def of(self, reply: Reply) -> float:
        return (self.input * reply.tokens_in + self.output * reply.tokens_out) / 1e6


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    tokens_in: int
    tokens_out: int
    correct: bool
    """As the recording says, which may have read the text less well than our graders do."""
    extracted: str | None


@dataclass(frozen=True, slots=True)
class World:
    name: str
    items: Mapping[str, Item]
    """By id."""
    workers: Mapping[str, Price]
    replies: Mapping[str, Mapping[str, Reply]]
    """By worker, then by id."""

    @staticmethod
    def load(directory: Path) -> World:
        items: dict[str, Item] = {}
        for row in read_file(directory / QUESTIONS):
            item = _item(row)
            if item.id in items:
                raise row.fault(f"{item.id!r} is there twice")
            items[item.id] = item
        workers = {row.text("name"): _price(row) for row in read_file(directory / POOL)}
        replies: dict[str, dict[str, Reply]] = {name: {} for name in workers}
        for row in read_file(directory / REPLIES):
            _place(row, items, replies)
        return World(directory.name, items, workers, replies)

    def reply(self, id: str, worker: str) -> Reply:
        """What the worker answered.

        Raises:
            NotRecorded: it was never asked this.
        """
        found = self.replies.get(worker, {}).get(id)
        if found is None:
            raise NotRecorded(f"world {self.name} has no reply of {worker} to {id}")
        return found

    def split(self, name: str) -> Sequence[Item]:
        return [item for item in self.items.values() if item.split == name]

    @property
    def task(self) -> Task:
        """The questions as a task, which needs no file and no hub."""

        def read(split: str, data: Path | None) -> Sequence[Item]:
            if data is not None:
                raise ConfigError(f"world {self.name} holds its own questions: leave out --data")
            return self.split(split)

        graders = dict.fromkeys(item.grader for item in self.items.values())
        return Task(
            name=self.name,
            source=f"recorded world {self.name}",
            licence="that of its questions",
            splits=tuple(dict.fromkeys(item.split for item in self.items.values())),
            grader=", ".join(graders),
            prompt="{question}",
            read=read,
        )


def _item(row: Row) -> Item:
    grader, question = row.text("grader"), row.text("question")
    if grader not in GRADERS:
        raise row.fault(f"'grader' is {grader!r}, not one of {', '.join(GRADERS)}")
    answer: object = row.text("answer").strip()
    if grader == "choice":
        options = row.texts("options")
        if len(str(answer)) != 1 or str(answer) not in ascii_uppercase[: len(options)]:
            raise row.fault(f"'answer' is not the letter of an option: {answer!r}")
        question = lettered(question, options)
        answer = target(ascii_uppercase.index(str(answer)), options)
    return Item(
        id=row.text("id"),
        question=question,
        target=answer,
        grader=GRADERS[grader],
        category=row.maybe("category"),
        split=row.text("split"),
    )


def _price(row: Row) -> Price:
    try:
        return Price(float(row.text("usd_per_mtok_in")), float(row.text("usd_per_mtok_out")))
    except ValueError as exc:
        raise row.fault("a price is not a number") from exc


def _place(row: Row, items: Mapping[str, Item], replies: dict[str, dict[str, Reply]]) -> None:
    match row.fields:
        case {
            "id": str(id),
            "worker": str(worker),
            "text": str(text),
            "correct": bool(correct),
            "tokens_in": int(tokens_in),
            "tokens_out": int(tokens_out),
        }:
            pass
        case _:
            raise row.fault("not a reply: id, worker, text, correct, tokens_in, tokens_out")
    if id not in items or worker not in replies:
        raise row.fault(f"{worker!r} or {id!r} is not in {POOL} and {QUESTIONS}")
    if id in replies[worker]:
        raise row.fault(f"a second reply of {worker} to {id}")
    extracted = row.maybe("extracted")
    replies[worker][id] = Reply(text, tokens_in, tokens_out, correct, extracted)
