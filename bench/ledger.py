"""A dollar limit under fire: 1,000 runs at once against one limit of the whole process.

    python bench/ledger.py

Every run is a workflow of three calls over HTTP, streamed. The upstream, in a process of its
own, reports five times the tokens that its text amounts to, and cuts every seventh stream in the
middle without saying what it cost. What was really spent is counted at the upstream: every
request it took at the full price of what it reports, the cut ones too. What passes the limit is
given in units of one call's reservation; at most one is allowed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from podium import Conductor, FixedPlanner, Price, Run, Step, Workflow
from podium.app import Podium
from podium.config import Config, LimitsSection, PlannerSection, PriceSection, WorkerSection

RUNS = 1_000
DOLLARS = 3.0
PRICE = Price(10.0, 30.0)
REPORTED_INPUT, REPORTED_OUTPUT = 60, 300
CALL = PRICE.of(REPORTED_INPUT, REPORTED_OUTPUT)
"""Dollars of one call, as the upstream bills it."""
FLOW = Workflow((Step(0, "Plan."), Step(0, "Do it.", (0,)), Step(0, "Check.", "all")))


async def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        process, url = start_upstream()
        try:
            await measure(url, Path(scratch) / "podium.sqlite")
        finally:
            process.kill()
            process.wait()


def start_upstream() -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, str(Path(__file__).parent / "upstream.py"), "--port", "0"]
    command += ["--latency-ms", "20", "--events", "40", "--cut", "7"]
    command += ["--tokens", str(REPORTED_OUTPUT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"


async def measure(url: str, kept: Path) -> None:
    worker = WorkerSection(
        name="w",
        model="m",
        base_url=f"{url}/v1",
        max_tokens=REPORTED_OUTPUT,
        price=PriceSection(input=PRICE.input, output=PRICE.output),
    )
    config = Config(
        store=str(kept),
        worker=(worker,),
        planner=PlannerSection(worker="w"),
        process=LimitsSection(dollars=DOLLARS),
    )
    async with Podium.open(config) as podium:
        conductor = Conductor(FixedPlanner(FLOW), podium.pool)
        started = time.monotonic()
        runs = await asyncio.gather(
            *(podium.ask(f"Question {i}?", conductor, pieces=True) for i in range(RUNS))
        )
        seconds = time.monotonic() - started
        booked = podium.ledger.dollars
    with urllib.request.urlopen(f"{url}/stats") as reply:  # noqa: ASYNC210 - nothing else runs
        taken = json.load(reply)["requests"]
    report(runs, taken, booked, seconds)


def report(runs: list[Run], taken: int, booked: float, seconds: float) -> None:
    spent = taken * CALL
    # The smallest reservation there is: a prompt of no bytes and the most it may write.
    reservation = PRICE.of(0, REPORTED_OUTPUT)
    ends = Counter(run.failure.kind if run.failure else "answered" for run in runs)
    print(f"{RUNS} runs at once in {seconds:.1f} s against a limit of ${DOLLARS:.2f}: {dict(ends)}")
    print(f"the upstream took {taken} requests and bills ${spent:.4f}; booked ${booked:.4f}")
    over = max(0.0, spent - DOLLARS) / reservation
    used = spent / DOLLARS
    print(json.dumps({"overspend_calls": round(over, 3), "limit_used": round(used, 3)}))


if __name__ == "__main__":
    asyncio.run(main())
