"""Spans by OpenTelemetry's conventions for generative AI. Names and numbers only, no content.

    invoke_workflow conductor
    ├── plan conductor ── chat {model}
    └── invoke_agent {worker} ── chat {model}

Without an SDK configured these are no-ops of a few microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span

from podium.types import Failure, Usage

_tracer = trace.get_tracer("podium")


@contextmanager
def span(operation: str, name: str) -> Iterator[Span]:
    """One of `invoke_workflow`, `plan`, `invoke_agent`; `name` is of low cardinality."""
    key = "gen_ai.workflow.name" if operation == "invoke_workflow" else "gen_ai.agent.name"
    attributes = {"gen_ai.operation.name": operation, key: name}
    with _tracer.start_as_current_span(f"{operation} {name}", attributes=attributes) as current:
        yield current


def note(current: Span, usage: Usage, cost: float | None, failure: Failure | None = None) -> None:
    """What became known while the span was open."""
    if not current.is_recording():
        return
    current.set_attribute("gen_ai.usage.input_tokens", usage.input)
    current.set_attribute("gen_ai.usage.output_tokens", usage.output)
    if cost is not None:
        current.set_attribute("podium.cost.usd", cost)
    if failure is not None:
        current.set_attribute("error.type", failure.kind)
        current.set_status(trace.StatusCode.ERROR)
