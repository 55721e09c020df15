"""How fast the calls of a client that has gone are cancelled.

    python bench/disconnect.py [--clients 20]

In each of three phases so many clients ask at once and vanish together: while their workflow is
being planned, while two of its steps run side by side, and while the answer streams. The upstream
notes when each of their calls is let go. Half of the clients stream, half wait for the whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from server import SERVE, Server, free_port, process, ready

PATIENCE = 5.0
CONFIG = """
store = "{store}"
[planner]
worker = "plan"
[[planner_worker]]
name = "plan"
model = "plan"
base_url = "{url}"
[[worker]]
name = "a"
model = "a"
base_url = "{url}"
[[worker]]
name = "b"
model = "b"
base_url = "{url}"
"""
FAN = """model_id = [0, 1, 0]
subtasks = ["one", "two", "three"]
access_list = [[], [], ["all"]]"""
ONE = 'model_id = [0]\nsubtasks = ["Answer the question."]\naccess_list = [[]]'
CALLS = {"planning": 1, "fan-out": 2, "streaming": 1}
"""How many calls of each client are under way when it vanishes."""


@dataclass
class Watched:
    """The calls of one client."""

    open: int = 0
    there: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: float = 0.0


class Upstream(asyncio.Protocol):
    """Plans at once where the phase is past planning; holds or streams everything else."""

    watched: dict[str, Watched]

    def __init__(self, watched: dict[str, Watched]) -> None:
        self.watched = watched
        self.buffer = b""
        self.mine: Watched | None = None
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, split, body = self.buffer.partition(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        if not split or size is None or len(body) < int(size[1]):
            return
        self.buffer = b""
        self.answer(body)

    def answer(self, body: bytes) -> None:
        found = re.search(rb"client (\S+) in (planning|fan-out|streaming)", body)
        assert found is not None
        phase, asked = found[2].decode(), json.loads(body)
        if asked["model"] == "plan" and phase != "planning":
            self.whole(FAN if phase == "fan-out" else ONE)
            return
        self.mine = self.watched[found[1].decode()]
        self.mine.open += 1
        if self.mine.open == CALLS[phase]:
            self.mine.there.set()
        if phase == "streaming" and asked.get("stream"):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            self.more()

    def whole(self, text: str) -> None:
        choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 9}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.transport.write(head.encode() + b"\r\n\r\n" + body)

    def more(self) -> None:
        piece = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
        self.transport.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
        self.timer = asyncio.get_running_loop().call_later(0.01, self.more)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.mine is not None:
            self.mine.open -= 1
            self.mine.let_go = time.perf_counter()
            if self.mine.open == 0:
                self.mine.gone.set()


async def vanish(port: int, phase: str, count: int, watched: dict[str, Watched]) -> list[float]:
    """Milliseconds until the last call of each client was let go, if ever it was."""
    writers = []
    for i in range(count):
        name = f"{phase}-{i}"
        watched[name] = Watched()
        stream = phase == "streaming" or i % 2 == 0
        talk = [{"role": "user", "content": f"client {name} in {phase}"}]
        body = json.dumps({"model": "podium", "stream": stream, "messages": talk}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + b"\r\n\r\n" + body)
        writers.append((name, reader, writer))
    for name, _, _ in writers:
        await asyncio.wait_for(watched[name].there.wait(), PATIENCE)
    if phase == "streaming":
        for _, reader, _ in writers:
            await reader.readuntil(b"word ")
    left = time.perf_counter()
    for _, _, writer in writers:
        writer.transport.abort()
    found = []
    for name, _, _ in writers:
        try:
            await asyncio.wait_for(watched[name].gone.wait(), PATIENCE)
        except TimeoutError:
            continue
        found.append((watched[name].let_go - left) * 1e3)
    return found


def write_config(place: Path, url: str) -> str:
    config = place / "podium.toml"
    config.write_text(CONFIG.format(store=place / "podium.sqlite", url=url))
    return str(config)


async def measure(clients: int) -> dict[str, object]:
    watched: dict[str, Watched] = {}
    loop = asyncio.get_running_loop()
    upstream = await loop.create_server(lambda: Upstream(watched), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1"
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        port = free_port()
        flags = ["-c", write_config(Path(place), url), "--port", str(port)]
        with process(sys.executable, "-c", SERVE, *flags) as made:
            server = Server("podium", f"http://127.0.0.1:{port}", made.pid)
            await asyncio.to_thread(ready, server)
            for phase in CALLS:
                found[phase] = await vanish(port, phase, clients, watched)
                worst = max(found[phase], default=0.0)
                print(f"{phase:10} {len(found[phase])}/{clients} {worst:.1f} ms", file=sys.stderr)
    upstream.close()
    times = [each for phase in found.values() for each in phase]
    return {
        "cancelled": len(times),
        "of": clients * len(CALLS),
        "worst_ms": round(max(times, default=0.0), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=20, help="in each of the three phases")
    print(json.dumps(asyncio.run(measure(parser.parse_args().clients))))


if __name__ == "__main__":
    main()
