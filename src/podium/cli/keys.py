"""`podium keys`: who may use the server, and how much they may spend."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from podium.app import find_config
from podium.config import load
from podium.serve.keys import Key, Keys
from podium.store import open_store
from podium.workshop import embedded


@click.group()
def keys() -> None:
    """Keys of the server: made, listed, limited and revoked."""


def _limits(command: Callable[..., None]) -> Callable[..., None]:
    money = click.FloatRange(min=0)
    for option in reversed(
        [
            click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path)),
            click.option("--daily", type=money, help="Dollars a day (UTC)."),
            click.option("--monthly", type=money, help="Dollars a month (UTC)."),
            click.option("--per-run", type=money, help="Dollars of one run."),
            click.option("--model", "models", multiple=True, help="Only these models."),
            click.option("--worker", "workers", multiple=True, help="Only these workers."),
        ]
    ):
        command = option(command)
    return command


@keys.command()
@click.argument("name")
@_limits
def new(name: str, config: Path | None, **limits: Any) -> None:
    """Make a key. It is printed once; only a hash of it is kept."""
    key = _limited(Key(secrets.token_hex(6), name), limits)
    click.echo(asyncio.run(_with_keys(config, lambda keys: keys.new(key))))


@keys.command()
@click.argument("name")
@click.option("--free", is_flag=True, help="Take all its limits away first.")
@_limits
def limit(name: str, free: bool, config: Path | None, **limits: Any) -> None:
    """Give a key, named by its name or id, other limits; what is left out stays."""

    async def change(keys: Keys) -> None:
        key = await keys.named(name)
        await keys.limit(_limited(Key(key.id, key.name) if free else key, limits))

    asyncio.run(_with_keys(config, change))


@keys.command()
@click.argument("name")
@click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path))
def revoke(name: str, config: Path | None) -> None:
    """Let a key, named by its name or id, open nothing from now on."""

    async def change(keys: Keys) -> None:
        await keys.revoke(await keys.named(name))

    asyncio.run(_with_keys(config, change))


@keys.command("list")
@click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_lines", is_flag=True, help="A JSON object a line.")
def list_keys(config: Path | None, as_lines: bool) -> None:
    """List the keys, what they may do, and what they have spent."""
    found = asyncio.run(_with_keys(config, lambda keys: keys.all()))
    if as_lines:
        for key in found:
            click.echo(orjson.dumps(key, default=sorted))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("id", "name", "made", "state", "today", "month", "a run", "may use"):
        table.add_column(column, no_wrap=column in ("id", "state"))
    for key in found:
        table.add_row(*_row(key))
    Console().print(table)


def _row(key: Key) -> list[str]:
    made = datetime.fromtimestamp(key.created, UTC).strftime("%Y-%m-%d")
    may = [*sorted(key.models or ()), *(f"worker {w}" for w in sorted(key.workers or ()))]
    return [
        key.id,
        escape(key.name),
        made,
        "revoked" if key.revoked else "good",
        _of(key.today, key.daily),
        _of(key.this_month, key.monthly),
        "" if key.per_run is None else f"${key.per_run:.4g}",
        escape(", ".join(may)) or "everything",
    ]


def _of(spent: float, budget: float | None) -> str:
    return f"${spent:.4g}" if budget is None else f"${spent:.4g} of ${budget:.4g}"


def _limited(key: Key, limits: dict[str, Any]) -> Key:
    given = {name: value for name, value in limits.items() if value not in (None, ())}
    named = {n: frozenset(v) for n, v in given.items() if n in ("models", "workers")}
    return replace(key, **{**given, **named})


async def _with_keys(config: Path | None, act: Callable[[Keys], Awaitable[Any]]) -> Any:
    path = config or find_config()
    store = open_store((load(path) if path else embedded()).store)
    try:
        return await act(Keys(store))
    finally:
        await store.close()
