"""`podium models`: the models that run on this machine."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from podium.models import KNOWN, SMOLLM2, adapters, home, pull


@click.group()
def models() -> None:
    """The models that run on this machine, without a key."""


@models.command(name="pull")
@click.argument("name", default=SMOLLM2.name, type=click.Choice(sorted(KNOWN)))
@click.option("-q", "--quiet", is_flag=True)
def pull_model(name: str, quiet: bool) -> None:
    """Fetch a model, check it, and keep it. Does nothing if it is there."""
    path = pull(name, progress=lambda said: None if quiet else click.echo(said, err=True))
    if not quiet:
        click.echo(path)


@models.command(name="list")
def list_models() -> None:
    """What can be fetched, what is here, and the adapters that come with Podium."""
    table = Table(box=None, pad_edge=False)
    for column in ("model", "size", "licence", "here"):
        table.add_column(column)
    for known in KNOWN.values():
        here = "yes" if (home() / known.file).is_file() else "podium models pull"
        table.add_row(known.name, f"{known.bytes / 1e6:.0f} MB", known.licence, here)
    for name, path in adapters().items():
        table.add_row(name, f"{path.stat().st_size / 1e6:.1f} MB", "Apache-2.0", "an adapter")
    Console().print(table)
