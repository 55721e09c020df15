"""The nouns: small frozen values with no behaviour beyond derived properties.

A `Workflow` is what a planner wrote; a `Round` is one workflow and what came of it; a `Run` is a
question and its rounds. Events, traces, rewards and API responses are all views of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

Role = Literal["system", "user", "assistant", "tool"]
Blame = Literal["policy", "limits", "infra"]
"""Whose fault a failure is: the planner's, a limit that we were told to keep, or the world's."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function of the caller's that a worker may ask for. It runs on the caller's side."""

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    """JSON schema of its arguments."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """JSON as the model wrote it, valid or not."""


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str
    images: tuple[str, ...] = ()
    """`https:` or `data:` URLs, handed to the worker as they are and never fetched by us."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """In a `tool` message: which call this is the result of."""
    thinking: tuple[Mapping[str, object], ...] = ()
    """A provider's thinking blocks with their signatures, returned to it byte for byte."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `cached` is part of `input`, and `reasoning` part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a worker is asked to write. What is None is left to the worker's own settings."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    effort: str | None = None
    """Reasoning effort (`minimal`, `low`, `medium`, `high`) or a thinking budget in tokens."""
    response_format: Mapping[str, object] | None = None
    """As in OpenAI's chat completions: `{"type": "json_schema", "json_schema": {...}}`."""
    grammar: str = ""
    """A GBNF grammar that local models are held to; remote ones never see it."""

    def over(self, own: Sampling) -> Sampling:
        """These settings where they are given, and `own` elsewhere."""
        if self is UNSET:
            return own
        return Sampling(
            max_tokens=own.max_tokens if self.max_tokens is None else self.max_tokens,
            temperature=own.temperature if self.temperature is None else self.temperature,
            top_p=own.top_p if self.top_p is None else self.top_p,
            seed=own.seed if self.seed is None else self.seed,
            stop=self.stop or own.stop,
            effort=own.effort if self.effort is None else self.effort,
            response_format=self.response_format or own.response_format,
            grammar=self.grammar or own.grammar,
        )


UNSET = Sampling()


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    """Empty where the next turn after `earlier` is wanted, and nothing new is asked."""
    images: tuple[str, ...] = ()
    earlier: tuple[Message, ...] = ()
    """The conversation that led to it, system messages included."""
    sampling: Sampling = UNSET
    """How the answer is to be written; like the tools, meant for the step that answers."""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    sample: int = 0
    """Which of several independent answers to this very question is wanted."""

    @staticmethod
    def of(question: Question | str) -> Question:
        return question if isinstance(question, Question) else Question(question)


@dataclass(frozen=True, slots=True)
class Seen:
    """An earlier step as a later one may see it."""

    worker: str
    subtask: str
    output: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker is asked. Equal requests have equal digests, and so equal recordings."""

    messages: tuple[Message, ...]
    visible: tuple[Seen, ...] = ()
    """The same outputs that `messages` quotes, for the workers that are programs."""
    mark: str = ""
    """The random mark that fences other workers' text off in `messages`; no part of the digest."""
    sampling: Sampling = UNSET
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of the body, passed on to workers of the OpenAI dialect as they are."""
    sample: int = 0
    """Which of several independent answers to this very request is wanted."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply as it arrives: of its text, its reasoning, or a tool call's arguments."""

    text: str
    kind: Literal["text", "reasoning", "tool"] = "text"
    index: int = 0
    """Which tool call it belongs to; its `id` and `name` come with the first piece."""
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    usage: Usage = Usage()
    cost: float | None = 0.0
    """Dollars; None where no price is known."""
    finish: str = "stop"
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Mapping[str, object], ...] = ()
    attempts: int = 1
    replayed: bool = False
    """It came out of a recording: it has a cost, and nobody paid it today."""
    inner: Run | None = None
    """The run behind it, where the worker is itself a strategy."""


Access = tuple[int, ...] | Literal["all"]
"""Positions of earlier steps, or all of them together with the round before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a workflow: who works, on what, and which earlier outputs they may read."""

    worker: int
    """Index into the pool."""
    subtask: str
    access: Access = ()


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps in the order they were written. The last one speaks for the whole.

    An empty workflow, allowed only after the first round, says that the answer stands.
    """

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as data. `kind` is the error's class name, so that it can be counted."""

    kind: str
    message: str
    blame: Blame
    status: int | None = None
    """The HTTP status that a worker refused with, where it was one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What the planner was shown and what it wrote, kept verbatim: it is what training sees."""

    completion: Completion
    messages: tuple[Message, ...] = ()
    seconds: float = 0.0
    complaint: str = ""
    """Why it could not be performed, if it was rejected and then repaired."""

    @property
    def text(self) -> str:
        return self.completion.text


@dataclass(frozen=True, slots=True)
class StepResult:
    step: Step
    worker: str
    """The name of who answered: the step's worker, or the fallback that stood in for it."""
    output: str = ""
    completion: Completion | None = None
    messages: tuple[Message, ...] = ()
    started: float = 0.0
    """Seconds after the run began."""
    seconds: float = 0.0
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One workflow and what came of it.

    `failure` says why there is no answer of the round's own. `answer` may then still hold the best
    output that was reached, but nothing is rewarded for it.
    """

    drafts: tuple[Draft, ...]
    """More than one where an unreadable draft was repaired; the last one counts."""
    workflow: Workflow | None = None
    results: tuple[StepResult, ...] = ()
    answer: str | None = None
    failure: Failure | None = None

    @property
    def completions(self) -> Sequence[Completion]:
        """Every call that was made in it, paid or replayed."""
        return [
            *(d.completion for d in self.drafts),
            *(r.completion for r in self.results if r.completion is not None),
        ]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which workers a run may use. They hold in every run inside it, too."""

    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()
    regions: frozenset[str] | None = None

    def admit(self, name: str, region: str) -> bool:
        named = name not in self.denied and (self.allowed is None or name in self.allowed)
        return named and (self.regions is None or region in self.regions)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run, or a whole process, may use. None is no limit."""

    dollars: float | None = None
    tokens: int | None = None
    calls: int | None = None
    seconds: float | None = None
    step_seconds: float | None = 300.0
    steps: int = 5
    """Steps of one workflow."""
    rounds: int = 1
    depth: int = 2
    """How deep a strategy may call another one: 0 forbids it."""

    def within(self, outer: Limits) -> Limits:
        """The tighter of the two, limit by limit."""
        return Limits(
            dollars=_least(self.dollars, outer.dollars),
            tokens=_least(self.tokens, outer.tokens),
            calls=_least(self.calls, outer.calls),
            seconds=_least(self.seconds, outer.seconds),
            step_seconds=_least(self.step_seconds, outer.step_seconds),
            steps=min(self.steps, outer.steps),
            rounds=min(self.rounds, outer.rounds),
            depth=min(self.depth, outer.depth),
        )


_Number = TypeVar("_Number", int, float)


def _least(a: _Number | None, b: _Number | None) -> _Number | None:
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True, slots=True)
class Run:
    """The record that everything else is a view of."""

    id: str
    question: Question
    strategy: str = "conductor"
    workers: tuple[str, ...] = ()
    """The pool as this run saw it: a step's `worker` is an index into these names."""
    rounds: tuple[Round, ...] = ()
    limits: Limits = field(default_factory=Limits)
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    failure: Failure | None = None
    """Why it ended early, even if it has an answer: a limit, a cancellation."""

    @property
    def answer(self) -> str | None:
        """The latest answer that any round reached; a later failure does not take it away."""
        reached = [r for r in reversed(self.rounds) if r.answer is not None]
        best = next((r for r in reached if r.failure is None), None) or next(iter(reached), None)
        return best.answer if best else None

    @property
    def usage(self) -> Usage:
        return sum((c.usage for r in self.rounds for c in r.completions), Usage())

    @property
    def cost(self) -> float:
        """Dollars of every call whose price is known."""
        return sum(c.cost or 0.0 for r in self.rounds for c in r.completions)

    @property
    def unpriced(self) -> int:
        """How many calls have no known price, and so are missing from `cost`."""
        return sum(c.cost is None for r in self.rounds for c in r.completions)
