"""`podium serve`: the pool behind one endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from podium.errors import ConfigError


@click.command()
@click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Processes that share the socket.",
)
@click.option(
    "--grace",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds that runs under way have to finish when it is told to stop.",
)
@click.option(
    "--operator",
    "operators",
    multiple=True,
    metavar="KEY",
    help="A key, by its name, that sees every key's runs and may deny a worker to everybody.",
)
@click.option("--open", is_flag=True, help="Show the page in a browser.")
def serve(config: Path | None, **flags: Any) -> None:
    """Serve OpenAI's and Anthropic's APIs over the configured pool, and a page to watch it.

    \b
    POST /v1/chat/completions, /v1/responses, /v1/messages; GET /v1/models
    models: podium, podium-fast, podium-deep, each strategy, each worker by its name

    Without keys it listens on this machine only; `podium keys new NAME` makes one. SIGHUP reads
    the configuration anew.
    """  # fmt: skip
    try:
        from podium.serve.server import Options
        from podium.serve.server import serve as run
    except ImportError as exc:
        raise ConfigError(f"{exc.name} is missing: pip install 'podium[serve]'") from exc
    run(Options(config, **flags))
