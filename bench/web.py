"""How quick the page is where much is stored, and how much it ships.

    python bench/web.py [--runs 100000] [--turns 7]

A real server over a store with so many runs, and Chromium: the list of runs is opened cold, paged
and searched (a word that only the oldest run has, so that all of them are looked at), and a run of
200 steps is opened, shown as a timeline, and one of its steps down to its messages. Each figure is
the median over the turns, in milliseconds from the click (or the address) to what it asked for on
the screen. The slowest answer of the server's loop to others meanwhile stands beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import uvicorn
from playwright.async_api import Page, async_playwright

from podium.app import Podium
from podium.config import Config
from podium.serve.app import build
from podium.serve.desk import Desk
from podium.serve.web.files import shipped
from podium.store import row_of
from podium.types import (
    Completion,
    Draft,
    Message,
    Question,
    Round,
    Run,
    Step,
    StepResult,
    Usage,
    Workflow,
)

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WORDS = "The answer is reached in several ways, and each of them agrees with the others. " * 12
STRATEGIES = ("podium", "podium-deep", "single:a")
NAMES = ("a", "b", "c")
NEEDLE = "haystack"


def made(number: int, steps: int, rounds: int = 1) -> Run:
    flow = Workflow(
        tuple(Step(i % 3, "Work on it.", tuple(range(max(0, i - 2), i))) for i in range(steps))
    )
    done = Completion(WORDS, Usage(800, 240), 0.0011)
    said = (Message("user", WORDS * 2),)
    results = tuple(
        StepResult(step, NAMES[step.worker], WORDS, done, said, 0.4 * i, 1.1)
        for i, step in enumerate(flow.steps)
    )
    draft = Draft(Completion("model_id = …", Usage(400, 60), 0.0002), said, 0.8)
    words = NEEDLE if number == 0 else "needle"
    return Run(
        f"{1_700_000_000_000 + number * 20_000:011x}{number:08x}",
        Question(f"Question {number}: where in all of this is the {words}?"),
        STRATEGIES[number % 3],
        NAMES,
        (Round((draft,), flow, results, WORDS),) * rounds,
        started=1.7e9 + number * 20,
        seconds=3.2,
    )


def fill(path: Path, runs: int) -> str:
    """Rows written straight into the store's table; returns the id of the run of 200 steps."""
    rows = [row_of(made(number, 1 + number % 5), "answered", "", "") for number in range(200)]
    db = sqlite3.connect(path)
    put = f"INSERT INTO runs VALUES ({', '.join('?' * 15)})"
    for number in range(runs):
        run = made(number, 0)
        row = list(rows[number % 200])
        row[0], row[1], row[4] = run.id, run.started, run.question.text
        db.execute(put, row)
    big = made(runs, 25, rounds=8)
    db.execute(put, row_of(big, "answered", "", ""))
    db.commit()
    db.close()
    return big.id


def config(folder: Path) -> Config:
    worker = [
        {"name": name, "model": name, "base_url": "http://127.0.0.1:1/v1",
         "price": {"input": 1.0, "output": 2.0}}
        for name in NAMES
    ]  # fmt: skip
    store = str(folder / "podium.sqlite")
    return Config.model_validate({"store": store, "planner": {"worker": "a"}, "worker": worker})


class Clock:
    """Times what a person waits for."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.found: dict[str, list[float]] = {}

    async def open(self, name: str, place: str, sign: str) -> None:
        await self.page.goto("about:blank")
        started = time.perf_counter()
        await self.page.goto(f"{self.url}/#/{place}", wait_until="commit")
        await self.page.locator(sign).first.wait_for()
        self._note(name, started)
        paint = await self.page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        )
        self.found.setdefault(f"{name}_first_paint", []).append(paint)

    async def do(self, name: str, action: Any, sign: str) -> None:
        started = time.perf_counter()
        await action
        await self.page.locator(sign).first.wait_for()
        self._note(name, started)

    def _note(self, name: str, started: float) -> None:
        self.found.setdefault(name, []).append((time.perf_counter() - started) * 1000)

    def medians(self) -> dict[str, float]:
        return {f"{name}_ms": round(median(values), 1) for name, values in self.found.items()}


async def turn(clock: Clock, big: str) -> None:
    page = clock.page
    await clock.open("runs_list", "runs", ".runs tbody tr:nth-child(50)")
    more = page.get_by_role("button", name="More").click()
    await clock.do("runs_more", more, ".runs tbody tr:nth-child(100)")
    search = page.get_by_label("Search the questions")
    first = ".runs tbody tr:first-child td.q:has-text('Question 77')"
    await clock.do("runs_search", search.fill("question 77"), first)
    await clock.do("runs_search_all", search.fill(NEEDLE), f".runs td.q:has-text('{NEEDLE}')")
    await clock.open("run_open", f"runs/{big}", ".round:nth-child(8) .node:nth-of-type(25)")
    lanes = page.get_by_role("tab", name="Timeline").click()
    await clock.do("run_timeline", lanes, ".lane .span >> nth=200")
    await page.get_by_role("tab", name="Graph").click()
    step = page.locator(".node").nth(20).click()
    await clock.do("step_open", step, "dialog .message")
    await page.keyboard.press("Escape")
    await clock.open("spend", "spend", ".plot canvas")
    await clock.open("pool", "pool", ".worker")


async def stalls(worst: list[float]) -> None:
    """How long the loop keeps others waiting."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        worst[0] = max(worst[0], (time.perf_counter() - before - 0.005) * 1000)


async def measure(folder: Path, runs: int, turns: int) -> dict[str, float]:
    podium = Podium(config(folder))
    big = fill(folder / "podium.sqlite", runs)
    desk = Desk(podium)
    options = uvicorn.Config(build(desk), ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(options)
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server._serve([listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    worst = [0.0]
    watcher = asyncio.create_task(stalls(worst))
    async with async_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        clock = Clock(page, url)
        for _ in range(turns):
            await turn(clock, big)
        await browser.close()
    watcher.cancel()
    server.should_exit = True
    await task
    await desk.close()
    return {**clock.medians(), "worst_stall_ms": round(worst[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=7)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), flags.runs, flags.turns))
    files = {name: file for name, file in shipped().items() if not name.endswith("LICENSE")}
    for name, value in found.items():
        print(f"{name:28} {value:10.1f}")
    for name, file in sorted(files.items(), key=lambda item: -len(item[1].packed)):
        print(f"{name:28} {len(file.plain) / 1000:10.1f} kB, {len(file.packed) / 1000:.1f} packed")
    sizes = {
        "shipped_kb": round(sum(len(f.plain) for f in files.values()) / 1000, 1),
        "sent_kb": round(sum(len(f.packed) for f in files.values()) / 1000, 1),
    }
    print(orjson.dumps({"runs": flags.runs, **found, **sizes}).decode())


if __name__ == "__main__":
    main()
