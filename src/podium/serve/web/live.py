"""A run under way, followed by any number of readers, each from where it left off.

A reader that loses its connection comes back with the number of the last event it saw. What is
kept for it is bounded: the pieces of a step become one text while it works, and nothing once it
is done, because its result says it all. A run goes on when nobody reads; its limits bound it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import orjson

from podium.errors import PodiumError
from podium.events import Event, Started, StepFinished, StepPiece
from podium.serve.desk import Desk, Job
from podium.serve.exchange import Outlet
from podium.serve.web.outline import told
from podium.serve.wire import Json, Refusal

KEEP_SECONDS = 120.0
"""How long a reader may come back for the end of a run."""
MANY = 512
"""Runs that the page may have under way in one process."""
ROOM = 256 << 10
"""Bytes of events before they are put together."""

log = logging.getLogger("podium.serve")

Place = tuple[int, int, str]
"""Of a text: its round, its step, and whether it is the reply or the reasoning."""


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    frame: bytes
    place: Place | None = None
    text: str = ""


class Live:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.run = ""
        self.refused: PodiumError | None = None
        self.begun = asyncio.Event()
        self.over = False
        self._entries: list[Entry] = []
        self._size = 0
        self._room = ROOM
        self._number = 0
        self._outlets: set[Outlet] = set()

    def hear(self, event: Event) -> None:
        said = told(event)
        if isinstance(event, StepPiece):
            place = (event.round, event.index, event.piece.kind)
            self._add(said, place, event.piece.text)
        else:
            self._add(said)
        if isinstance(event, StepFinished):
            self._forget(event.round, event.index)

    def tell(self, said: Json) -> None:
        self._add(said)

    def end(self) -> None:
        self.over = True
        self.begun.set()
        for outlet in self._outlets:
            outlet.close()

    def follow(self, outlet: Outlet, last: int) -> None:
        """Write what came after that event, and everything from now on."""
        missed = b"".join(e.frame for e in self._entries if e.number > last)
        outlet.write(missed or b": nothing new\n\n")
        if self.over:
            outlet.close()
        self._outlets.add(outlet)

    def leave(self, outlet: Outlet) -> None:
        self._outlets.discard(outlet)

    def _add(self, said: Json, place: Place | None = None, text: str = "") -> None:
        self._number += 1
        entry = Entry(self._number, _frame(self._number, said), place, text)
        self._entries.append(entry)
        self._size += len(entry.frame)
        if self._size > self._room:
            self._put_together()
        for outlet in self._outlets:
            outlet.write(entry.frame)

    def _forget(self, round: int, index: int) -> None:
        self._keep(e for e in self._entries if e.place is None or e.place[:2] != (round, index))

    def _put_together(self) -> None:
        """All pieces of a text as one, which stands for the whole of it from its beginning."""
        texts: dict[Place, list[str]] = {}
        last: dict[Place, int] = {}
        for entry in self._entries:
            if entry.place is not None:
                texts.setdefault(entry.place, []).append(entry.text)
                last[entry.place] = entry.number
        kept = [e for e in self._entries if e.place is None]
        kept += [_whole(last[place], place, "".join(parts)) for place, parts in texts.items()]
        self._keep(sorted(kept, key=lambda entry: entry.number))
        self._room = max(ROOM, 2 * self._size)

    def _keep(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self._size = sum(len(e.frame) for e in self._entries)


def _frame(number: int, said: Json) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (number, orjson.dumps(said))


def _whole(number: int, place: Place, text: str) -> Entry:
    round, index, of = place
    said: Json = {"kind": "text", "round": round, "index": index, "of": of, "text": text}
    return Entry(number, _frame(number, said), place, text)


class Lives:
    """The runs that the page has under way in this process."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._runs: dict[str, Live] = {}
        self._tasks: dict[Live, asyncio.Task[None]] = {}

    async def start(self, job: Job) -> str:
        """Begin a run and return its id.

        Raises:
            Refusal: it cannot begin.
        """
        if len(self._tasks) >= MANY:
            raise Refusal("too many runs are under way here: try again", 503)
        live = Live(job.key.id)
        task = self._tasks[live] = asyncio.create_task(self._work(live, job))
        task.add_done_callback(lambda done: self._ended(live, done))
        await live.begun.wait()
        if not live.run:
            raise live.refused or Refusal("the run did not begin", 500)
        return live.run

    def find(self, run: str, owner: str | None) -> Live | None:
        """If it is that owner's; without one, whoever's it is."""
        live = self._runs.get(run)
        return live if live is not None and owner in (None, live.owner) else None

    def stop(self, live: Live) -> None:
        if task := self._tasks.get(live):
            task.cancel()

    async def close(self) -> None:
        """Stop them all, and wait until what they did is kept."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _work(self, live: Live, job: Job) -> None:
        token = self._desk.enter()
        try:
            await self._desk.run(job, self._listener(live), pieces=True)
        except PodiumError as exc:
            live.refused = exc
            live.tell({"kind": "over", "message": str(exc)})
        except asyncio.CancelledError:
            live.tell({"kind": "over", "message": "stopped"})
            raise
        finally:
            self._desk.leave(token)

    def _listener(self, live: Live) -> Callable[[Event], None]:
        def hear(event: Event) -> None:
            if isinstance(event, Started) and not live.run:
                live.run = event.run.id
                self._runs[live.run] = live
                live.begun.set()
            live.hear(event)

        return hear

    def _ended(self, live: Live, task: asyncio.Task[None]) -> None:
        del self._tasks[live]
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("a run of the page ended in an error", exc_info=bug)
            live.tell({"kind": "over", "message": "an error of the server's own"})
        live.end()
        asyncio.get_running_loop().call_later(KEEP_SECONDS, self._runs.pop, live.run, None)
