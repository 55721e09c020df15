"""The samples of an evaluation, gathered from one directory or several."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean

import orjson

from podium.app import SINGLE
from podium.errors import ConfigError
from podium.eval.results import Results, Sample
from podium.eval.tasks import Item

BEST_SINGLE = "best-single"


@dataclass
class Tally:
    """The samples of one split of one task, from one directory or several."""

    label: str
    split: str
    replay: bool
    workers: Sequence[str]
    entrants: dict[str, dict[str, str]]
    items: dict[str, Item]
    samples: dict[str, list[Sample]]
    """By the name of their row."""
    sources: list[Path]
    seen_before: int = 0
    """Questions that stand word for word in a split that something was chosen or trained on."""
    scores: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """By row, then by question: the mean over its samples. Unscored questions are missing."""

    def score(self) -> None:
        for row, samples in self.samples.items():
            by_item: dict[str, list[float]] = defaultdict(list)
            for sample in samples:
                if sample.score is not None:
                    by_item[sample.item].append(sample.score)
            self.scores[row] = {item: fmean(values) for item, values in by_item.items()}

    @property
    def reference(self) -> str | None:
        """The row of the best single worker: the one chosen on dev, else the best one here."""
        if BEST_SINGLE in self.entrants:
            return self.entrants[BEST_SINGLE]["row"]
        singles = [row for row in self.samples if row.startswith(SINGLE) and self.scores[row]]
        return max(singles, key=lambda row: fmean(self.scores[row].values()), default=None)

    @cached_property
    def shared(self) -> list[str]:
        """The questions that every worker was scored on alone; none if one was never asked."""
        rows = [self.scores.get(f"{SINGLE}{worker}", {}) for worker in self.workers]
        return [item for item in self.items if rows and all(item in row for row in rows)]

    @cached_property
    def outcomes(self) -> dict[str, list[bool]]:
        """Whether each worker was right alone, on the shared questions."""
        return {
            worker: [self.scores[f"{SINGLE}{worker}"][item] >= 1.0 for item in self.shared]
            for worker in (self.workers if self.shared else ())
        }

    @cached_property
    def oracle(self) -> dict[str, float]:
        """By question, what its best worker scores: whether some worker was right."""
        rows = [self.scores[f"{SINGLE}{worker}"] for worker in self.workers if self.shared]
        return {item: max(row[item] for row in rows) for item in self.shared}


async def read(directories: Sequence[Path]) -> list[Tally]:
    """What the directories hold, together where they are of the same task and split.

    Raises:
        ConfigError: a directory holds no results, or ones that cannot be read, or nothing was
            asked yet.
    """
    tallies: dict[tuple[str, str], Tally] = {}
    for directory in directories:
        results = await Results.read(directory)
        try:
            for tally in await _tallies(results):
                key = (tally.label, tally.split)
                tallies[key] = _joined(tallies[key], tally) if key in tallies else tally
        except (sqlite3.Error, orjson.JSONDecodeError) as exc:
            raise _unreadable(directory, str(exc)) from exc
        finally:
            await results.close()
    if not any(tally.samples for tally in tallies.values()):
        raise ConfigError("nothing was asked yet: there is nothing to report")
    for tally in tallies.values():
        tally.score()
    return list(tallies.values())


async def _tallies(results: Results) -> list[Tally]:
    setup, entrants = await results.facts("setup"), await results.facts("entrants")
    splits = await results.facts("reported")
    if splits:
        _check(results.directory, setup, entrants)
    chosen_on = [s for s in (str(setup.get("choose_on")), "train") if s not in splits]
    known = {item.question.strip() for s in chosen_on for item in await results.items(s)}
    found = []
    for split in splits:
        try:
            items = {item.id: item for item in await results.items(split)}
        except TypeError as exc:  # a question with other fields than an `Item` has
            raise _unreadable(results.directory, str(exc)) from exc
        samples: dict[str, list[Sample]] = defaultdict(list)
        for sample in await results.samples(split):
            samples[sample.strategy].append(sample)
            if sample.item not in items:
                raise _unreadable(results.directory, f"the question {sample.item} is missing")
        found.append(
            Tally(
                label=str(setup["label"]),
                split=split,
                replay=bool(setup["replay"]),
                workers=orjson.loads(orjson.dumps(setup["workers"])),
                entrants=orjson.loads(orjson.dumps(entrants)),
                items=items,
                samples=dict(samples),
                sources=[results.directory],
                seen_before=sum(item.question.strip() in known for item in items.values()),
            )
        )
    return found


def _check(directory: Path, setup: Mapping[str, object], entrants: Mapping[str, object]) -> None:
    missing = [name for name in ("label", "replay", "workers") if name not in setup]
    if missing:
        raise _unreadable(directory, f"its set-up lacks {', '.join(missing)}")
    for name, entrant in entrants.items():
        if not isinstance(entrant, dict) or "row" not in entrant:
            raise _unreadable(directory, f"it does not say which row {name} is")


def _unreadable(directory: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the results in {directory.name} were written by another version of Podium, or are "
        f"damaged ({why}): evaluate again into another --out"
    )


def _joined(first: Tally, second: Tally) -> Tally:
    """Rows of both; where both have one of the same name, the second says where it is from."""
    place = second.sources[0].name
    renamed = {row: f"{row} @{place}" if row in first.samples else row for row in second.samples}
    for row, samples in second.samples.items():
        first.samples[renamed[row]] = samples
    for name, entrant in second.entrants.items():
        row = renamed.get(entrant["row"], entrant["row"])
        if name not in first.entrants:
            first.entrants[name] = {**entrant, "row": row}
        elif name == entrant["row"]:
            first.entrants[row] = {**entrant, "row": row}
    first.items.update(second.items)
    first.sources.extend(second.sources)
    first.replay = first.replay and second.replay
    first.seen_before += second.seen_before
    return first
