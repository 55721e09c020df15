"""One strict TOML file, read once into a frozen value.

A key that is misspelt, unused or of the wrong type is an error that names it. Secrets never
enter: a worker names the environment variable that holds its key.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from podium.errors import ConfigError
from podium.types import Limits, Sampling
from podium.workers import Price

FILE = "podium.toml"

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PriceSection(Section):
    """Dollars per million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] | None = None

    def value(self) -> Price:
        return Price(self.input, self.output, self.cached)


class LimitsSection(Section):
    """What is not given is not limited, but for the steps, rounds and depth of one run."""

    dollars: Positive | None = None
    tokens: Count | None = None
    calls: Count | None = None
    seconds: Positive | None = None
    step_seconds: Positive | None = 300.0
    steps: Annotated[int, Field(ge=1, le=32)] = 5
    rounds: Count = 1
    depth: Annotated[int, Field(ge=0)] = 2

    def value(self) -> Limits:
        return Limits(**self.model_dump())


class WorkerSection(Section):
    name: Annotated[str, Field(min_length=1, pattern=r"^\S+$")]
    kind: Literal["openai", "anthropic", "gemini", "local", "vote", "python", "strategy"] = "openai"
    """The dialect it is spoken to in, or what it is if it is no server."""
    model: str = ""
    """As its server calls it; for `local` the path of a GGUF file or the name of a known one."""
    base_url: str = ""
    key_env: str = ""
    """The environment variable that holds its key. Keys themselves never stand here."""
    adapter: str = ""
    """For `local`: a LoRA adapter in GGUF form, a path or the name of one that we ship."""
    strategy: str = ""
    """For `strategy`: the name of the strategy that works behind this name."""
    description: str = ""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    price: PriceSection | None = None
    region: str = ""
    fallback: str = ""
    prompt: Literal["full", "compact"] = "full"
    max_tokens: Count = 4096
    max_tokens_field: Literal["", "max_tokens", "max_completion_tokens"] = ""
    """What an OpenAI-like server calls the limit; left out, it goes by the address."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    effort: str | None = None
    """Reasoning effort in a word, or a thinking budget in tokens."""
    extra: dict[str, object] = {}
    """Further fields of the request's body, passed on as they are."""
    concurrency: Count | None = None
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    retries: Annotated[int, Field(ge=0)] = 4
    record: bool = True
    """Whether its calls are recorded when recording is on."""

    @property
    def remote(self) -> bool:
        return self.kind in ("openai", "anthropic", "gemini")

    def sampling(self) -> Sampling:
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            effort=self.effort,
        )

    @model_validator(mode="after")
    def _complete(self) -> WorkerSection:
        if self.remote and not self.model:
            raise ValueError(f"worker {self.name!r} needs `model`")
        if self.kind == "openai" and not self.base_url:
            raise ValueError(f"worker {self.name!r} needs `base_url`, such as one ending in /v1")
        if self.kind == "strategy" and not self.strategy:
            raise ValueError(f"worker {self.name!r} needs `strategy`, the name of one")
        return self


class PlannerSection(Section):
    """Who writes the workflows, and how it is spoken to."""

    worker: str = ""
    """The name of a worker of the pool that plans as well, or of one of `[[planner_worker]]`."""
    workflow: str = ""
    """A file with a fixed workflow, in place of a model."""
    checkpoint: str = ""
    """A trained Conductor: a directory that `podium train` wrote, or the name of one that we
    ship. It brings its own manner of being spoken to, and its steps and rounds."""
    show: Literal["numbers", "cards"] = "cards"
    prompt: Literal["full", "compact"] = "full"
    binary: bool = False
    held: bool = False
    repairs: Annotated[int, Field(ge=0)] = 1
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Count = 1024

    @model_validator(mode="after")
    def _one_source(self) -> PlannerSection:
        if sum(map(bool, (self.worker, self.workflow, self.checkpoint))) != 1:
            raise ValueError("a planner is a `worker`, a `workflow` file or a `checkpoint`")
        return self


class StrategySection(Section):
    name: Annotated[str, Field(min_length=1)]
    planner: PlannerSection | None = None
    head: str = ""
    """In place of a planner: the file of a TRINITY head, which picks a worker without a word. One
    that is called `podium-fast` is what a server answers under that name."""
    sampled: bool = False
    """With a head: draw who works from its chances, instead of taking the likeliest."""
    workers: tuple[str, ...] | None = None
    """Which of the pool it may use; all of them if it is left out."""
    rounds: Count | None = None
    steps: Count | None = None

    @model_validator(mode="after")
    def _one_leader(self) -> StrategySection:
        if bool(self.planner) == bool(self.head):
            raise ValueError(f"strategy {self.name!r} needs either a `planner` or a `head`")
        return self


class Config(Section):
    store: str = "~/.local/share/podium/podium.sqlite"
    recording: Literal["off", "record", "replay", "read-through"] = "off"
    on_failure: Literal["continue", "skip"] = "continue"
    """What becomes of the readers of a step that failed."""
    limits: LimitsSection = LimitsSection()
    """Of one run."""
    process: LimitsSection = LimitsSection()
    """Of everything that one process spends: its dollars, tokens, calls."""
    planner: PlannerSection
    planner_worker: tuple[WorkerSection, ...] = ()
    """Models that plan and do not work."""
    worker: Annotated[tuple[WorkerSection, ...], Field(min_length=1)]
    strategy: tuple[StrategySection, ...] = ()

    @model_validator(mode="after")
    def _names_exist(self) -> Config:
        known = [w.name for w in (*self.worker, *self.planner_worker)]
        if twice := [name for name in known if known.count(name) > 1]:
            raise ValueError(f"two workers are called {twice[0]!r}: names must differ")
        strategies = [s.name for s in self.strategy]
        for what, name, among in self._references():
            if name and name not in (strategies if what == "strategy" else known):
                there = ", ".join(strategies if what == "strategy" else known) or "none"
                raise ValueError(
                    f"{among} names the {what} {name!r}, which does not exist: {there}"
                )
        return self

    def keeping_calls(self) -> Config:
        """For evaluation and training: every call is kept, so that none is paid for twice."""
        replay = self.recording == "replay"
        return self.model_copy(update={"recording": "replay" if replay else "read-through"})

    def _references(self) -> list[tuple[str, str, str]]:
        planners = [
            ("[planner]", self.planner),
            *((f"strategy {s.name!r}", s.planner) for s in self.strategy if s.planner),
        ]
        return [
            *(("worker", planner.worker, place) for place, planner in planners),
            *(("worker", w.fallback, f"the fallback of {w.name!r}") for w in self.worker),
            *(("strategy", w.strategy, f"worker {w.name!r}") for w in self.worker),
            *(
                ("worker", n, f"strategy {s.name!r}")
                for s in self.strategy
                for n in s.workers or ()
            ),
        ]


def load(path: Path | str) -> Config:
    """Read a configuration.

    Raises:
        ConfigError: with one line that says what to change, and where.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot read {path}: {exc.strerror}") from exc
    try:
        return Config.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"{path}: {_explain(exc)}") from exc


def _explain(error: ValidationError) -> str:
    """The first complaint as one line that names the key."""
    # A misspelt key comes first: what it was meant to be is then missing, too.
    found = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    first = found[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        close = difflib.get_close_matches(key, _known_keys(), n=1)
        hint = f": did you mean `{close[0]}`?" if close else ""
        return f"unknown key `{place}`{hint}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"`{place}`: {message}" if place else message


def _known_keys() -> list[str]:
    sections = (
        Config, WorkerSection, PlannerSection, StrategySection, LimitsSection, PriceSection,
    )  # fmt: skip
    return [key for section in sections for key in section.model_fields]
