"""`podium report`: what an evaluation found, as a table, as JSON and as a page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from podium.app import SINGLE
from podium.eval.page import write_page
from podium.eval.plots import dollars
from podium.eval.report import Figures, Report, percent, summarise
from podium.eval.tally import Tally, read
from podium.serve import visit

PAGE = "report.html"
WIDE = 160
"""Columns where nobody looks at a terminal: a file, a pipe."""


@click.command()
@click.argument(
    "directories", nargs=-1, required=True, metavar="DIR…",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)  # fmt: skip
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path),
              help="Where the page goes, instead of report.html in the first DIR.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="An object by strategy.")
def report(directories: tuple[Path, ...], html: Path | None, as_json: bool) -> None:
    """Print what evaluations found, and write it as one page that needs no network.

    Directories of the same task and split are compared with each other, question by question.
    """
    asyncio.run(show(directories, as_json=as_json, page=html or directories[0] / PAGE))


async def show(directories: Sequence[Path], *, as_json: bool, page: Path) -> None:
    """The table on stdout, or JSON; the page on disk."""
    tallies = await read(directories)
    reports = [summarise(tally) for tally in tallies]
    for place, (tally, made) in _pages(page, tallies, reports).items():
        await write_page(place, tally, made)
    if as_json:
        found = {made.title: made.figures for made in reports}
        only = reports[0].figures if len(reports) == 1 else found
        options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
        click.echo(orjson.dumps(only, option=options))
        return
    for made in reports:
        print_report(made)
    for place in _pages(page, tallies, reports):
        click.echo(f"page: {place}", err=True)
    for directory in directories:
        if shown := await visit.evaluation(directory):
            click.echo(f"on the server: {shown}", err=True)


def _pages(
    page: Path, tallies: Sequence[Tally], reports: Sequence[Report]
) -> Mapping[Path, tuple[Tally, Report]]:
    """One page for each task and split; the first has the name that was asked for."""
    return {
        page.with_stem(f"{page.stem}-{i + 1}") if i else page: pair
        for i, pair in enumerate(zip(tallies, reports, strict=True))
    }


def print_report(made: Report) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(f"\n{made.title}", style="bold", highlight=False)
    console.print(_table(made, ("right", "95 %", "p", "gap", "$/question", "calls", "n"), _first))
    columns = ("tokens", "seconds", "steps", "unread", "unscored", "failed", "stands for")
    console.print(_table(made, columns, _second))
    if any(f.categories for f in made.figures.values()):
        console.print(_categories(made))
    for doubt in made.doubts:
        console.print(Text(f"• {doubt}", style="yellow"))
    for name, figures in made.figures.items():
        for doubt in figures.doubts:
            console.print(Text(f"• {name}: {doubt}", style="yellow"))


def _table(
    made: Report, columns: Sequence[str], cells: Callable[[Figures], Sequence[str]]
) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("strategy", overflow="fold")
    for column in columns:
        said = column == "stands for"
        table.add_column(column, justify="left" if said else "right", no_wrap=not said)
    for name, f in made.figures.items():
        table.add_row(name, *cells(f))
    return table


def _first(f: Figures) -> list[str]:
    return [
        percent(f.accuracy),
        f"{f.low:.1%} – {f.high:.1%}",
        chance(f.p_vs_best_single),
        "" if f.gap_closed is None else f"{f.gap_closed:.0%}",
        dollars(f.usd_per_question).removeprefix("$"),
        f"{f.calls_per_question:.1f}",
        str(f.n),
    ]


def _second(f: Figures) -> list[str]:
    failed = ", ".join(f"{count} {blame}" for blame, count in f.failures.items()) or "0"
    return [
        f"{f.tokens_per_question:.0f}",
        f"{f.seconds_per_question:.1f}",
        f"{f.steps_per_workflow:.1f}",
        str(f.unread),
        str(f.unscored),
        failed,
        f.says,
    ]


def chance(p: float | None) -> str:
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _categories(made: Report) -> Table:
    """The strategies that are compared; each worker alone stands on the page."""
    shown = [name for name in made.figures if not name.startswith(SINGLE)] or list(made.figures)
    table = Table(box=None, pad_edge=False)
    table.add_column("category")
    table.add_column("n", justify="right")
    for name in shown:
        table.add_column(name, justify="right", overflow="fold")
    for category in dict.fromkeys(c for name in shown for c in made.figures[name].categories):
        found = [made.figures[name].categories.get(category) for name in shown]
        most = max(c.n for c in found if c)
        table.add_row(category, str(most), *(f"{c.accuracy:.1%}" if c else "" for c in found))
    return table
