"""A recipe: everything that decides what a training run does, in one strict TOML file.

Settings that are left out have the paper's values where the paper has one. A key that is unknown
is refused with its name, so that no setting is silently without effect.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from podium.config import Count, LimitsSection, Positive, Section
from podium.errors import ConfigError
from podium.prompts import Style

Share = Annotated[float, Field(ge=0, le=1)]
Scale = Literal["group", "none", "right"]
Against = Literal["group", "standing"]


class Lora(Section):
    rank: Count = 16
    alpha: Count = 32
    modules: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip


class Model(Section):
    """The model that becomes the Conductor."""

    base: str
    """A directory in Hugging Face's format, the name of a model on its hub, a GGUF file, or
    `smollm2-135m-instruct`."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Left out, bfloat16 where the machine has instructions for it, else float32."""
    lora: Lora | None = None
    """Without it every weight is trained."""
    adapter: str = ""
    """An adapter of that base to go on from: the checkpoint of an earlier run."""


class StyleSection(Section):
    """How the Conductor is spoken to, in training and ever after."""

    show: Literal["numbers", "cards"] = "numbers"
    form: Literal["full", "compact"] = "full"
    binary: bool = False
    aloud: bool = False
    question_chars: Count = 20_000

    def value(self) -> Style:
        return Style(**self.model_dump())


class Data(Section):
    """Where the questions come from."""

    world: str = ""
    """A directory of recorded answers; its workers are the pool."""
    task: str = ""
    """The name of an evaluation task, `paper` for the mixture of the paper, or `tiny` for the
    questions that the shipped specialists answer together."""
    contested: bool = True
    """Keep the questions that some worker answers right and another one wrong."""
    among: Count | None = None
    """Of the workers that are best on the training split, how many must be divided over a question
    for it to be kept; all of them if it is left out. Where the best agree, no choice among them
    matters."""
    questions: Count | None = None
    """At most so many of the training split, drawn at random."""
    kinds: tuple[str, ...] = ()
    """Only training questions of these categories; all of them if it is left out."""
    later: Share = 0.0
    """Share of the others that come before the first question whose plan has several steps: those
    build on what is learnt from the rest, and no draft of theirs is right before."""
    nonsense: Annotated[int, Field(ge=0)] = 0
    """Further questions for the cold start alone, about made-up tasks that nobody can do: what is
    learnt there is to take a question apart, whatever it asks. For `tiny`."""
    seed: int = 1
    """Of the questions that are made up."""

    @model_validator(mode="after")
    def _one_source(self) -> Data:
        if bool(self.world) == bool(self.task):
            raise ValueError("questions come either from a `world` or from a `task`")
        return self


class PoolSection(Section):
    config: str = ""
    """A podium.toml whose workers are the pool, where the world does not bring its own. Calls are
    kept in its store, so that a killed run does not pay twice."""
    only: tuple[str, ...] = ()
    """Names to keep; all of them if it is left out."""
    programs: tuple[Literal["vote"], ...] = ()
    """Programs that may be called besides the workers."""
    draw: tuple[Count, Count] | None = None
    """Adaptive pools: every question gets a random subset of this size (least, most), renumbered;
    programs are always among it."""


class Cold(Section):
    """Supervised fine-tuning on well-formed drafts whose workers are random."""

    drafts: Count = 640
    workers: tuple[Count, Count] = (1, 4)
    """Least and most workers of a draft, where questions bring no plan of their own."""
    under_one_prompt: Count = 8
    """Drafts that share a question, and so the reading of it."""
    again: Share = 0.0
    """Share of the drafts that are of a second round. Those let the answer stand where the first
    round's voices agree and ask one more where they do not, mostly."""
    batch: Count = 16
    learning_rate: Positive = 5e-4


class Grpo(Section):
    steps: Annotated[int, Field(ge=0)] = 200
    stop: Count | None = None
    """The step after which it ends, though the schedule is made for `steps` of them."""
    questions: Count = 4
    """Per step."""
    drafts: Annotated[int, Field(ge=2)] = 64
    """Per question: the group within which rewards are compared."""
    batch: Count | None = None
    """Drafts per backward pass; all of a step if it is left out."""
    learning_rate: Positive = 1e-6
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "cosine"
    warmup: Share = 0.03
    """Share of the steps over which the learning rate rises."""
    temperature: Positive = 1.0
    max_tokens: Count = 1024
    clip: Positive = 0.2
    kl: Annotated[float, Field(ge=0)] = 0.0
    loss: Literal["bnpo", "dapo", "grpo", "dr_grpo"] = "bnpo"
    scale: Scale = "group"
    """What a group's advantages are divided by: their standard deviation; nothing; or the share of
    right answers, so that the fewer there are the more each counts. Who is good at little is then
    not drowned by who is good at much."""
    blame: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What went wrong is blamed on tokens that had at most this probability. Any other was no
    choice, and a very small model that is pushed away from what it is sure of goes anywhere."""
    discount: Share = 0.25
    """How much of a second round's reward the draft of the first one gets."""
    against: Against = "group"
    """What a second round is compared with: the second rounds of the group's other rollouts, as in
    the paper; or what letting its own answer stand would have earned. First rounds that went
    otherwise leave other situations behind, some harder than others: compared with each other,
    whoever looks again in a hard one seems to do worse than who stands in an easy one."""
    certain: Annotated[float, Field(ge=0, lt=0.1)] = 0.0
    """Tokens at the end of a draft that were all sampled with a probability above 1 - `certain`
    are left out of learning: their gradient is next to nothing, and their computation is not."""
    save: Count = 20
    """Steps between checkpoints."""
    report_to: tuple[str, ...] = ()
    """`tensorboard`, `wandb`, `trackio`: whatever TRL can report to."""
    vllm: Literal["", "server", "colocate"] = ""


class Reward(Section):
    malformed: float = 0.0
    """For a draft that cannot be performed."""
    wrong: float = 0.5
    right: float = 1.0
    cost: Annotated[float, Field(ge=0)] = 0.0
    """Taken from a right answer that cost `cost_at` dollars; from cheaper ones in proportion."""
    cost_at: Positive = 0.01
    gate: bool = False
    """A group without any right answer teaches nothing: its format is not ordered either."""
    repeats: bool = True
    """Whether a workflow may ask one worker the same thing twice. A recording says the same again,
    so in a vote it speaks with two voices; if not, such a workflow earns `malformed`."""

    @model_validator(mode="after")
    def _ordered(self) -> Reward:
        if not self.malformed <= self.wrong < self.right:
            raise ValueError("`malformed` <= `wrong` < `right` must hold")
        if self.right - self.cost <= self.wrong:
            raise ValueError("`cost` is too high: any right answer must stay above any wrong one")
        return self


class Report(Section):
    """What is measured when the learning is done."""

    choose: Annotated[int, Field(ge=0)] = 0
    """Of how many of the last checkpoints the best is kept; 0 keeps the last one unmeasured."""
    choose_on: Count = 300
    """Questions of the dev split that they are compared on."""
    splits: tuple[Literal["dev", "test"], ...] = ()
    """On which the checkpoint is reported, beside every single worker."""


class Recipe(Section):
    name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    seed: int = 0
    model: Model
    style: StyleSection = StyleSection()
    data: Data
    pool: PoolSection = PoolSection()
    limits: LimitsSection = LimitsSection()
    """Of one draft and what comes of it."""
    dollars: Positive | None = None
    """What the whole training may spend."""
    cold: Cold | None = None
    grpo: Grpo = Grpo()
    reward: Reward = Reward()
    report: Report = Report()


def load(path: Path | str) -> Recipe:
    """Read a recipe.

    Raises:
        ConfigError: with one line that names the key to change.
    """
    try:
        raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return Recipe.model_validate(raw)
    except OSError as exc:
        raise ConfigError(f"cannot read {path}: {exc.strerror}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"{path}: {_explain(exc)}") from exc


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key `{place}`"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"`{place}`: {message}" if place else message
