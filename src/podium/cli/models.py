"""`podium models`: the models that run on this machine."""

from __future__ import annotations

import click


@click.group()
def models() -> None:
    """The models that run on this machine."""
