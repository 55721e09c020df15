"""The recipe for specialists: settings that all lessons share, and what differs for one skill."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from podium.errors import ConfigError
from podium.eval.tiny.skills import SKILLS

Count = Annotated[int, Field(ge=1)]


class Lesson(BaseModel):
    """How a specialist is taught."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: Count = 150
    batch: Count = 16
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    warmup: Count = 10
    """Steps until the full learning rate, which then falls linearly to nothing."""
    rank: Count = 4
    alpha: Count = 8
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
    seed: int = 0
    every: Count = 25
    """Steps between checkpoints."""
    precision: Literal["f16", "q8_0"] = "f16"
    """Of the adapter that ships."""


class _Recipe(BaseModel):
    model_config = ConfigDict(extra="forbid")

    all: dict[str, object] = {}
    skills: dict[str, dict[str, object]]


def lessons(file: Path, *, only: Sequence[str] = ()) -> dict[str, Lesson]:
    """The lesson of each skill that the recipe names, in its order."""
    try:
        recipe = _Recipe.model_validate(tomllib.loads(file.read_text()))
        if unknown := {*recipe.skills, *only} - set(SKILLS):
            raise ConfigError(f"no skill is called {min(unknown)!r}: there are {', '.join(SKILLS)}")
        found = {n: Lesson.model_validate(recipe.all | own) for n, own in recipe.skills.items()}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return {n: lesson for n, lesson in found.items() if not only or n in only}
