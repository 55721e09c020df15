"""What the three APIs have in common: fields read with care, what was asked, what came of it.

A request is untrusted JSON. Every field is read through `Fields`, which names the field and the
rule in its complaint; what nobody reads is left over for those who pass it on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from podium.errors import PodiumError
from podium.types import (
    UNSET,
    Failure,
    Limits,
    Message,
    Rules,
    Run,
    Sampling,
    StepResult,
    Tool,
    ToolCall,
    Usage,
)

Json = dict[str, object]

MAX_STOPS = 16
IMAGES = ("https://", "http://", "data:")
"""How an image's address may begin. It is handed to the worker; nothing here is ever fetched."""


class Refusal(PodiumError):
    """A request that gets an error for an answer, in whichever shape its API has for one."""

    def __init__(self, message: str, status: int = 400, *, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


class Fields:
    """A JSON object, read field by field. Null counts as not given."""

    def __init__(self, value: object, place: str = "") -> None:
        if not isinstance(value, dict):
            what = f"`{place}`" if place else "the body"
            raise Refusal(f"{what} must be a JSON object", param=place)
        self._left: Json = value.copy()
        self._place = place

    def name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    def take(self, key: str) -> object:
        return self._left.pop(key, None)

    @property
    def rest(self) -> Json:
        """What nobody has read."""
        return {key: value for key, value in self._left.items() if value is not None}

    def wrong(self, key: str, rule: str) -> Refusal:
        return Refusal(f"`{self.name(key)}` {rule}", param=self.name(key))

    def text(self, key: str) -> str | None:
        value = self.take(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "must be a string")
        return value

    def needed(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise self.wrong(key, "must be a string that is not empty")
        return value

    def flag(self, key: str) -> bool | None:
        value = self.take(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def whole(self, key: str, low: int = 1, high: int = 2**31 - 1) -> int | None:
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, f"must be a whole number from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float = math.inf) -> float | None:
        value = self.take(key)
        if value is None:
            return None
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= float(str(value)) <= high:
            upto = f"to {high:g}" if math.isfinite(high) else "upwards"
            raise self.wrong(key, f"must be a number from {low:g} {upto}")
        return float(str(value))

    def mapping(self, key: str) -> Fields | None:
        value = self.take(key)
        return None if value is None else Fields(value, self.name(key))

    def items(self, key: str) -> Sequence[object]:
        value = self.take(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "must be a list")
        return value or []

    def each(self, key: str) -> Sequence[Fields]:
        found = self.items(key)
        return [Fields(item, f"{self.name(key)}[{i}]") for i, item in enumerate(found)]

    def words(self, key: str) -> tuple[str, ...]:
        """A string, or a list of them."""
        value = self.take(key)
        found = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self.wrong(key, "must be a string or a list of strings")
        return tuple(found)

    def stops(self, key: str) -> tuple[str, ...]:
        found = tuple(word for word in self.words(key) if word)
        if len(found) > MAX_STOPS:
            raise self.wrong(key, f"may hold {MAX_STOPS} strings at most")
        return found


def image(url: object, place: str) -> str:
    if not isinstance(url, str) or not url.startswith(IMAGES):
        raise Refusal(f"`{place}` must be a URL of https, http or data", param=place)
    return url


OPEN = Limits(step_seconds=None, steps=2**31, rounds=2**31, depth=2**31)
"""No limit at all: what a request that asks for none asks for."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request may ask of Podium itself, in a `podium` object or `x-podium-*` headers."""

    limits: Limits = OPEN
    """They can lower the limits that a request is served under, and never raise them."""
    rules: Rules = field(default_factory=Rules)
    strategy: str = ""
    trace: bool = False
    """Whether the body is to tell what was done."""
    reasoning: bool = True
    """Whether a stream is to tell, as reasoning, what is being done."""


HEADER = b"x-podium-"
SWITCHES = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


def wishes(given: Fields | None, headers: Sequence[tuple[bytes, bytes]]) -> Wishes:
    """Out of the body's `podium` object; a header says the same where the body says nothing."""
    if given is None:
        said = {k: v for k, v in headers if k.startswith(HEADER)}
        if not said:
            return PLAIN
        given = Fields(_from_headers(said), "x-podium")
    steps, rounds = given.whole("steps"), given.whole("rounds")
    limits = Limits(
        dollars=given.number("dollars", 0),
        tokens=given.whole("tokens"),
        calls=given.whole("calls"),
        seconds=given.number("seconds", 0),
        step_seconds=None,
        steps=steps or OPEN.steps,
        rounds=rounds or OPEN.rounds,
        depth=OPEN.depth,
    )
    allow, deny, regions = given.words("allow"), given.words("deny"), given.words("regions")
    made = Wishes(
        limits,
        Rules(frozenset(allow) or None, frozenset(deny), frozenset(regions) or None),
        given.text("strategy") or "",
        given.flag("trace") or False,
        given.flag("reasoning") is not False,
    )
    for name in given.rest:
        raise given.wrong(name, "is no wish that Podium knows")
    return made


PLAIN = Wishes()


def _from_headers(said: Mapping[bytes, bytes]) -> Json:
    found: Json = {}
    for key, raw in said.items():
        name, value = key[len(HEADER) :].decode("latin-1"), raw.decode("latin-1").strip()
        if name in ("allow", "deny", "regions"):
            found[name] = [part.strip() for part in value.split(",") if part.strip()]
        elif name in ("trace", "reasoning"):
            found[name] = SWITCHES.get(value.lower(), value)
        elif name == "strategy":
            found[name] = value
        elif name in ("dollars", "seconds", "tokens", "calls", "steps", "rounds"):
            found[name] = _numeral(value)
    return found


def _numeral(value: str) -> object:
    try:
        return int(value) if value.isdecimal() else float(value)
    except ValueError:
        return value


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, whichever API it came by."""

    model: str
    talk: tuple[Message, ...]
    """The whole conversation as it came, the newest message last."""
    sampling: Sampling = UNSET
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    stream: bool = False
    usage: bool = True
    """Whether a stream is to end with its usage."""
    n: int = 1
    previous: str = ""
    """The run that it goes on from, where the client left the conversation to us."""
    wishes: Wishes = PLAIN
    echo: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields that the API repeats in its reply."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request: a run, read as an answer."""

    run: Run
    model: str
    text: str
    finish: str
    """`stop`, `length`, `tool_calls` or `content_filter`."""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    thinking: tuple[Mapping[str, object], ...] = ()
    own: Usage = field(default_factory=Usage)
    """Of the step that answered. The rest of the run's usage is orchestration."""

    @property
    def created(self) -> int:
        return int(self.run.started)

    @property
    def orchestration(self) -> Usage:
        used = self.run.usage
        return Usage(used.input - self.own.input, used.output - self.own.output)


def call_id(run: str, index: int) -> str:
    """The name by which a client knows a worker's tool call: it leads back to the run."""
    return f"call_{run}_{index}"


def outcome(run: Run, model: str) -> Outcome:
    """The answer of a run.

    Raises:
        Refusal: it has none, or half of one.
    """
    result = answering(run)
    if result is None or result.completion is None:
        if run.answer is not None and run.failure is not None and run.failure.blame == "limits":
            return Outcome(run, model, run.answer, "length")  # the best that the limit allowed
        raise refusal(run.failure)
    done = result.completion
    calls = tuple(
        ToolCall(call_id(run.id, i), call.name, call.arguments)
        for i, call in enumerate(done.tool_calls)
    )
    finish = "tool_calls" if calls else "stop" if done.finish == "tool_calls" else done.finish
    return Outcome(
        run, model, result.output, finish, calls, done.reasoning, done.thinking, done.usage
    )


def answering(run: Run) -> StepResult | None:
    """The step whose output is the answer."""
    for round in reversed(run.rounds):
        if round.results and round.failure is None and round.answer is not None:
            return round.results[-1]
    return None


PASSED_ON = {400: 400, 413: 413, 422: 400, 429: 429}
"""A worker's refusals that are about the request itself, or that a client can wait out."""


def refusal(failure: Failure | None) -> Refusal:
    """A run's failure as its API's clients see it."""
    if failure is None:
        return Refusal("the run gave no answer", 502, code="no_answer")
    if failure.blame == "limits":
        return Refusal(failure.message, 402, code="limit_reached")
    if failure.kind == "ConfigError":
        return Refusal(failure.message, 400)
    status = PASSED_ON.get(failure.status or 0, 502)
    return Refusal(failure.message, status, code=failure.kind)


def trace(found: Outcome) -> Json:
    """What was done, for those who asked to know."""
    run = found.run
    return {
        "run_id": run.id,
        "strategy": run.strategy,
        "cost": run.cost,
        "unpriced_calls": run.unpriced,
        "seconds": run.seconds,
        "usage": run.usage,
        "rounds": [
            {
                "planning": [_spent(d.completion.usage, d.completion.cost) for d in round.drafts],
                "steps": [_step(result) for result in round.results],
                "failure": round.failure,
            }
            for round in run.rounds
        ],
    }


def _step(result: StepResult) -> Json:
    done = result.completion
    spent = _spent(done.usage, done.cost) if done else {}
    return {
        "worker": result.worker,
        "subtask": result.step.subtask,
        "access": result.step.access,
        "seconds": result.seconds,
        **spent,
        "failure": result.failure,
    }


def _spent(usage: Usage, cost: float | None) -> Json:
    return {"input_tokens": usage.input, "output_tokens": usage.output, "cost": cost}


def dumps(value: object) -> bytes:
    return orjson.dumps(value)
