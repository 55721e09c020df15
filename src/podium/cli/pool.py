"""`podium pool check`: reach every worker once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from podium.app import Podium
from podium.errors import PodiumError
from podium.ledger import Ledger
from podium.types import Limits, Message, Request, Sampling
from podium.workers import Call, Member

PROBE = Request((Message("user", "Reply with the word OK."),), sampling=Sampling(max_tokens=16))


@dataclass(frozen=True, slots=True)
class Check:
    worker: str
    ok: bool
    seconds: float
    price: str
    problem: str = ""


@click.group()
def pool() -> None:
    """The workers of the configuration."""


@pool.command()
@click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True)
@click.pass_context
def check(ctx: click.Context, config: Path | None, as_json: bool) -> None:
    """Ask each worker for one word: latency, price, and what is wrong.

    Costs a few tokens at each worker that answers. Exits with 1 if one of them does not.
    """
    checks = asyncio.run(_check_all(config))
    if as_json:
        click.echo(orjson.dumps(checks, option=orjson.OPT_INDENT_2))
    else:
        Console().print(_table(checks))
    ctx.exit(0 if all(found.ok for found in checks) else 1)


async def _check_all(config: Path | None) -> list[Check]:
    async with Podium.open(config) as podium:
        return await asyncio.gather(*(_check(member, podium) for member in podium.pool.members))


async def _check(member: Member, podium: Podium) -> Check:
    price = member.price
    shown = f"${price.input:g} / ${price.output:g} ({price.source})" if price else "unknown"
    if member.program:
        return Check(member.name, True, 0.0, "free (a program)")
    ledger = Ledger(Limits(), podium.ledger)
    started = time.monotonic()
    try:
        async with asyncio.timeout(60):
            await member.worker.complete(PROBE, Call(ledger))
    except TimeoutError:
        return Check(member.name, False, 60.0, shown, "no answer within 60 seconds")
    except PodiumError as exc:
        return Check(member.name, False, time.monotonic() - started, shown, str(exc))
    return Check(member.name, True, time.monotonic() - started, shown)


def _table(checks: list[Check]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "worker", "seconds", "$ per million tokens in / out", "what is wrong"):
        table.add_column(column)
    for found in checks:
        state = "[green]✓[/]" if found.ok else "[red]✗[/]"
        table.add_row(
            state, escape(found.worker), f"{found.seconds:.2f}", found.price, escape(found.problem)
        )
    return table
