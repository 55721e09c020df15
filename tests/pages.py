"""What the tests of the page share: a browser, a line that can be cut, and things to look at."""

import asyncio
import json
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from podium.eval.results import Results, Sample
from podium.eval.tasks import Item
from podium.types import (
    Completion,
    Draft,
    Limits,
    Message,
    Question,
    Round,
    Run,
    Step,
    StepResult,
    Usage,
    Workflow,
)
from podium.workflow import render

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is missing")
ARTEFACTS = Path(__file__).parents[1] / "artefacts"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
TRAP = "window.hits = []; window.owned = (...given) => { window.hits.push(given); };"
PATIENCE = int(os.environ.get("PODIUM_PATIENCE", "30"))
"""Seconds that a busy machine may take for what takes it a moment."""


class Sight:
    """A page, and everything that went wrong on it."""

    def __init__(self, page, url):
        self.page, self.url = page, url
        self.complaints, self.strangers = [], []
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda m: m.type == "error" and self.complaints.append(m.text))
        page.on("request", self._asked)

    def _asked(self, request):
        if not request.url.startswith((self.url, "blob:", "data:", "file:", "about:")):
            self.strangers.append(request.url)

    async def open(self, place=""):
        await self.page.goto(f"{self.url}/#/{place}")

    async def ask(self, text):
        await self.page.get_by_role("textbox", name="Question").fill(text)
        await self.page.keyboard.press("Enter")

    async def see(self, text, selector="main"):
        await self.page.locator(selector, has_text=text).first.wait_for()

    async def picture(self, name):
        ARTEFACTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"web-{name}.png", full_page=True)


@asynccontextmanager
async def browsing():
    """Chromium; what is given opens a page of its own, with whatever a context may be told."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        async def at(url, **options):
            context = await browser.new_context(viewport={"width": 1280, "height": 900}, **options)
            await context.add_init_script(TRAP)
            return Sight(await context.new_page(), url)

        try:
            yield at
        finally:
            await browser.close()


@asynccontextmanager
async def wire(url):
    """The server behind a line that can be cut."""
    port, lines = int(url.rpartition(":")[2]), set()

    async def carry(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def connect(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        lines.add(writer)
        try:
            async with asyncio.TaskGroup() as group:
                ways = [
                    group.create_task(carry(reader, up_writer)),
                    group.create_task(carry(up_reader, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        except* OSError:
            pass
        finally:
            lines.discard(writer)
            writer.close()
            up_writer.close()

    def cut():
        for writer in set(lines):
            writer.transport.abort()

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", cut
    server.close()
    cut()


def number(i):
    return f"{i + 1:011x}00000000"


def stored(id, answer, *, steps=1, rounds=1, question="What is it?"):
    """A run as the store keeps it, every text of which is the same."""
    done = Completion(answer, Usage(10, 5), 0.001, reasoning=answer)
    flow = Workflow(tuple(Step(i % 2, answer[:400], "all" if i else ()) for i in range(steps)))
    messages = (Message("user", answer[:4000]),)
    results = tuple(
        StepResult(step, "ab"[step.worker], answer, done, messages, 0.1 * i, 0.1)
        for i, step in enumerate(flow.steps)
    )
    draft = Draft(Completion(answer[:400], Usage(5, 5), 0.001), messages, 0.2)
    made = Round((draft,), flow, results, answer)
    return Run(id, Question(question), "podium", ("a", "b"), (made,) * rounds, Limits(), 1.7e9, 3.0)


async def keep(server, *runs):
    for run in runs:
        await server.desk.podium.store.end_run(run, owner="", config="")


def write_training(folder, steps):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.json").write_text('{"name": "tiny", "grpo": {"steps": 9}}')
    with (folder / "metrics.jsonl").open("a") as file:
        for i in steps:
            row = {"step": i, "seconds": 2.0, "reward": i / 10, "accuracy": i / 12, "parsed": 0.9,
                   "live_groups": 0.5, "entropy": 1 / i,
                   "workers": {"b": 0.6, "a": 0.4}}  # fmt: skip
            file.write(json.dumps(row) + "\n")
    with (folder / "samples.jsonl").open("a") as file:
        for i in steps:
            flow = Workflow((Step(3, f"Count to {i}."), Step(0, "Write it up.", (0,))))
            answers = {"b": f"one … {i}", "a": "so it is"}
            good = {"draft": render(flow), "complaint": None, "answers": answers,
                    "score": 1.0, "reward": 1.0}  # fmt: skip
            bad = {"draft": "model_id = [", "complaint": "there is no list", "answers": {},
                   "score": 0.0, "reward": 0.0}  # fmt: skip
            for name, round in {"right": good, "unread": bad}.items():
                row = {"step": i, "question": f"{name}/{i}", "rounds": [round]}
                file.write(json.dumps(row) + "\n")


async def write_evaluation(folder):
    folder.mkdir(parents=True)
    results = await Results.open(folder)
    await results.agree({"label": "arithmetic", "replay": False, "workers": ["a", "b"]})
    rows = ["podium", "single:a", "single:b"]
    await results.remember("entrants", {row: {"row": row, "says": ""} for row in rows})
    await results.remember("reported", {"test": True})
    items = [Item(str(i), f"What is {i} + {i}?", str(2 * i), "number") for i in range(20)]
    await results.put_items("test", items)
    for n, row in enumerate(rows):
        for i, item in enumerate(items):
            run = replace(
                stored(number(100 * n + i), str(item.target)), question=Question(item.question)
            )
            score = float(i % (5 - n) != 0)
            sample = Sample(
                row, "test", item.id, 0, score, "4", "", run.id, 0.001 * (3 - n), 10, 5, 2,
                1, 1, 0.5, '{"a": 1}', "", "", "{}", 0, 0,
            )  # fmt: skip
            await results.keep(sample, run)
    await results.close()
