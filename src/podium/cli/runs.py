"""`podium runs` and `podium show`: what was asked before."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from podium.app import Podium
from podium.cli.ask import as_json
from podium.cli.view import money, replay, summary
from podium.errors import ConfigError
from podium.types import Message, Run

CONFIG = click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@CONFIG
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_lines", is_flag=True, help="A JSON object a line.")
def runs(config: Path | None, limit: int, as_lines: bool) -> None:
    """List what was asked before, the newest first."""
    asyncio.run(_runs(config, limit, as_lines))


@click.command()
@click.argument("id")
@CONFIG
@click.option("-m", "--messages", is_flag=True, help="Every message that was sent and received.")
@click.option("--json", is_flag=True, help="The whole record.")
def show(id: str, config: Path | None, messages: bool, json: bool) -> None:
    """Show one run again: its tree, its answer, its cost. The start of an id is enough."""
    asyncio.run(_show(id, config, messages, json))


async def _runs(config: Path | None, limit: int, as_lines: bool) -> None:
    async with Podium.open(config) as podium:
        rows = await podium.store.runs(limit=limit)
    if as_lines:
        for row in rows:
            click.echo(orjson.dumps(row))
        return
    table = Table(box=None, pad_edge=False, expand=True)
    for column in ("run", "when", "state", "steps", "seconds", "cost"):
        table.add_column(column, no_wrap=True, min_width=len(column))
    table.add_column("question", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        when = datetime.fromtimestamp(row.started).astimezone().strftime("%m-%d %H:%M")
        figures = (str(row.steps), f"{row.seconds:.1f}", money(row.usd))
        question = escape(" ".join(row.question.split()))
        table.add_row(row.id, when, row.state, *figures, question)
    Console().print(table)


async def _show(id: str, config: Path | None, messages: bool, json: bool) -> None:
    async with Podium.open(config) as podium:
        run = await podium.run(id) or await _only_match(podium, id)
    if json:
        click.echo(orjson.dumps(as_json(run), option=orjson.OPT_INDENT_2))
        return
    console = Console(stderr=True)
    console.print(replay(run).tree())
    console.print(summary(run), style="dim")
    if messages:
        _print_messages(run)
    if run.answer is not None:
        click.echo(run.answer)


async def _only_match(podium: Podium, start: str) -> Run:
    found = [row.id for row in await podium.store.runs(limit=1000) if row.id.startswith(start)]
    if len(found) != 1:
        problem = "no run" if not found else f"{len(found)} runs"
        raise ConfigError(f"{problem} with an id that starts with {start!r}: see `podium runs`")
    run = await podium.run(found[0])
    assert run is not None
    return run


def _print_messages(run: Run) -> None:
    for number, round in enumerate(run.rounds, 1):
        for draft in round.drafts:
            _print_exchange(f"round {number}, planning", draft.messages, draft.text)
        for index, result in enumerate(round.results):
            place = f"round {number}, step {index}, {result.worker}"
            failure = result.failure.message if result.failure else ""
            _print_exchange(place, result.messages, result.output or failure)


def _print_exchange(place: str, messages: tuple[Message, ...], reply: str) -> None:
    for message in messages:
        click.secho(f"── {place}: {message.role}", bold=True, err=True)
        click.echo(message.content, err=True)
    click.secho(f"── {place}: reply", bold=True, err=True)
    click.echo(reply, err=True)
