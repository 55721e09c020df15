"""What one decision costs: one reading of a question by the embedded model, under llama.cpp.

    python bench/trinity.py [--questions 20] [--latency-ms 1000]

First in this process, by questions of several lengths; then in a served request: `podium serve`
with a head named `podium-fast` over an upstream of fixed latency, beside the same worker passed
through under its own name. The difference of the two medians is what the fast tier adds, and its
share of the whole request is given. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import aiohttp

from podium.models import SMOLLM2, embedded_model
from podium.trinity import Coordinator, Head, LocalStates, Reading
from podium.trinity.roles import Talk
from podium.types import Question
from podium.workers.local import LocalModel

HERE = Path(__file__).parent
LENGTHS = (40, 160, 320)
"""Characters of a question; the default reading goes no further than the last."""
WORDS = "Which of these materials conducts heat best at room temperature, and why is that so? "
WORKERS = ("near", "far")
CONFIG = """
store = "{folder}/podium.sqlite"
[planner]
worker = "near"
[[worker]]
name = "near"
model = "bench"
base_url = "{upstream}/v1"
price = {{ input = 0.1, output = 0.2 }}
[[worker]]
name = "far"
model = "bench"
base_url = "{upstream}/v1"
price = {{ input = 0.1, output = 0.2 }}
[[strategy]]
name = "podium-fast"
head = "{folder}/head.json"
"""


def asked(number: int, chars: int) -> str:
    """Different from its first word on, so that nothing of the one before can be reused."""
    return f"{number}. {WORDS * (chars // len(WORDS) + 1)}"[:chars]


async def decisions(count: int) -> dict[str, float]:
    model = LocalModel(embedded_model(), context=1024)
    states = LocalStates(model)
    head = Head.zero(Reading(SMOLLM2.name, states.digest, 576), WORKERS)
    coordinator = Coordinator(head, states)
    await model.load()
    found: dict[str, float] = {}
    for chars in LENGTHS:
        walls, burned = [], time.process_time()
        for i in range(count):
            began = time.perf_counter()
            await coordinator.decide(Question(asked(i, chars)), Talk(), WORKERS, ())
            walls.append(time.perf_counter() - began)
        found[f"decision_ms_{chars}"] = round(1000 * median(walls), 1)
        cpu = 1000 * (time.process_time() - burned) / count
        found[f"decision_cpu_ms_{chars}"] = round(cpu, 1)
    await model.close()
    return found


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def served(count: int, latency: float) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(str(HERE / "upstream.py"), "--port", "0", "--latency-ms", str(latency)) as upstream,
    ):
        assert upstream.stdout is not None
        address = f"http://127.0.0.1:{int(upstream.stdout.readline())}"
        reading = Reading(SMOLLM2.name, LocalStates(LocalModel(embedded_model())).digest, 576)
        Head.zero(reading, WORKERS).save(Path(folder) / "head.json")
        file = Path(folder) / "podium.toml"
        file.write_text(CONFIG.format(folder=folder, upstream=address))
        port = "8764"
        with running("-m", "podium", "serve", "-c", str(file), "--port", port):
            return await compared(f"http://127.0.0.1:{port}/v1", count)


async def compared(url: str, count: int) -> dict[str, float]:
    async with aiohttp.ClientSession() as http:
        await up(http, url)
        await seconds(http, url, ["podium-fast"])  # loads the model
        times = await seconds(http, url, ["near", "podium-fast"] * count)
    direct, fast = median(times[::2]), median(times[1::2])
    return {
        "direct_request_ms": round(1000 * direct, 1),
        "fast_request_ms": round(1000 * fast, 1),
        "share_of_request": round((fast - direct) / fast, 3),
    }


async def up(http: aiohttp.ClientSession, url: str) -> None:
    for _ in range(600):
        try:
            async with http.get(f"{url}/models") as reply:
                assert "podium-fast" in await reply.text()
                return
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.1)
    raise TimeoutError("the server did not come up")


async def seconds(http: aiohttp.ClientSession, url: str, models: Sequence[str]) -> list[float]:
    taken = []
    for i, model in enumerate(models):
        body = {"model": model, "messages": [{"role": "user", "content": asked(i, LENGTHS[-1])}]}
        began = time.perf_counter()
        async with http.post(f"{url}/chat/completions", json=body) as reply:
            assert reply.status == 200, await reply.text()
            await reply.read()
        taken.append(time.perf_counter() - began)
    return taken


async def measure(args: argparse.Namespace) -> dict[str, float]:
    found = await decisions(args.questions)
    for name, value in found.items():
        print(f"{name}: {value}")
    return {
        **found,
        **await served(args.questions, args.latency_ms),
        "upstream_ms": args.latency_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--latency-ms", type=float, default=1000.0)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
