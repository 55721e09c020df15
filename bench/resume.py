"""Kill an evaluation at random, again and again, and see that nothing is lost or paid for twice.

    python bench/resume.py --kills 30 --questions 500

An evaluation of three strategies runs once undisturbed and once under SIGKILL, as a process of its
own, against a server that keeps every request it is sent. After each kill the calls that had been
written down are read; whichever of them is asked for again was paid for twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from podium import Step, Workflow, render
from podium.testing import Say, Upstream
from podium.testing.upstream import Sent

PLAN = render(Workflow((Step(0, "Work it out."), Step(1, "Check it and state it.", (0,)))))
STRATEGIES = "single:*,vote:2,conductor"
MARK = re.compile(r"\b[0-9a-f]{16}\b")
"""What fences other workers' text off is random, and no part of what is asked."""
SAME = "strategy, item, sample, score, read, note, usd, input, output, calls, steps, workers"

Key = tuple[str, str]


def answer(sent: Sent) -> Say:
    """Both workers add; `b` is wrong on every third question."""
    if sent.model == "lead":
        return Say(PLAN, delay=0.002)
    number = int(re.findall(r"What is (\d+) plus", str(sent.body["messages"][-1]["content"]))[0])
    wrong = sent.model == "b" and number % 3 == 0
    return Say(f"<answer>{number + 1 + wrong}</answer>", delay=0.002)


def key(model: str, messages: list[dict[str, object]]) -> Key:
    return model, MARK.sub("MARK", str(messages[-1]["content"]))


def set_up(folder: Path, url: str, questions: int) -> None:
    rows = [
        {"id": f"{split}-{i}", "split": split, "question": f"What is {i} plus 1?",
         "answer": str(i + 1), "grader": "number"}
        for split, first, count in (("dev", questions, 20), ("test", 0, questions))
        for i in range(first, first + count)
    ]  # fmt: skip
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    worker = f'base_url = "{url}/v1"\nprice = {{ input = 1, output = 2 }}\n'
    (folder / "podium.toml").write_text(
        '[planner]\nworker = "lead"\n'
        f'[[planner_worker]]\nname = "lead"\nmodel = "lead"\n{worker}'
        + "".join(f'[[worker]]\nname = "{n}"\nmodel = "{n}"\n{worker}' for n in "ab")
    )


async def start(folder: Path, out: str) -> asyncio.subprocess.Process:
    words = ("eval", "--task", "jsonl:sums.jsonl", "--strategy", STRATEGIES, "--out", out,
             "--concurrency", "8", "--yes", "--json")  # fmt: skip
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from podium.cli import main; main()", *words,
        cwd=folder, env={**os.environ, "HOME": str(folder)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def finish(process: asyncio.subprocess.Process) -> None:
    _, err = await process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"the evaluation failed: {err.decode()[-2000:]}")


def recorded(file: Path) -> set[Key]:
    if not file.exists():
        return set()
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30) as store:
        try:
            rows = store.execute("SELECT worker, request FROM calls").fetchall()
        except sqlite3.OperationalError:  # killed before there was a table
            return set()
    return {key(worker, json.loads(request)["messages"]) for worker, request in rows}


def rows(file: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as store:
        sql = f"SELECT {SAME} FROM samples WHERE split = 'test' ORDER BY strategy, item, sample"
        return store.execute(sql).fetchall()


async def disturbed(folder: Path, upstream: Upstream, kills: int, total: int) -> dict[str, int]:
    file = folder / "killed" / "results.sqlite"
    dice, repeated, asked_before = random.Random(0), 0, set[Key]()
    unfinished, done = 0, 0
    while True:
        paid, first = recorded(file), len(upstream.requests)
        process = await start(folder, "killed")
        left = max(1, total - first)
        if done < kills:
            await upstream.arrived(first + dice.randint(1, max(2, 2 * left // (kills - done + 3))))
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            done += 1
        else:
            await finish(process)
        await upstream.quiet()
        asked = [key(s.model, s.body["messages"]) for s in upstream.requests[first:]]
        repeated += sum(one in paid for one in asked)
        unfinished += sum(one in asked_before and one not in paid for one in asked)
        asked_before |= set(asked)
        if process.returncode == 0:
            return {"kills": done, "repeated_calls": repeated, "unfinished_calls_again": unfinished}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--questions", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Upstream([answer], check=False) as upstream:
            set_up(folder, upstream.url, args.questions)
            began = time.monotonic()
            await finish(await start(folder, "whole"))
            total, seconds = len(upstream.requests), time.monotonic() - began
            print(f"undisturbed: {total} calls in {seconds:.1f} s")
            upstream.requests.clear()
            found = await disturbed(folder, upstream, args.kills, total)
            print(f"killed {found['kills']} times: {len(upstream.requests)} calls")
        whole, killed = (rows(folder / out / "results.sqlite") for out in ("whole", "killed"))
    print(json.dumps({**found, "equal": whole == killed, "samples": len(whole), "calls": total}))


asyncio.run(main())
