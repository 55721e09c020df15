"""A bad day: an upstream that fails three times in ten, and a server that is killed five times.

    python bench/chaos.py [--seconds 600] [--rate 200] [--kills 5]

Mixed traffic over all three APIs, streamed and whole, plain workers and planned workflows, from
keys with budgets of which some run out. The upstream answers 30 % of the calls with 429, 500, a
stall, a cut or garbage, and keeps the books: what each key's calls have really cost. Every proper
text ends with a sum over itself, so that half an answer cannot pass for a whole one.

lost_runs: answers that a client had whole, and whose run the store does not know as answered.
overspent_keys: keys whose calls cost more than their budget, by the upstream's books or ours.
false_success: answers that ended cleanly with a text that is not whole.
rss_growth_mb: what the longest-lived server process grew by after its first quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from podium.serve.keys import Key, Keys
from podium.store import open_store
from server import SERVE, Server, free_port, ready

FAULTS = ("429", "500", "stall", "cut", "garbage")
FAULTY = 0.3
STALL_SECONDS = 6.0
PRICE = (1.0, 2.0)
"""Dollars per million tokens, in and out."""
TOKENS = (200, 100)
"""What the upstream bills for every call."""
CONFIG = """
store = "{store}"
[limits]
seconds = 12
step_seconds = 3
[planner]
worker = "plan"
[[planner_worker]]
name = "plan"
model = "plan"
base_url = "{url}"
retries = 3
price = {{ input = 1.0, output = 2.0 }}
"""
WORKER = """
[[worker]]
name = "{name}"
model = "{name}"
base_url = "{url}"
retries = 2
max_tokens = 200
fallback = "{fallback}"
price = {{ input = 1.0, output = 2.0 }}
"""
FLOW = """model_id = [0, 1, 2]
subtasks = ["one", "two", "three"]
access_list = [[], [], ["all"]]"""
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]


def proper() -> str:
    text = " ".join(random.choices(WORDS, k=random.randint(5, 60)))
    return f"{text} #{zlib.crc32(text.encode()):08x}"


def is_whole(text: str) -> bool:
    said, _, mark = text.rpartition(" #")
    return mark == f"{zlib.crc32(said.encode()):08x}"


# ── the upstream ──


@dataclass
class Books:
    dollars: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)

    def bill(self, body: bytes, share: float = 1.0) -> None:
        found = re.search(rb"account (\w+)", body)
        key = found[1].decode() if found else "nobody"
        cost = (TOKENS[0] * PRICE[0] + TOKENS[1] * share * PRICE[1]) / 1e6
        self.dollars[key] += cost


class Upstream(asyncio.Protocol):
    def __init__(self, books: Books) -> None:
        self.books = books
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, split, body = self.buffer.partition(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        if not split or size is None or len(body) < int(size[1]):
            return
        self.buffer = b""
        fault = random.choice(FAULTS) if random.random() < FAULTY else "fine"
        self.books.calls[fault] += 1
        asked = json.loads(body)
        text = FLOW if asked["model"] == "plan" else proper()
        delay = random.uniform(0.005, 0.05)
        self.timer = asyncio.get_running_loop().call_later(delay, self.answer, fault, body, text)

    def answer(self, fault: str, body: bytes, text: str) -> None:
        stream = b'"stream":true' in body
        if fault in ("429", "500"):
            after = "Retry-After: 0\r\n" if fault == "429" else ""
            self.send(f"{fault} Bad Day", b'{"error": {"message": "a bad day"}}', more=after)
        elif fault == "stall":
            self.books.bill(body, 0.0)
        elif fault == "garbage":
            self.books.bill(body)
            self.send("200 OK", b'{"choices": [{"mess\xff\xfe')
        elif stream:
            self.books.bill(body, 0.5 if fault == "cut" else 1.0)
            self.stream(text, cut=fault == "cut")
        else:
            self.books.bill(body)
            whole = json.dumps(reply(text)).encode()
            self.send("200 OK", whole, cut=fault == "cut")

    def send(self, status: str, body: bytes, *, more: str = "", cut: bool = False) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + (body[: len(body) // 2] if cut else body))
        if cut:
            self.transport.close()

    def stream(self, text: str, *, cut: bool) -> None:
        parts = re.findall(r"\S+\s*", text)
        pieces = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
        end = reply("")
        end["choices"] = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        events = [f"data: {json.dumps(e)}\n\n".encode() for e in [*pieces, end]]
        events.append(b"data: [DONE]\n\n")
        kept = events[: len(events) // 2] if cut else events
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        body = b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in kept)
        self.transport.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        if cut:
            self.transport.close()
        else:
            self.transport.write(b"0\r\n\r\n")


def reply(text: str) -> dict[str, object]:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": TOKENS[0], "completion_tokens": TOKENS[1]}
    return {"choices": [choice], "usage": usage}


# ── the clients ──


@dataclass
class Tally:
    statuses: Counter[str] = field(default_factory=Counter)
    answered: list[str] = field(default_factory=list)
    """The runs whose answer a client had whole."""
    false_success: list[str] = field(default_factory=list)


def request(key: str) -> tuple[str, dict[str, object]]:
    stream = random.random() < 0.5
    model = random.choices(["a", "b", "podium", "podium-fast"], [40, 30, 20, 10])[0]
    said = f"account {key}: say something, number {random.random()}"
    talk = [{"role": "user", "content": said}]
    path = random.choice(["chat/completions", "responses", "messages"])
    body: dict[str, object] = {"model": model, "stream": stream}
    if path == "responses":
        return path, {**body, "input": said}
    return path, {**body, "messages": talk, "max_tokens": 200}


async def one(session: aiohttp.ClientSession, url: str, name: str, secret: str, tally: Tally):
    path, body = request(name)
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        async with session.post(f"{url}/v1/{path}", json=body, headers=headers) as answer:
            raw = await answer.read()
            status, run = answer.status, answer.headers.get("x-podium-run-id", "")
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as exc:
        tally.statuses[type(exc).__name__] += 1
        return
    if status != 200:
        tally.statuses[str(status)] += 1
        return
    text, clean = (read_stream if body["stream"] else read_whole)(path, raw)
    tally.statuses["200" if clean else "200 with an error event"] += 1
    if clean and not is_whole(text):
        tally.false_success.append(f"{path} {run} {text[-80:]!r}")
    elif clean:
        tally.answered.append(run)


def read_whole(path: str, raw: bytes) -> tuple[str, bool]:
    body = json.loads(raw)
    if path == "messages":
        said = "".join(b["text"] for b in body["content"] if b["type"] == "text")
        return said, body["stop_reason"] == "end_turn"
    if path == "responses":
        parts = [p for i in body["output"] if i["type"] == "message" for p in i["content"]]
        return "".join(p["text"] for p in parts), body["status"] == "completed"
    choice = body["choices"][0]
    return choice["message"]["content"] or "", choice["finish_reason"] == "stop"


def read_stream(path: str, raw: bytes) -> tuple[str, bool]:
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    events = [json.loads(line) for line in lines if line != b"[DONE]"]
    if path == "messages":
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
        text = "".join(d["text"] for d in deltas if d["type"] == "text_delta")
        stops = [e["delta"]["stop_reason"] for e in events if e["type"] == "message_delta"]
        return text, stops == ["end_turn"] and events[-1]["type"] == "message_stop"
    if path == "responses":
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        return text, bool(events) and events[-1]["type"] == "response.completed"
    choices = [e["choices"][0] for e in events if e.get("choices")]
    text = "".join(c["delta"].get("content") or "" for c in choices)
    finished = any(c["finish_reason"] == "stop" for c in choices)
    return text, finished and lines[-1] == b"[DONE]"


# ── the server, killed and started again ──


class Lives:
    """One address, and one process after another behind it."""

    def __init__(self, config: Path) -> None:
        self.config, self.port = config, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.samples: list[list[float]] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", SERVE, "-c", str(self.config), "--port", str(self.port)]
        errors = None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, stderr=errors, env={**os.environ, "PODIUM_LOG": "WARNING"}
        )
        self.samples.append([])
        ready(Server("podium", self.url, self.process.pid), 30)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def sample(self) -> None:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        self.samples[-1].append(int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def growth(self) -> float:
        longest = max(self.samples, key=len)
        quarter = len(longest) // 4
        return max(0.0, longest[-1] - max(longest[: quarter + 1]))


def write_config(place: Path, url: str) -> Path:
    config = place / "podium.toml"
    text = CONFIG.format(store=place / "podium.sqlite", url=url)
    for name, fallback in (("a", "b"), ("b", "c"), ("c", "a")):
        text += WORKER.format(name=name, url=url, fallback=fallback)
    config.write_text(text)
    return config


async def make_keys(place: Path, flags: argparse.Namespace) -> dict[str, tuple[str, float]]:
    """Eight keys: what a run costs on average, times what each may do of its share of the runs."""
    share = flags.seconds * flags.rate / 8 * 0.0008
    store, made = open_store(str(place / "podium.sqlite")), {}
    for i in range(8):
        budget = share * (0.25, 0.5, 2.0, 4.0)[i % 4]
        key = Key(f"key{i}", f"key{i}", daily=budget, monthly=budget * 3)
        made[key.name] = (await Keys(store).new(key), budget)
    await store.close()
    return made


async def traffic(lives: Lives, keys: dict[str, tuple[str, float]], flags, tally: Tally) -> None:
    killings = sorted(random.uniform(0.1, 0.8) * flags.seconds for _ in range(flags.kills))
    started, tasks = time.monotonic(), set()
    names, sampled = itertools.cycle(keys), 0
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=40)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for number in itertools.count():
            now = time.monotonic() - started
            if now > flags.seconds:
                break
            if killings and now > killings[0]:
                killings.pop(0)
                await asyncio.to_thread(lives.kill)
                await asyncio.to_thread(lives.start)
            if now > sampled:
                sampled += 1
                lives.sample()
                if sampled % 20 == 0:
                    print(f"{now:5.0f} s {dict(tally.statuses)}", file=sys.stderr)
            name = next(names)
            task = asyncio.create_task(one(session, lives.url, name, keys[name][0], tally))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(max(0.0, started + number / flags.rate - time.monotonic()))
        if tasks:
            await asyncio.wait(tasks)


async def verdict(place: Path, keys, books: Books, tally: Tally) -> dict[str, int]:
    store = open_store(str(place / "podium.sqlite"))
    rows = await store.fetch("SELECT id FROM runs WHERE state = 'answered'")
    known = {row[0] for row in rows}
    spent = {key.name: key.today for key in await Keys(store).all()}
    await store.close()
    overspent = [
        name
        for name, (_, budget) in keys.items()
        if max(books.dollars[name], spent[name]) > budget + 1e-9
    ]
    for name, (_, budget) in keys.items():
        print(
            f"{name} budget ${budget:.4f} upstream ${books.dollars[name]:.4f} "
            f"booked ${spent[name]:.4f}",
            file=sys.stderr,
        )
    return {
        "lost_runs": len(set(tally.answered) - known),
        "overspent_keys": len(overspent),
        "false_success": len(tally.false_success),
    }


async def measure(flags: argparse.Namespace, place: Path) -> dict[str, object]:
    books, tally = Books(), Tally()
    loop = asyncio.get_running_loop()
    upstream = await loop.create_server(lambda: Upstream(books), "127.0.0.1", 0, backlog=2048)
    url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1"
    config = write_config(place, url)
    keys = await make_keys(place, flags)
    lives = await asyncio.to_thread(Lives, config)
    try:
        await traffic(lives, keys, flags, tally)
        lives.sample()
    finally:
        await asyncio.to_thread(lives.stop)
        upstream.close()
    found = await verdict(place, keys, books, tally)
    for line in tally.false_success[:10]:
        print(line, file=sys.stderr)
    return {
        **found,
        "rss_growth_mb": round(lives.growth(), 1),
        "requests": sum(tally.statuses.values()),
        "answered": len(tally.answered),
        "statuses": dict(tally.statuses.most_common()),
        "upstream": dict(books.calls),
        "kills": flags.kills,
        "seconds": flags.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=200, help="requests a second")
    parser.add_argument("--kills", type=int, default=5)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(measure(flags, Path(place)))))


if __name__ == "__main__":
    main()
