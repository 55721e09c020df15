"""What the endpoint adds to a model's answer: Podium beside LiteLLM's proxy and a raw pass-through.

    python bench/server.py [--rounds 3] [--quick]

An upstream, a load generator and each server run in processes of their own and take turns;
medians of the rounds count. Podium runs with a key, a budget and storage on; LiteLLM's proxy with
its master key, no database, and as little logging as it can be told to. The pass-through is an ASGI
app of a dozen lines on the same uvicorn, which forwards bytes and reads nothing.

added latency: median of one request at a time through the server, less the median without it.
requests per second per core: requests over the processor time of the server's processes, at 64
at once, so that other work on the machine counts for nobody.
event cpu: the server's processor time per streamed event, what the request itself costs included,
in replies of 200 events that are 4 ms apart, 20 of them at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
TICKS = os.sysconf("SC_CLK_TCK")
EVENTS, GAP_MS = 200, 4
PEER = ROOT / ".bench-venv" / "servers"

CONFIG = """
store = "{store}"
[planner]
worker = "bench"
[[worker]]
name = "bench"
model = "bench"
base_url = "{upstream}/v1"
price = {{ input = 0.1, output = 0.2 }}
[[worker]]
name = "stream"
model = "bench"
base_url = "{streams}/v1"
price = {{ input = 0.1, output = 0.2 }}
"""
PEER_CONFIG = """
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "{upstream}/v1", api_key: none}}
litellm_settings: {{telemetry: false, callbacks: [], num_retries: 0}}
"""
SERVE = "from podium.cli.serve import serve; serve()"


@dataclass
class Server:
    name: str
    url: str
    pid: int
    key: str = "none"
    streams: str = "bench"
    """The model that is streamed slowly; the raw one forwards to another upstream instead."""


# ── processes ──


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def process(*command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, **more}
    errors = None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL
    made = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=HERE
    )
    try:
        yield made
    finally:
        made.kill()
        made.wait()


@contextmanager
def upstream(latency_ms: float = 0, gap_ms: float = 0) -> Iterator[str]:
    flags = ["--latency-ms", str(latency_ms), "--gap-ms", str(gap_ms), "--events", str(EVENTS)]
    with process(sys.executable, str(HERE / "upstream.py"), "--port", "0", *flags) as made:
        assert made.stdout is not None
        yield f"http://127.0.0.1:{made.stdout.readline().strip()}"


@contextmanager
def raw(target: str) -> Iterator[Server]:
    port = free_port()
    with process(sys.executable, __file__, "raw", str(port), target) as made:
        yield ready(Server("raw", f"http://127.0.0.1:{port}", made.pid))


@contextmanager
def podium(target: str, streams: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as place:
        config, store = Path(place, "podium.toml"), Path(place, "podium.sqlite")
        config.write_text(CONFIG.format(store=store, upstream=target, streams=streams))
        key = asyncio.run(new_key(str(store)))
        port = free_port()
        flags = ["-c", str(config), "--port", str(port)]
        with process(sys.executable, "-c", SERVE, *flags) as made:
            yield ready(Server("podium", f"http://127.0.0.1:{port}", made.pid, key, "stream"))


async def new_key(place: str) -> str:
    from podium.serve.keys import Key, Keys
    from podium.store import open_store

    store = open_store(place)
    secret = await Keys(store).new(Key("bench", "bench", daily=1e6, monthly=1e6))
    await store.close()
    return secret


@contextmanager
def litellm(target: str) -> Iterator[Server]:
    if not (PEER / "bin" / "litellm").exists():
        print("installing litellm[proxy] into .bench-venv/servers", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        wanted = ["litellm[proxy]", "uvloop"]
        subprocess.run([str(PEER / "bin/pip"), "install", "-q", *wanted], check=True)
    with tempfile.TemporaryDirectory() as place:
        config, port = Path(place, "litellm.yaml"), free_port()
        config.write_text(PEER_CONFIG.format(upstream=target))
        command = [str(PEER / "bin" / "litellm"), "--config", str(config), "--port", str(port)]
        key = f"sk-{secrets.token_hex(32)}"
        quiet = {
            "LITELLM_MASTER_KEY": key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MODE": "PRODUCTION",
            "PATH": f"{PEER / 'bin'}:{os.environ['PATH']}",
        }
        with process(*command, "--num_workers", "1", "--telemetry", "False", **quiet) as made:
            yield ready(Server("litellm", f"http://127.0.0.1:{port}", made.pid, key), seconds=90)


def ready(server: Server, seconds: float = 20) -> Server:
    port, end = int(server.url.rpartition(":")[2]), time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return server
    raise SystemExit(f"{server.name} did not start within {seconds:g} s")


def cpu(pid: int) -> float:
    """Seconds of processor time of a process, its threads and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu(int(child)) for child in children)


# ── load: its own process, so that it costs the server nothing ──


def load(server: Server, model: str, concurrency: int, count: int, stream: bool = False) -> dict:
    flags = [server.url, server.key, model, str(concurrency), str(count), str(int(stream))]
    done = subprocess.run(
        [sys.executable, __file__, "load", *flags], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


class Client(asyncio.Protocol):
    """One connection, one request after another; it only looks for the end of each answer."""

    def __init__(self, request: bytes, end: bytes, left: list[int], times: list[float]) -> None:
        self.request, self.end = request, end
        self.left, self.times = left, times
        self.done = asyncio.get_running_loop().create_future()
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.next()

    def next(self) -> None:
        if self.left[0] <= 0:
            self.transport.close()
            self.done.set_result(None)
            return
        self.left[0] -= 1
        self.buffer, self.started = b"", time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.complete():
            return
        if not self.buffer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(self.buffer[:400].decode())
        self.times.append(time.perf_counter() - self.started)
        self.next()

    def complete(self) -> bool:
        if self.end:
            return self.buffer.endswith(self.end)
        head, split, body = self.buffer.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length:")
        if at < 0:
            return bool(split) and body.endswith(b"0\r\n\r\n")
        return bool(split) and len(body) >= int(head[at + 15 :].split(b"\r\n", 1)[0])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError("the server closed the connection"))


async def generate(url: str, key: str, model: str, concurrency: int, count: int, stream: int):
    host, port = url.removeprefix("http://").split(":")
    talk = [{"role": "user", "content": "What is the answer to everything, in short?"}]
    body = json.dumps({"model": model, "messages": talk, "stream": bool(stream)}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    end = b"0\r\n\r\n" if stream else b""
    left, times = [count], []
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(
            lambda: Client(head.encode() + body, end, left, times), host, int(port)
        )
        for _ in range(concurrency)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    print(json.dumps({"p50_ms": statistics.median(times) * 1e3, "count": len(times)}))


# ── the raw pass-through ──


def serve_raw(port: int, target: str) -> None:
    import aiohttp
    import uvicorn

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        if "session" not in shared:
            connector = aiohttp.TCPConnector(limit=1000)
            shared["session"] = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        body = (await receive())["body"]
        url = target + scope["path"]
        headers = {"Content-Type": "application/json"}
        async with shared["session"].post(url, data=body, headers=headers) as reply:
            kind = reply.headers["Content-Type"].encode()
            size = reply.headers.get("Content-Length")
            sent = [(b"content-type", kind)]
            if size:
                sent.append((b"content-length", size.encode()))
            await send({"type": "http.response.start", "status": reply.status, "headers": sent})
            async for chunk in reply.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    shared: dict[str, aiohttp.ClientSession] = {}
    uvicorn.run(app, port=port, log_level="critical", lifespan="off", ws="none", loop="uvloop")


# ── measuring ──


def latency(server: Server, count: int) -> float:
    load(server, "bench", 1, max(10, count // 10))
    return float(load(server, "bench", 1, count)["p50_ms"])


def per_core(server: Server, count: int) -> float:
    load(server, "bench", 64, max(64, count // 10))
    before = cpu(server.pid)
    load(server, "bench", 64, count)
    return count / (cpu(server.pid) - before)


def event_cpu(server: Server, count: int) -> float:
    load(server, server.streams, 20, 20, stream=True)
    before = cpu(server.pid)
    load(server, server.streams, 20, count, stream=True)
    return (cpu(server.pid) - before) / (count * EVENTS) * 1e6


def rounds(flags: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}

    def note(name: str, what: str, value: float) -> None:
        found.setdefault(name, {}).setdefault(what, []).append(value)
        print(f"{name:8} {what:8} {value:10.2f}", file=sys.stderr)

    scale = 4 if flags.quick else 1
    with ExitStack() as stack:
        quick = stack.enter_context(upstream())
        slow = stack.enter_context(upstream(gap_ms=GAP_MS))
        ours = stack.enter_context(podium(quick, slow))
        bare = stack.enter_context(raw(quick))
        bare_slow = stack.enter_context(raw(slow))
        peer = stack.enter_context(litellm(quick))
        direct = Server("direct", quick, 0)
        for _ in range(flags.rounds):
            for server in (direct, bare, ours, peer):
                count = (120 if server is peer else 600) // scale
                note(server.name, "p50_ms", latency(server, count))
            for server, count in ((bare, 12_000), (ours, 6_000), (peer, 400)):
                note(server.name, "rps", per_core(server, count // scale))
            for server in (bare_slow, ours):
                note(server.name, "event_us", event_cpu(server, 160 // scale))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests")
    found = rounds(parser.parse_args())
    mid = {n: {w: statistics.median(v) for w, v in each.items()} for n, each in found.items()}
    ours, bare, peer, direct = (mid[n] for n in ("podium", "raw", "litellm", "direct"))
    added = ours["p50_ms"] - direct["p50_ms"]
    result = {
        "added_vs_litellm": round(added / (peer["p50_ms"] - direct["p50_ms"]), 4),
        "rps_vs_litellm": round(ours["rps"] / peer["rps"], 1),
        "rps_vs_raw": round(ours["rps"] / bare["rps"], 3),
        "event_cpu_vs_raw": round(ours["event_us"] / bare["event_us"], 3),
        "added_ms": round(added, 3),
        "requests_per_second_per_core": {n: round(mid[n]["rps"]) for n in mid if "rps" in mid[n]},
        "event_us": {n: round(mid[n]["event_us"], 1) for n in mid if "event_us" in mid[n]},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["load"]:
            url, key, model, *numbers = sys.argv[2:]
            asyncio.run(generate(url, key, model, *map(int, numbers)))
        case ["raw"]:
            serve_raw(int(sys.argv[2]), sys.argv[3])
        case _:
            main()
