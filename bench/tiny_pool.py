"""What the tiny specialists can do, as they ship: GGUF adapters under llama.cpp, no torch.

    python bench/tiny_pool.py --base SmolLM2-135M-Instruct.Q4_1.gguf

Prints each specialist's share of right answers on each skill, asked in compact form with numbers
and wordings that nobody saw in training; then, on test questions, what each worker reaches alone
and what the whole pool reaches when every question's own workflow is followed (the ceiling of any
Conductor that writes such subtasks). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import fmean

import xllamacpp

from podium.train.tiny.questions import Item, Kind, generate, right
from podium.train.tiny.skills import SKILLS
from podium.train.tiny.subtasks import compact, example

SLOTS = 4
MAX_TOKENS = 24
BASE = "(no adapter)"


class Pool:
    """One base model in memory and all adapters beside it, chosen by request."""

    def __init__(self, base: Path, adapters: Path, *, threads: int) -> None:
        self.names = sorted(p.stem for p in adapters.glob("*.gguf") if p.stem in SKILLS)
        params = xllamacpp.CommonParams()
        params.model.path = str(base)
        params.verbosity = 1
        params.n_parallel = SLOTS
        params.n_ctx = 512 * SLOTS
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.lora_adapters = [
            xllamacpp.CommonAdapterLoraInfo(str(adapters / f"{name}.gguf"), 1.0)
            for name in self.names
        ]
        self.server = xllamacpp.Server(params)
        self.threads = ThreadPoolExecutor(SLOTS)

    def ask(self, worker: str, prompts: Sequence[str]) -> list[str]:
        lora = [{"id": i, "scale": float(n == worker)} for i, n in enumerate(self.names)]
        return list(self.threads.map(lambda p: self._answer(p, lora), prompts))

    def _answer(self, prompt: str, lora: list[dict[str, float]]) -> str:
        reply = self.server.handle_chat_completions(
            {
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": MAX_TOKENS,
                "temperature": 0.0,
                "lora": lora,
            }
        )
        return str(reply["choices"][0]["message"]["content"])


def share(pool: Pool, worker: str, skill: str, n: int) -> float:
    """Of `n` unseen subtasks of a skill, how many a worker gets right."""
    asked = [example(SKILLS[skill], Random(f"bench {skill} {i}"), "test") for i in range(n)]
    answers = pool.ask(worker, [e.prompt for e in asked])
    return fmean(right(a, e.answer) for a, e in zip(answers, asked, strict=True))


def alone(pool: Pool, worker: str, items: Sequence[Item]) -> float:
    """How many questions one worker answers when it is given the bare question."""
    answers = pool.ask(worker, [item.question for item in items])
    return fmean(right(a, i.answer) for a, i in zip(answers, items, strict=True))


def together(pool: Pool, items: Sequence[Item]) -> float:
    """How many the pool answers, each question's own workflow followed step by step."""
    outputs: list[list[str]] = [[] for _ in items]
    for place in range(max(len(item.calls) for item in items)):
        for worker in pool.names:
            due = [
                (i, item.calls[place])
                for i, item in enumerate(items)
                if place < len(item.calls) and item.calls[place].skill == worker
            ]
            prompts = [compact(c.subtask, [outputs[i][a] for a in c.access]) for i, c in due]
            for (i, _), answer in zip(due, pool.ask(worker, prompts), strict=True):
                outputs[i].append(answer)
    return fmean(right(o[-1], i.answer) for o, i in zip(outputs, items, strict=True))


def table(pool: Pool, own: int, others: int) -> dict[str, dict[str, float]]:
    """Print the skills of every specialist, line by line as they are measured."""
    print(f"{'':12}" + "".join(f"{name:>9}" for name in SKILLS))
    shares: dict[str, dict[str, float]] = {}
    for worker in [*pool.names, BASE]:
        shares[worker] = {
            skill: share(pool, worker, skill, own if skill == worker else others)
            for skill in SKILLS
        }
        print(f"{worker:12}" + "".join(f"{x:9.2f}" for x in shares[worker].values()), flush=True)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the GGUF base model")
    parser.add_argument("--adapters", type=Path, default=Path("src/podium/adapters"))
    parser.add_argument("--own", type=int, default=100, help="subtasks of a worker's own skill")
    parser.add_argument("--others", type=int, default=24, help="subtasks of each other skill")
    parser.add_argument("--questions", type=int, default=48, help="questions of each kind")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    pool = Pool(args.base, args.adapters, threads=args.threads)
    shares = table(pool, args.own, args.others)
    kinds: tuple[Kind, ...] = ("single", "chain", "merge", "new")
    asked = {kind: generate(1, args.questions, "test", (kind,)) for kind in kinds}
    mixed = [item for items in asked.values() for item in items]
    singles = {worker: alone(pool, worker, mixed) for worker in [*pool.names, BASE]}
    ceiling = {kind: together(pool, items) for kind, items in asked.items()}
    for worker, value in singles.items():
        print(f"alone, on questions of every kind: {worker:12} {value:.2f}")
    for kind, value in ceiling.items():
        print(f"together, on questions of kind {kind:8} {value:.2f}")
    own = {name: shares[name][name] for name in pool.names}
    others = {n: max(v for s, v in shares[n].items() if s != n) for n in pool.names}
    print(json.dumps({"own": own, "others": others, "alone": singles, "together": ceiling}))


if __name__ == "__main__":
    main()
