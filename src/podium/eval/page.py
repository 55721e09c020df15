"""The report as one page that needs nothing but a browser: no network, no server, no other file.

Every question can be opened down to the steps of every strategy. What models wrote is hostile: it
travels as compressed data, never as markup; the page sets it as text; and a content policy lets
no script run but the page's own, known by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import orjson

from podium.app import SINGLE
from podium.errors import ConfigError
from podium.eval import plots
from podium.eval.report import Figures, Report, percent
from podium.eval.results import Results, Sample
from podium.eval.tally import Tally

CHUNK = 40
"""Questions that are unpacked together when one of them is opened."""
CHARS = 12_000
"""Of one text; what is longer is cut in the middle, and says so."""
EXCERPT = 160


async def write_page(path: Path, tally: Tally, report: Report) -> None:
    """Write the page.

    Raises:
        ConfigError: it cannot be written there.
    """
    rows = [name for name in report.figures if name in tally.samples]
    items = list(tally.items)
    chunks = [items[at : at + CHUNK] for at in range(0, len(items), CHUNK)]
    sources = [await Results.read(directory) for directory in tally.sources]
    try:
        packed = [_pack(await _chunk(ids, rows, tally, sources)) for ids in chunks]
    finally:
        for source in sources:
            await source.close()
    _write(path, _page(report, _pack(_index(rows, tally)), packed))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot write the page {path}: {exc.strerror}") from exc


def _page(report: Report, index: str, chunks: Sequence[str]) -> str:
    assets = files("podium.eval") / "assets"
    script = (assets / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    blocks = [f'<script type="text/plain" id="index">{index}</script>']
    blocks += [
        f'<script type="text/plain" id="chunk{i}">{chunk}</script>'
        for i, chunk in enumerate(chunks)
    ]
    template = Template((assets / "report.html").read_text(encoding="utf-8"))
    drawn = [
        plots.accuracy_against_cost(report),
        plots.worker_use(report),
        plots.steps(report),
        plots.categories(report),
    ]
    return template.substitute(
        title=escape(report.title),
        style=(assets / "report.css").read_text(encoding="utf-8"),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        summary=_summary(report),
        doubts=_doubts(report),
        table=_table(report),
        plots="".join(drawn),
        data="\n".join(blocks),
        script=script,
    )


def _summary(report: Report) -> str:
    best, oracle = report.figures.get("best-single"), report.figures.get("oracle")
    said = [f"{len(report.figures)} strategies"]
    if best:
        said.append(f"best single worker {escape(best.says)} {percent(best.accuracy)}")
    if oracle:
        said.append(f"some worker right {oracle.accuracy:.1%}")
    return " · ".join(said)


def _doubts(report: Report) -> str:
    said = [*report.doubts, *(f"{n}: {d}" for n, f in report.figures.items() for d in f.doubts)]
    if not said:
        return ""
    items = "".join(f"<li>{escape(doubt)}</li>" for doubt in said)
    return f'<section class="doubts"><h2>What to doubt</h2><ul>{items}</ul></section>'


HEADS = (
    ("strategy", ""),
    ("right", "share of right answers, with its 95 % interval (Wilson)"),
    ("p", "paired, against the best single worker: McNemar's exact test"),
    ("gap", "share of the way from the best single worker to the oracle"),
    ("dollars", "per question"),
    ("tokens", "per question"),
    ("calls", "per question"),
    ("seconds", "per question"),
    ("steps", "per workflow"),
    ("n", "questions scored"),
    ("unread", "scored 0 because no answer could be read"),
    ("unscored", "the grader could not run, or no worker could be reached"),
    ("failed", "runs that failed, by whose fault it was; in brackets failed steps"),
)


def _table(report: Report) -> str:
    head = "".join(f'<th title="{escape(tip)}">{escape(name)}</th>' for name, tip in HEADS)
    body = "".join(_row(name, f, name in report.front) for name, f in report.figures.items())
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(name: str, f: Figures, front: bool) -> str:
    kind = "alone" if name.startswith(SINGLE) else "compared"
    says = f"<small>{escape(f.says)}</small>" if f.says and kind == "compared" else ""
    star = '<span class="star" title="nobody is as right for less">◆</span>' if front else ""
    p = f.p_vs_best_single
    failed = ", ".join(f"{n} {escape(blame)}" for blame, n in f.failures.items()) or "0"
    inner = ", ".join(f"{n} {escape(blame)}" for blame, n in f.step_failures.items())
    cells = [
        f"<b>{percent(f.accuracy)}</b> <small>{f.low:.1%} – {f.high:.1%}</small>",
        "" if p is None else "&lt;0.001" if p < 0.001 else f"{p:.3f}",
        "" if f.gap_closed is None else f"{f.gap_closed:.0%}",
        plots.dollars(f.usd_per_question).removeprefix("$"),
        f"{f.tokens_per_question:.0f}",
        f"{f.calls_per_question:.1f}",
        f"{f.seconds_per_question:.2g}",
        f"{f.steps_per_workflow:.1f}" if f.steps else "",
        str(f.n),
        str(f.unread),
        str(f.unscored),
        failed + (f" [{inner}]" if inner else ""),
    ]
    data = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr class="{kind}"><th>{escape(name)}{star}{says}</th>{data}</tr>'


# ── the questions ──


def _index(rows: Sequence[str], tally: Tally) -> dict[str, Any]:
    """What the list of questions shows; all else is unpacked when a question is opened."""
    by_row = [_by_item(tally.samples[row]) for row in rows]
    return {
        "rows": rows,
        "chunk": CHUNK,
        "items": [
            [
                id,
                item.category or "",
                " ".join(item.question[: 2 * EXCERPT].split())[:EXCERPT],
                [_verdict(samples.get(id, ())) for samples in by_row],
            ]
            for id, item in tally.items.items()
        ],
    }


def _by_item(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.item, []).append(sample)
    return found


def _verdict(samples: Sequence[Sample]) -> float | str:
    """A score, `u` for unscored, `-` for not asked."""
    scores = [s.score for s in samples if s.score is not None]
    if scores:
        return round(sum(scores) / len(scores), 3)
    return "u" if samples else "-"


@dataclass(slots=True)
class _Texts:
    """Texts by number: strategies share most of theirs."""

    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, text: str) -> int:
        if len(text) > CHARS:
            half = CHARS // 2
            text = f"{text[:half]}\n[… {len(text) - CHARS} characters …]\n{text[-half:]}"
        return self.numbers.setdefault(text, len(self.numbers))


async def _chunk(
    ids: Sequence[str], rows: Sequence[str], tally: Tally, sources: Sequence[Results]
) -> dict[str, Any]:
    wanted = set(ids)
    found = {row: _by_item(s for s in tally.samples[row] if s.item in wanted) for row in rows}
    runs = await _runs([s.run for by in found.values() for ss in by.values() for s in ss], sources)
    texts = _Texts()
    questions = {}
    for id in ids:
        item = tally.items[id]
        questions[id] = {
            "question": texts.add(item.question),
            "target": texts.add(target(item.target)),
            "answers": [
                {"row": i, **_answer(sample, runs.get(sample.run, {}), texts)}
                for i, row in enumerate(rows)
                for sample in found[row].get(id, ())
            ],
        }
    return {"texts": list(texts.numbers), "questions": questions}


async def _runs(ids: Sequence[str], sources: Sequence[Results]) -> dict[str, dict[str, Any]]:
    found = {}
    for source in sources:
        marks = ", ".join("?" * len(ids))
        sql = f"SELECT id, record FROM runs WHERE id IN ({marks})"
        for id, record in await source.store.fetch(sql, *ids):
            found[str(id)] = orjson.loads(record)
    return found


def target(wanted: object) -> str:
    """What the right answer is, as a person reads it."""
    if isinstance(wanted, Mapping):
        return str(wanted.get("letter") or wanted.get("answer") or "graded by tests")
    return str(wanted)


def _answer(sample: Sample, run: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
    return {
        "sample": sample.sample,
        "score": sample.score,
        "read": None if sample.read is None else texts.add(sample.read),
        "note": texts.add(sample.note),
        "usd": sample.usd,
        "tokens": sample.input + sample.output,
        "seconds": round(sample.seconds, 3),
        "failure": texts.add(sample.failure),
        "run": sample.run,
        "rounds": [_round(round, texts) for round in run.get("rounds", ())],
    }


def _round(round: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
    return {
        "drafts": [
            [texts.add(draft["completion"]["text"]), texts.add(draft["complaint"])]
            for draft in round["drafts"]
            if draft["completion"]["usage"]["output"]
        ],
        "steps": [_step(result, texts) for result in round["results"]],
    }


def _step(result: Mapping[str, Any], texts: _Texts) -> list[Any]:
    done, failure = result["completion"] or {}, result["failure"]
    usage = done.get("usage", {})
    return [
        result["worker"],
        texts.add(result["step"]["subtask"]),
        result["step"]["access"],
        texts.add(result["output"]),
        usage.get("input", 0) + usage.get("output", 0),
        done.get("cost"),
        round(result["seconds"], 3),
        texts.add(f"{failure['kind']}: {failure['message']}" if failure else ""),
        texts.add(done.get("reasoning", "")),
    ]


def _pack(data: Mapping[str, Any]) -> str:
    return base64.b64encode(zlib.compress(orjson.dumps(data), 6)).decode()
