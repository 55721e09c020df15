"""What the tiny specialists can do, as they ship: GGUF adapters under llama.cpp, no torch.

    python bench/tiny_pool.py

Prints each specialist's share of right answers on each skill, asked in compact form with numbers
and wordings that nobody saw in training; then, on test questions, what each worker reaches alone
and what the whole pool reaches when every question's own workflow is followed (the ceiling of any
Conductor that writes such subtasks). The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from podium.eval.tiny.questions import Item, Kind, generate, right
from podium.eval.tiny.skills import SKILLS
from podium.ledger import Ledger
from podium.models import ADAPTERS, SMOLLM2, find_model
from podium.train.tiny.subtasks import compact, example
from podium.types import Message, Request, Sampling
from podium.workers import Call
from podium.workers.local import LocalModel, LocalWorker

BASE = "(no adapter)"
GREEDY = Sampling(max_tokens=24, temperature=0.0)
KINDS: tuple[Kind, ...] = ("single", "chain", "merge", "new")


class Pool:
    """The specialists whose adapters lie in a directory, over one model in memory."""

    def __init__(self, base: Path, adapters: Path) -> None:
        self.model = LocalModel(base, context=512, parallel=4)
        self.workers = {
            name: LocalWorker(name, self.model, adapters / f"{name}.gguf", sampling=GREEDY)
            for name in SKILLS
        } | {BASE: LocalWorker(BASE, self.model, sampling=GREEDY)}
        self.ledger = Ledger()

    async def ask(self, worker: str, prompts: Sequence[str]) -> list[str]:
        requests = [Request((Message("user", prompt),)) for prompt in prompts]
        call = Call(self.ledger)
        asked = (self.workers[worker].complete(request, call) for request in requests)
        return [completion.text for completion in await asyncio.gather(*asked)]


async def share(pool: Pool, worker: str, skill: str, *, n: int, seed: int) -> float:
    """Of `n` unseen subtasks of a skill, how many a worker gets right."""
    asked = [example(SKILLS[skill], Random(f"bench {seed} {skill} {i}"), "test") for i in range(n)]
    answers = await pool.ask(worker, [e.prompt for e in asked])
    return fmean(right(a, e.answer) for a, e in zip(answers, asked, strict=True))


async def alone(pool: Pool, worker: str, items: Sequence[Item]) -> float:
    """How many questions one worker answers when it is given the bare question."""
    answers = await pool.ask(worker, [item.question for item in items])
    return fmean(right(a, i.answer) for a, i in zip(answers, items, strict=True))


async def together(pool: Pool, items: Sequence[Item]) -> float:
    """How many the pool answers, each question's own workflow followed step by step."""
    outputs: list[list[str]] = [[] for _ in items]
    for place in range(max(len(item.calls) for item in items)):
        for worker in SKILLS:
            due = [
                (i, item.calls[place])
                for i, item in enumerate(items)
                if place < len(item.calls) and item.calls[place].skill == worker
            ]
            prompts = [compact(c.subtask, [outputs[i][a] for a in c.access]) for i, c in due]
            for (i, _), answer in zip(due, await pool.ask(worker, prompts), strict=True):
                outputs[i].append(answer)
    return fmean(right(o[-1], i.answer) for o, i in zip(outputs, items, strict=True))


async def table(pool: Pool, own: int, others: int, *, seed: int) -> dict[str, dict[str, float]]:
    """Print the skills of every specialist, line by line as they are measured."""
    print(f"{'':12}" + "".join(f"{name:>9}" for name in SKILLS))
    shares: dict[str, dict[str, float]] = {}
    for worker in pool.workers:
        shares[worker] = {
            skill: await share(pool, worker, skill, n=own if skill == worker else others, seed=seed)
            for skill in SKILLS
        }
        print(f"{worker:12}" + "".join(f"{x:9.2f}" for x in shares[worker].values()), flush=True)
    return shares


async def measure(args: argparse.Namespace) -> dict[str, object]:
    pool = Pool(args.base or find_model(SMOLLM2.name), args.adapters)
    started = time.monotonic()
    shares = await table(pool, args.own, args.others, seed=args.seed)
    asked = {kind: generate(args.seed, args.questions, "test", (kind,)) for kind in KINDS}
    mixed = [item for items in asked.values() for item in items]
    singles = {worker: await alone(pool, worker, mixed) for worker in pool.workers}
    ceiling = {kind: await together(pool, items) for kind, items in asked.items()}
    for worker, value in singles.items():
        print(f"alone, on questions of every kind: {worker:12} {value:.2f}")
    for kind, value in ceiling.items():
        print(f"together, on questions of kind {kind:8} {value:.2f}")
    seconds = time.monotonic() - started
    await pool.model.close()
    return {
        "own": {name: shares[name][name] for name in SKILLS},
        "others": {n: max(v for s, v in shares[n].items() if s != n) for n in SKILLS},
        "alone": singles,
        "together": ceiling,
        "calls": pool.ledger.calls,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="the GGUF base model, if it is not a known one")
    parser.add_argument("--adapters", type=Path, default=ADAPTERS)
    parser.add_argument("--own", type=int, default=100, help="subtasks of a worker's own skill")
    parser.add_argument("--others", type=int, default=24, help="subtasks of each other skill")
    parser.add_argument("--questions", type=int, default=48, help="questions of each kind")
    parser.add_argument("--seed", type=int, default=1)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
