"""The recipe of a TRINITY: what a `podium train` file says whose kind is `trinity`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from podium.config import Count, LimitsSection, Positive, Section
from podium.errors import ConfigError
from podium.train.recipe import Data, PoolSection
from podium.trinity import Role

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]


class ModelSection(Section):
    """The small model whose states are read."""

    base: str = "smollm2-135m-instruct"
    engine: Literal["llama.cpp", "transformers"] = "llama.cpp"
    """Both read the same weights. On a processor with bfloat16 instructions transformers reads
    many questions several times as fast; llama.cpp is what serves."""
    position: Annotated[int, Field(lt=0)] = -2
    question_chars: Count = 320
    tuned: tuple[str, ...] = ()
    """Singular-value fine-tuning, with transformers: the linear maps whose names begin like this,
    as `layers.28.` for all of a layer. Published: those of the last layer but one."""

    @model_validator(mode="after")
    def _tunable(self) -> ModelSection:
        if self.tuned and self.engine != "transformers":
            raise ValueError('tuned singular values need `engine = "transformers"`')
        return self


class Questions(Section):
    """At most so many of each split, drawn at random; all of them where nothing is said."""

    kinds: tuple[str, ...] = ()
    """Only questions of these categories."""
    train: Count | None = None
    dev: Count | None = None
    test: Count | None = None


class Warm(Section):
    """Supervised warm start: a regression on what each worker earned, asked alone."""

    shrink_kinds: Positive = 0.03
    """How little is believed of what a kind of question earned, in squared units of the state."""
    shrink_questions: Positive = 3.0
    """And of what a single question earned beyond that."""
    temperature: Positive = 0.05
    """How much more a worker must be expected to earn to be e times as likely."""


class Evolve(Section):
    generations: Annotated[int, Field(ge=0)] = 60
    repeats: Count = 16
    """Episodes of each candidate."""
    population: Count | None = None
    """⌈4 + 3 ln n⌉ where nothing is said."""
    sigma: Positive = 0.03
    components: Count | None = None
    """Search in so many principal directions of the states, not in the raw coordinates."""
    same_questions: bool = True
    """All candidates of a generation answer the same ones. Published: each draws its own."""
    sampled: bool = True
    """Candidates draw from their softmaxes, as published; otherwise they take the likeliest, as
    they do in use. After a warm start they are flat, and drawing drowns what is learned."""
    validate_every: Count = 5
    """Generations between looks at the dev split; the best one there is kept."""


class BonusSection(Section):
    diversity: Weight = 0.0
    turns: Weight = 0.0


class RulesSection(Section):
    turns: Count = 5
    always_answer: bool = True
    show_objections: bool = True


class TrinityRecipe(Section):
    kind: Literal["trinity"]
    name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    seed: int = 0
    model: ModelSection = ModelSection()
    data: Data
    questions: Questions = Questions()
    pool: PoolSection = PoolSection()
    exam: str = ""
    """A podium.toml with workers of the same names who are asked on test, where those of the
    training only stand in for them."""
    roles: tuple[Role, ...] = ()
    """None trains a router."""
    rules: RulesSection = RulesSection()
    limits: LimitsSection = LimitsSection()
    dollars: Positive | None = None
    """What the whole training may spend."""
    warm: Warm | None = None
    evolution: Evolve = Evolve()
    bonuses: BonusSection = BonusSection()
    prices: Annotated[tuple[Weight, ...], Field(min_length=1)] = (0.0,)
    """A head for each: what a thousandth of a dollar takes off the reward of an episode."""
    dollar_share: Share = 0.35
    """The head that is kept is the best on dev among those that surely cost at most this share of
    what the best single worker costs: the whole 95 % interval lies below it."""
    start: str = ""
    """A head to go on from, perhaps of another pool: in place of a warm start."""
    compare: bool = False
    """Also train what evolution is compared with, on as many episodes."""
    ablations: bool = False
    """Also train without each of the published parts, and by each of the published rules."""

    @model_validator(mode="after")
    def _one_start(self) -> TrinityRecipe:
        if self.start and self.warm:
            raise ValueError("evolution starts from a head or from a warm start, not from both")
        return self


def read_recipe(raw: dict[str, Any]) -> TrinityRecipe:
    try:
        return TrinityRecipe.model_validate(raw)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"the recipe: `{place}`: {first['msg']}") from exc
