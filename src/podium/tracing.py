"""Spans by OpenTelemetry's conventions for generative AI. Names and numbers only, no content.

    invoke_workflow conductor
    ├── plan conductor ── chat {model}
    └── invoke_agent {worker} ── chat {model}

Where nobody has configured a tracer provider nothing is made at all.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, ProxyTracerProvider, Span

from podium.types import Completion, Failure, Run

_tracer = trace.get_tracer("podium")
_nothing = nullcontext(INVALID_SPAN)


def span(operation: str, name: str) -> AbstractContextManager[Span]:
    """One of `invoke_workflow`, `plan`, `invoke_agent`; `name` is of low cardinality."""
    if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        return _nothing
    key = "gen_ai.workflow.name" if operation == "invoke_workflow" else "gen_ai.agent.name"
    attributes = {"gen_ai.operation.name": operation, key: name}
    return _tracer.start_as_current_span(f"{operation} {name}", attributes=attributes)


def note(current: Span, done: Completion | Run | None, failure: Failure | None = None) -> None:
    """What became known while the span was open."""
    if not current.is_recording():
        return
    if done is not None:
        current.set_attribute("gen_ai.usage.input_tokens", done.usage.input)
        current.set_attribute("gen_ai.usage.output_tokens", done.usage.output)
        if done.cost is not None:
            current.set_attribute("podium.cost.usd", done.cost)
    if failure is not None:
        current.set_attribute("error.type", failure.kind)
        current.set_status(trace.StatusCode.ERROR)
