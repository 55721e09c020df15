"""Why a step was tried again: told while it happens, and kept beside the record of its run.

A record says how often a step was tried, and not why. What a server heard of it lies in the store
where a run under way has its progress, from the moment the run has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from podium.events import Emit, Event, Started, StepRetried
from podium.store import Record, Store

KIND = StepRetried.__name__


class Retries:
    """Listens to a run, and passes on what it hears."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._run = ""
        self._heard: list[StepRetried] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started) and not self._run:
            self._run = event.run.id
        elif isinstance(event, StepRetried):
            self._heard.append(event)
        self._emit(event)

    def keep(self, store: Store) -> None:
        """Not awaited, for nobody waits on it; in order after the end of the run."""
        for number, event in enumerate(self._heard):
            store.put_progress(self._run, number, orjson.dumps({KIND: event}))


def kept(record: Record) -> Sequence[StepRetried]:
    found = [orjson.loads(body) for body in record.progress]
    return [StepRetried(**each[KIND]) for each in found if KIND in each]
