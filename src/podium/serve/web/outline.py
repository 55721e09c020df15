"""Runs and events as the page reads them.

Messages are left out, because in a run of many steps they repeat each other's outputs; the page
asks for those of a step when somebody opens it. Long outputs are cut, the answer is not.
"""

from __future__ import annotations

from podium.events import (
    Event,
    Finished,
    Planned,
    Planning,
    Rejected,
    RoundFinished,
    Started,
    StepFinished,
    StepPiece,
    StepRetried,
    StepStarted,
)
from podium.serve.wire import Json
from podium.types import Completion, Draft, Round, Run, StepResult

SHOWN = 8_000
"""Characters of a step's output in an outline."""


def told(event: Event) -> Json:
    """An event for the page; `kind` says which one."""
    match event:
        case Started(run):
            return {"kind": "started", "run": outline(run)}
        case Planning(round):
            return {"kind": "planning", "round": round}
        case Rejected(round, draft):
            return {"kind": "rejected", "round": round, "draft": _draft(draft)}
        case Planned(round, draft, workflow):
            steps = workflow.steps
            return {"kind": "planned", "round": round, "draft": _draft(draft), "steps": steps}
        case StepFinished(round, index, result):
            return {"kind": "done", "round": round, "index": index, "result": _result(result)}
        case RoundFinished(round, outcome):
            return {"kind": "round", "round": round, "failure": outcome.failure}
        case Finished(run):
            return {"kind": "finished", "run": outline(run)}
        case _:
            return _step(event)


def _step(event: StepStarted | StepPiece | StepRetried) -> Json:
    place: Json = {"round": event.round, "index": event.index}
    match event:
        case StepStarted(_, _, step, worker):
            return {"kind": "begun", **place, "step": step, "worker": worker}
        case StepPiece(_, _, piece):
            return {"kind": "piece", **place, "of": piece.kind, "text": piece.text}
        case StepRetried(_, _, worker, reason):
            return {"kind": "retried", **place, "worker": worker, "reason": reason}


def outline(run: Run) -> Json:
    return {
        "id": run.id,
        "question": run.question.text,
        "earlier": [{"role": m.role, "content": m.content[:SHOWN]} for m in run.question.earlier],
        "strategy": run.strategy,
        "workers": run.workers,
        "rounds": [_round(round) for round in run.rounds],
        "limits": run.limits,
        "started": run.started,
        "seconds": run.seconds,
        "failure": run.failure,
        "answer": run.answer,
        "usage": run.usage,
        "cost": run.cost,
        "unpriced": run.unpriced,
    }


def _round(round: Round) -> Json:
    return {
        "drafts": [_draft(draft) for draft in round.drafts],
        "steps": round.workflow.steps if round.workflow else None,
        "results": [_result(result) for result in round.results],
        "failure": round.failure,
        "answered": round.answer is not None,
    }


def _draft(draft: Draft) -> Json:
    return {
        "text": draft.text,
        "seconds": draft.seconds,
        "complaint": draft.complaint,
        **_spent(draft.completion),
    }


def _result(result: StepResult) -> Json:
    done = result.completion
    return {
        "step": result.step,
        "worker": result.worker,
        "output": result.output[:SHOWN],
        "length": len(result.output),
        "started": result.started,
        "seconds": result.seconds,
        "failure": result.failure,
        "reasoning": done.reasoning[:SHOWN] if done else "",
        "attempts": done.attempts if done else 1,
        "replayed": done.replayed if done else False,
        "inner": outline(done.inner) if done and done.inner else None,
        **(_spent(done) if done else {"usage": None, "cost": 0.0}),
    }


def _spent(done: Completion) -> Json:
    return {"usage": done.usage, "cost": done.cost}


def step_in_full(result: StepResult) -> Json:
    done = result.completion
    return {
        **_result(result),
        "output": result.output,
        "reasoning": done.reasoning if done else "",
        "calls": done.tool_calls if done else (),
        "finish": done.finish if done else "",
        "messages": result.messages,
    }


def draft_in_full(draft: Draft) -> Json:
    return {**_draft(draft), "messages": draft.messages}
