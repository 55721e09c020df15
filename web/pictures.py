"""Takes the pictures of the page that the documentation shows.

    python web/pictures.py [--shelf DIR] [--to docs/images] [SCENE …]

A real server over a scripted upstream, and Chromium. The scenes are ask, run, runs, training and
evaluations; the last two are of the first directory of their kind on the shelf, and are left
out where there is none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from playwright.async_api import Browser, Page, async_playwright

from podium.app import Podium
from podium.config import Config
from podium.serve.app import build
from podium.serve.desk import Desk
from podium.serve.web.evaluations import RESULTS
from podium.serve.web.shelf import SHELF, found
from podium.serve.web.training import METRICS
from podium.testing import Refuse, Say, Upstream
from podium.types import (
    Completion,
    Draft,
    Failure,
    Question,
    Round,
    Run,
    Step,
    StepResult,
    Usage,
    Workflow,
)
from podium.workflow import render

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("sieve", "trial", "estimate")
ASKED = "How many primes are there below 100? Show the reasoning."
PLAN = Workflow(
    (
        Step(0, "List all the primes below 100 with a sieve, and count them."),
        Step(1, "Count the primes below 100 by trial division, independently."),
        Step(2, "Estimate the count by the prime number theorem to check plausibility."),
        Step(0, "Compare the counts and say where they differ.", (0, 1, 2)),
        Step(1, "Write the final answer with reasoning.", "all"),
    )
)
AGAIN = Workflow((Step(2, "Check the answer once more."), Step(1, "Write it up.", (0,))))
ANSWER = r"""# Primes below 100

There are **25** primes below 100. The prime number theorem says $\pi(x) \sim \frac{x}{\ln x}$, and

$$\sum_{p<100} 1 = 25$$

| method | divisions |
|---|---|
| sieve | 4 |
| trial | 24 |

```python
print(sum(all(n % d for d in range(2, n)) for n in range(2, 100)))
```
"""
QUESTIONS = (
    "Prove that the square root of 2 is irrational.",
    "Which of these sorting algorithms is stable, and why?",
    "Write a Python function that merges two sorted lists.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey?",
    "Summarise the causes of the 1848 revolutions in five sentences.",
    "What is the derivative of x^x?",
    "Explain CRDTs to a database engineer.",
    "Find the bug: for i in range(len(xs)): xs.pop(i)",
    "How many subsets of {1..10} have an even sum?",
    "Translate the abstract into plain English.",
)
FAILED = (
    Failure("LimitError", "the dollars are spent", "limits"),
    Failure("WorkerError", "worker 'estimate': 503 overloaded", "infra"),
)
MOMENT = 900
"""Milliseconds in which what was asked for is drawn."""


@dataclass(frozen=True)
class Studio:
    url: str
    desk: Desk
    browser: Browser
    gate: asyncio.Event
    shelf: Path | None
    to: Path

    async def page(self, place: str, *, dark: bool = False, height: int = 900) -> Page:
        scheme = "dark" if dark else "light"
        size = {"width": 1280, "height": height}
        page = await self.browser.new_page(viewport=size, color_scheme=scheme)
        page.set_default_timeout(300_000)
        await page.goto(f"{self.url}/#/{place}")
        return page

    async def keep(self, page: Page, name: str, *, whole: bool = True) -> None:
        await page.wait_for_timeout(MOMENT)
        await page.screenshot(path=self.to / f"web-{name}.png", full_page=whole)
        await page.close()

    def first(self, mark: str) -> str | None:
        return next(iter(found(self.shelf, mark)), None)


async def ask(studio: Studio) -> None:
    page = await studio.page("ask", height=980)
    await _asked(page)
    await page.locator(".node.done").nth(1).wait_for()
    await studio.keep(page, "ask", whole=False)


async def run(studio: Studio) -> None:
    page = await studio.page("ask", dark=True)
    await _asked(page)
    studio.gate.set()
    await page.get_by_role("link", name="Open run").click()
    await page.locator(".answer table").wait_for()
    await studio.keep(page, "run")


async def _asked(page: Page) -> None:
    await page.get_by_role("textbox", name="Question").fill(ASKED)
    await page.keyboard.press("Enter")


async def runs(studio: Studio) -> None:
    await _fill(studio.desk)
    page = await studio.page("runs")
    await page.locator(".runs tbody tr").nth(10).wait_for()
    await studio.keep(page, "runs", whole=False)


async def training(studio: Studio) -> None:
    if name := studio.first(METRICS):
        page = await studio.page(f"training/{name}", height=1240)
        await page.locator(".draft").first.wait_for()
        await page.wait_for_timeout(MOMENT)
        await page.locator(".bar").evaluate("el => { el.style.position = 'static'; }")
        box = await page.locator("section", has=page.locator(".drafts")).bounding_box()
        assert box is not None
        part = {**box, "height": min(box["height"], 980)}
        place = studio.to / "web-training-drafts.png"
        await page.screenshot(path=place, full_page=True, clip=part)
        await studio.keep(page, "training", whole=False)


async def evaluations(studio: Studio) -> None:
    if name := studio.first(RESULTS):
        page = await studio.page(f"evaluations/{name}", height=1500)
        await page.locator("circle.mark").first.wait_for()
        await studio.keep(page, "evaluations", whole=False)


SCENES: dict[str, Callable[[Studio], Awaitable[None]]] = {
    "ask": ask,
    "run": run,
    "runs": runs,
    "training": training,
    "evaluations": evaluations,
}


async def _fill(desk: Desk) -> None:
    """A week of runs, the same each time."""
    dice = random.Random(4)
    for number, text in enumerate(QUESTIONS * 2):
        await desk.podium.store.end_run(_stored(number, text, dice), owner="", config="")


def _stored(number: int, text: str, dice: random.Random) -> Run:
    started = time.time() - number * 31_000 - dice.random() * 9_000
    flow = Workflow(tuple(Step(dice.randrange(3), "Work on it.") for _ in range(number % 4 + 1)))
    results = tuple(
        StepResult(
            step, NAMES[step.worker], "Done.",
            Completion("Done.", Usage(800, 240), dice.random() * 0.02), (), 0.1, 3 * dice.random(),
        )
        for step in flow.steps
    )  # fmt: skip
    made = Round((Draft(Completion(render(flow), Usage(300, 60), 0.0002)),), flow, results, "Done.")
    failure = FAILED[number % 2] if number % 5 == 3 else None
    if number % 10 == 8:
        made, failure = replace(made, answer=None), FAILED[1]
    id = f"{int(started * 1000):011x}{number:08x}"
    strategy = dice.choice(("podium", "podium", "careful"))
    return Run(id, Question(text), strategy, NAMES, (made,), started=started,
               seconds=20 * dice.random(), failure=failure)  # fmt: skip


def _scripts(gate: asyncio.Event) -> dict[str, list[object]]:
    listed = "2, 3, 5, 7, 11, 13 … 97: that makes 25 primes. " * 6
    return {
        "plan": ["nonsense", render(PLAN), render(AGAIN)],
        "sieve": [
            Say(listed, usage=Usage(812, 310), delay=0.3),
            Say("All counts agree: **25**.", usage=Usage(1200, 40), delay=0.2),
            Say("Still 25.", usage=Usage(400, 12)),
        ],
        "trial": [
            Refuse(500, "overloaded"),
            Say("Trial division gives 25 as well.", usage=Usage(700, 120), delay=0.8),
            Say("There are **25**.", usage=Usage(1900, 420), pieces=9),
            Say(ANSWER, usage=Usage(1900, 420), delay=0.5, pieces=40),
        ],
        "estimate": [
            Say("100/ln(100) = 21.7; plausible.", usage=Usage(500, 90), gate=gate),
            Refuse(503, "down"),
        ],
    }


def _config(folder: Path, upstream: Upstream) -> Config:
    def worker(name: str, **more: object) -> dict[str, object]:
        price = {"input": 1.0, "output": 2.0}
        return {"name": name, "model": name, "base_url": f"{upstream.url}/v1", "price": price,
                "retries": 0, **more}  # fmt: skip

    return Config.model_validate(
        {
            "store": str(folder / "podium.sqlite"),
            "planner": {"worker": "plan"},
            "planner_worker": [worker("plan")],
            "worker": [
                worker("sieve", description="Fast and exact with numbers."),
                worker("trial", retries=2),
                worker("estimate", fallback="sieve"),
            ],
            "limits": {"dollars": 0.5, "rounds": 2},
        }
    )


@asynccontextmanager
async def served(gate: asyncio.Event) -> AsyncIterator[tuple[str, Desk]]:
    with tempfile.TemporaryDirectory() as folder:
        async with Upstream(_scripts(gate)) as upstream:
            desk = Desk(Podium(_config(Path(folder), upstream)))
            server = uvicorn.Server(uvicorn.Config(build(desk), ws="none", log_config=None))
            listener = socket.create_server(("127.0.0.1", 0))
            task = asyncio.create_task(server._serve([listener]))
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", desk
            gate.set()
            server.should_exit = True
            await task
            await desk.close()


async def take(scenes: list[str], shelf: Path | None, to: Path) -> None:
    async with async_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in scenes:
            gate = asyncio.Event()
            async with served(gate) as (url, desk):
                await SCENES[name](Studio(url, desk, browser, gate, shelf, to))
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--shelf", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/images"))
    flags = parser.parse_args()
    if unknown := set(flags.scenes) - set(SCENES):
        parser.error(f"there is no scene {min(unknown)!r}: there are {', '.join(SCENES)}")
    if flags.shelf:
        os.environ[SHELF] = str(flags.shelf)
    asyncio.run(take(flags.scenes or list(SCENES), flags.shelf, flags.to))


if __name__ == "__main__":
    main()
