"""A chat-completions server of fixed latency, so that a benchmark measures the client alone.

    python bench/upstream.py --port 0 --latency-ms 50

prints its port on the first line and answers every POST after the latency, as JSON or, where the
body asks for it, as server-sent events. `GET /stats` tells how many requests came and how many
clients left before their answer was complete. It parses HTTP/1.1 by hand and does nothing else,
so that it stays well ahead of any client on the other core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from dataclasses import dataclass, field

TEXT = " ".join(["The answer to this is forty-two, as the earlier steps have shown."] * 4)
USAGE = {"prompt_tokens": 60, "completion_tokens": 64, "total_tokens": 124}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: "


@dataclass
class Plan:
    """What every connection answers, and what has been counted so far."""

    latency: float
    events: int
    gap: float
    tokens: int
    cut: int
    requests: int = 0
    streams: int = 0
    aborts: int = 0
    body: bytes = b""
    stream: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.body = plain(json.dumps(completion(self.tokens)).encode())
        self.stream = [chunk(event) for event in events(self.events, self.tokens)]


def completion(tokens: int) -> dict[str, object]:
    message = {"role": "assistant", "content": TEXT, "refusal": None}
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": usage(tokens),
    }


def usage(tokens: int) -> dict[str, int]:
    return {**USAGE, "completion_tokens": tokens, "total_tokens": 60 + tokens}


def events(count: int, tokens: int) -> list[bytes]:
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1}
    pieces = [{"index": 0, "delta": {"content": f" word{i}"}} for i in range(count)]
    pieces.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [{**head, "model": "bench", "choices": [piece]} for piece in pieces]
    chunks.append({**head, "model": "bench", "choices": [], "usage": usage(tokens)})
    return [f"data: {json.dumps(c)}\n\n".encode() for c in chunks] + [b"data: [DONE]\n\n"]


def plain(body: bytes) -> bytes:
    return HEAD + b"application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.plan.aborts += 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + size:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + size], self.buffer[end + 4 + size :]
            self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        plan = self.plan
        if head.startswith(b"get /stats"):
            counts = {"requests": plan.requests, "streams": plan.streams, "aborts": plan.aborts}
            self.transport.write(plain(json.dumps(counts).encode()))
            return
        plan.requests += 1
        streamed = b'"stream":true' in body or b'"stream": true' in body
        plan.streams += streamed
        self.timer = self.loop.call_later(plan.latency, self.begin if streamed else self.whole)

    def whole(self) -> None:
        self.timer = None
        self.transport.write(self.plan.body)

    def begin(self) -> None:
        cut = self.plan.cut and self.plan.streams % self.plan.cut == 0
        self.transport.write(HEAD + b"text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.next(0, len(self.plan.stream) // 2 if cut else len(self.plan.stream))

    def next(self, index: int, stop: int) -> None:
        """Write the events one by one, or all at once where no gap is asked for."""
        events, self.timer = self.plan.stream, None
        upto = index + 1 if self.plan.gap else stop
        self.transport.write(b"".join(events[index:upto]))
        if upto < stop:
            self.timer = self.loop.call_later(self.plan.gap, self.next, upto, stop)
        elif stop < len(events):
            self.transport.close()
        else:
            self.transport.write(b"0\r\n\r\n")


async def serve(port: int, plan: Plan) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(plan), "127.0.0.1", port, backlog=4096, reuse_address=True
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--events", type=int, default=52, help="pieces of a streamed reply")
    parser.add_argument("--gap-ms", type=float, default=0.0, help="between two of them")
    parser.add_argument("--tokens", type=int, default=64, help="output tokens it claims")
    parser.add_argument("--cut", type=int, default=0, help="cut every n-th stream half-way")
    flags = parser.parse_args()
    plan = Plan(flags.latency_ms / 1e3, flags.events, flags.gap_ms / 1e3, flags.tokens, flags.cut)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(flags.port, plan))


if __name__ == "__main__":
    main()
