"""Where problems come from: the Hugging Face hub, or a file in the same published schema.

Never one in place of the other: what was asked for is read, or an error says why it cannot be.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import orjson

from podium.errors import ConfigError
from podium.eval.tasks.splits import cut
from podium.eval.tasks.task import Item, Read


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a published set, and where it stands, so that a fault can be found."""

    where: str
    number: int
    fields: Mapping[str, object]

    def text(self, *names: str) -> str:
        """The first of these fields that the row has, as text."""
        value = next((self.fields[name] for name in names if name in self.fields), None)
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise self.fault(f"there is no text in the field {' or '.join(map(repr, names))}")
        return str(value)

    def maybe(self, name: str) -> str | None:
        return self.text(name) if self.fields.get(name) is not None else None

    def texts(self, name: str) -> list[str]:
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.fault(f"the field {name!r} is not a list of texts")
        return [str(text) for text in value]

    def inner(self, name: str) -> Row:
        """The row inside a field."""
        value = self.fields.get(name)
        if not isinstance(value, Mapping):
            raise self.fault(f"the field {name!r} is not an object")
        return Row(f"{self.where}, field {name!r} of", self.number, value)

    def fault(self, complaint: str) -> ConfigError:
        has = ", ".join(map(str, self.fields)) or "nothing"
        return ConfigError(f"{self.where}, row {self.number}: {complaint} (it has: {has})")


Parse = Callable[[Row], Item | None]
"""None: the row was published without an answer, and nothing can be graded by it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hub:
    """A set on the hub: its splits by our names, or its plain files where it has no splits."""

    path: str
    splits: Mapping[str, str]
    configs: tuple[str | None, ...] = (None,)
    files: tuple[str, ...] = ()


def published(hub: Hub, prompt: str, parse: Parse, *, shares: Mapping[str, float] | None) -> Read:
    """Reads a published set. `shares` cuts one that has no splits of its own."""

    def read(split: str, data: Path | None) -> Sequence[Item]:
        parsed = [parse(row) for row in (read_file(data) if data else _download(hub, split))]
        items = [
            replace(item, question=prompt.replace("{question}", item.question), split=split)
            for item in parsed
            if item is not None
        ]
        if len(items) < len(parsed):
            missing = len(parsed) - len(items)
            log.warning("%s: %d rows have no answer and are left out", data or hub.path, missing)
        return cut(items, split, shares=shares) if shares else items

    return read


def read_file(path: Path) -> Iterator[Row]:
    """The rows of a .json, .jsonl, .csv or .parquet file, gzipped or not."""
    suffixes = [s for s in path.suffixes if s != ".gz"]
    reader = _READERS.get(suffixes[-1] if suffixes else "")
    if reader is None:
        raise ConfigError(f"{path}: not one of {', '.join(_READERS)}, with or without .gz")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, fields in enumerate(reader(stream, path), 1):
                if not isinstance(fields, Mapping):
                    raise ConfigError(f"{path}, row {number}: not an object but {fields!r:.60}")
                yield Row(str(path), number, fields)
    except (OSError, EOFError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc


def _json(stream: io.BufferedIOBase, path: Path) -> Sequence[object]:
    try:
        rows = orjson.loads(stream.read())
    except orjson.JSONDecodeError as exc:
        raise ConfigError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: not a list of rows")
    return rows


def _jsonl(stream: io.BufferedIOBase, path: Path) -> Iterator[object]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as exc:
                raise ConfigError(f"{path}, line {number} is not JSON: {exc}") from exc


def _csv(stream: io.BufferedIOBase, _: Path) -> Iterator[object]:
    yield from csv.DictReader(codecs.iterdecode(stream, "utf-8"))


def _parquet(stream: io.BufferedIOBase, path: Path) -> Sequence[object]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as exc:
        raise ConfigError(f"{path}: reading Parquet needs pip install 'podium[eval]'") from exc
    try:
        rows: Sequence[object] = parquet.read_table(stream).to_pylist()
    except arrow.ArrowException as exc:
        raise ConfigError(f"{path} is not Parquet: {exc}") from exc
    return rows


_READERS: Mapping[str, Callable[[io.BufferedIOBase, Path], Iterable[object]]] = {
    ".json": _json,
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}


def _download(hub: Hub, split: str) -> Iterator[Row]:
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
        from huggingface_hub import hf_hub_download
    except ImportError as exc:
        raise ConfigError(
            f"{hub.path} is on the Hugging Face hub: pip install 'podium[eval]', or name a local "
            "file in its published schema with --data"
        ) from exc
    try:
        for file in hub.files:
            yield from read_file(Path(hf_hub_download(hub.path, file, repo_type="dataset")))
        if not hub.files:
            parts = (load_dataset(hub.path, c, split=hub.splits[split]) for c in hub.configs)
            for number, fields in enumerate(chain.from_iterable(parts), 1):
                yield Row(hub.path, number, fields)
    except (OSError, ValueError, DatasetsError) as exc:
        raise ConfigError(
            f"{hub.path} could not be loaded from the Hugging Face hub ({exc}); name a local file "
            "in its published schema with --data"
        ) from exc
