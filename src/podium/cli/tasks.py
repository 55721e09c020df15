"""`podium tasks`: the benchmarks there are, and whether their own answers pass."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from podium.eval.legs import open_sandbox
from podium.eval.tasks import (
    FAMILIES,
    TASKS,
    Item,
    Report,
    Task,
    check,
    draw,
    find,
    paper_mixture,
)

SHOWN = 20


@click.group(invoke_without_command=True)
@click.pass_context
def tasks(ctx: click.Context) -> None:
    """List the tasks: where each comes from, under which licence, how it is graded."""
    if ctx.invoked_subcommand is not None:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("task", "splits", "grader", "licence", "source"):
        table.add_column(column, overflow="fold")
    for task in TASKS.values():
        splits = ", ".join(task.splits)
        table.add_row(task.name, splits, task.grader, task.licence, task.source)
    for family in FAMILIES:
        table.add_row(f"{family}:…", "", "", "", "a family that takes an argument")
    Console().print(table)


@tasks.command(name="check")
@click.argument("name")
@click.option("--split", help="Instead of the task's last one.")
@click.option("--data", type=click.Path(exists=True, path_type=Path),
              help="A local file in the published schema.")  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(min=1), help="So many items, drawn.")
@click.option("--json", "as_json", is_flag=True)
@click.pass_context
def check_task(
    ctx: click.Context,
    /,
    name: str,
    split: str | None,
    data: Path | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Grade a task's own answers, which must all pass, and spoilt ones, of which none may."""
    task = find(name)
    items = task.load(split or task.splits[-1], data)
    found = asyncio.run(_check(task, items if limit is None else draw(items, limit)))
    if as_json:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    else:
        _print(found)
    ctx.exit(0 if found.sound else 1)


async def _check(task: Task, items: Sequence[Item]) -> Report:
    async with AsyncExitStack() as stack:
        return await check(task, items, sandbox=await open_sandbox(items, stack))


def _print(found: Report) -> None:
    missing = f", {found.without_gold} have none" if found.without_gold else ""
    click.echo(f"{found.task}: {found.passed} of {found.items} gold answers pass{missing}")
    click.echo(f"{len(found.spoilt_passed)} spoilt answers pass")
    for kind, failed in (
        ("a gold answer fails", found.gold_failed),
        ("a spoilt answer passes", found.spoilt_passed),
        ("could not be graded", found.unscored),
    ):
        for one in failed[:SHOWN]:
            click.echo(f"  {one.id}: {kind}: {one.answer!r:.80} {one.score.note}")
        if len(failed) > SHOWN:
            click.echo(f"  and {len(failed) - SHOWN} more")


@tasks.command()
@click.option("--data", multiple=True, metavar="TASK=FILE", help="A local file for a part.")
@click.option("--each", default=240, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=42, show_default=True)
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the questions there, an object a line.")  # fmt: skip
def mixture(data: tuple[str, ...], each: int, seed: int, out: Path | None) -> None:
    """Draw the Conductor paper's training mixture: so many problems from each of four sets."""
    pairs = dict(part.partition("=")[::2] for part in data)
    drawn = paper_mixture({n: Path(f) for n, f in pairs.items()}, each=each, seed=seed)
    if out is not None:
        out.write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in drawn.items))
    click.echo(f"{len(drawn.items)} problems, digest {drawn.digest}")
