"""`podium train`: run a recipe, or say what it would do."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path

import click
import orjson

from podium.errors import ConfigError


@click.command()
@click.argument("recipe", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path),
    help="Where it goes; runs/NAME by default. A run that stopped goes on from there.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Data, prompt lengths, expected calls and price.")
def train(recipe: Path, out: Path | None, dry_run: bool) -> None:
    r"""Train a Conductor, or evolve a TRINITY head, by a recipe.

    \b
    podium train recipes/recorded.toml --dry-run
    podium train recipes/recorded.toml --out runs/recorded
    """
    _speak()
    raw = _read(recipe)
    directory = out or Path("runs") / recipe.stem
    if raw.get("kind") == "trinity":
        if dry_run:
            raise ConfigError("a TRINITY recipe asks nobody for money and has no --dry-run")
        click.echo(_evolve(raw, directory))
        return
    click.echo(orjson.dumps(_train(recipe, directory, dry_run), option=orjson.OPT_INDENT_2))


def _speak() -> None:
    """What a run says of itself goes to stderr, a line each, also into the log of a quiet night."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("podium.train").setLevel(logging.INFO)


def _read(recipe: Path) -> dict[str, object]:
    try:
        return tomllib.loads(recipe.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"cannot read {recipe}: {exc.strerror}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{recipe} is not valid TOML: {exc}") from exc


def _train(recipe: Path, out: Path, dry_run: bool) -> dict[str, object]:
    try:
        from podium.train.run import train as run

        return run(recipe, out, dry_run=dry_run)
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc


def _evolve(raw: dict[str, object], out: Path) -> Path:
    try:
        from podium.train.trinity import train_trinity

        return train_trinity(raw, out)
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc


def _missing(exc: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"training needs {exc.name}: pip install 'podium[train]'")
