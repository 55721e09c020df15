"""What orchestration costs on top of the models: Podium beside a hand-written loop and its peers.

    python bench/overhead.py [--rounds 3] [--quick]

A fake upstream of fixed latency runs in a process of its own; every engine runs in another, on
the same machine, taking turns, and the median of the rounds counts. Podium runs with recording
and run storage on. Peers are installed into .bench-venv for the benchmark and nowhere else.

p50 ratio: median time of a workflow over its critical path (upstream latency × calls in a row).
cpu: processor time of the engine's process per step, threads included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
PEERS = ("langgraph", "openai", "openai-agents", "pydantic-ai-slim[openai]")
CRITICAL = {"chain": 3, "fan": 2}
LATENCY_MS = 50


def peer_python() -> str:
    python = HERE.parent / ".bench-venv" / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PEERS)} into .bench-venv", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=True)
    return str(python)


@contextmanager
def upstream(latency_ms: int = LATENCY_MS) -> Iterator[str]:
    command = [sys.executable, str(HERE / "upstream.py"), "--port", "0"]
    command += ["--latency-ms", str(latency_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def run(python: str, engine: str, shape: str, concurrency: int, workflows: int, url: str) -> dict:
    command = [python, str(HERE / "engines.py"), engine, shape, str(concurrency), str(workflows)]
    done = subprocess.run([*command, url], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--quick", action="store_true", help="fewer workflows, one round")
    given = flags.parse_args()
    rounds, scale = (1, 4) if given.quick else (given.rounds, 1)
    peers = peer_python()
    engines = {"hand": sys.executable, "podium": sys.executable}
    engines |= {name: peers for name in ("langgraph", "agents", "pydantic_ai")}
    settings = {1: 60 // scale, 32: 1280 // scale}
    samples: dict[tuple[str, str, int], list[dict]] = {}
    with upstream() as url:
        for turn in range(rounds):
            for concurrency, workflows in settings.items():
                for shape in CRITICAL:
                    for engine, python in engines.items():
                        slow = engine not in ("hand", "podium") and concurrency > 1
                        count = workflows // 4 if slow else workflows
                        found = run(python, engine, shape, concurrency, count, url)
                        samples.setdefault((engine, shape, concurrency), []).append(found)
                        _print(turn, engine, shape, concurrency, found)
            for shape in CRITICAL:
                found = run(engines["podium"], "podium", shape, 1000, 4000 // scale, url)
                samples.setdefault(("podium", shape, 1000), []).append(found)
                _print(turn, "podium", shape, 1000, found)
    print(json.dumps(summary(samples)))


def _print(turn: int, engine: str, shape: str, concurrency: int, found: dict) -> None:
    ratio = found["p50_ms"] / (CRITICAL[shape] * LATENCY_MS)
    print(
        f"round {turn + 1}  {engine:<12} {shape:<6} at {concurrency:>4}: "
        f"p50 {found['p50_ms']:7.1f} ms = {ratio:6.3f} × the critical path, "
        f"CPU {found['cpu_ms_per_step']:6.3f} ms a step,"
        f" {found['steps_per_s']:6.0f} steps/s, {found['rss_mb']:4.0f} MB,"
        f" {found['errors']:.0f} errors",
        flush=True,
    )


def summary(samples: dict[tuple[str, str, int], list[dict]]) -> dict[str, float]:
    def median(engine: str, shape: str, concurrency: int, key: str) -> float:
        return statistics.median(s[key] for s in samples[engine, shape, concurrency])

    def ratio(engine: str, shape: str, concurrency: int) -> float:
        return median(engine, shape, concurrency, "p50_ms") / (CRITICAL[shape] * LATENCY_MS)

    def cpu(engine: str) -> float:
        both = [median(engine, shape, 32, "cpu_ms_per_step") for shape in CRITICAL]
        return sum(both) / len(both)

    thousand = [s for shape in CRITICAL for s in samples["podium", shape, 1000]]
    found = {
        "chain_p50_ratio": ratio("podium", "chain", 1),
        "fan_p50_ratio": ratio("podium", "fan", 1),
        "chain_p50_ratio_32": ratio("podium", "chain", 32),
        "fan_p50_ratio_32": ratio("podium", "fan", 32),
        "langgraph_chain_p50_ratio": ratio("langgraph", "chain", 1),
        "langgraph_chain_p50_ratio_32": ratio("langgraph", "chain", 32),
        "cpu_vs_hand": cpu("podium") / cpu("hand"),
        "cpu_vs_langgraph": cpu("podium") / cpu("langgraph"),
        "cpu_vs_agents": cpu("podium") / cpu("agents"),
        "cpu_vs_pydantic_ai": cpu("podium") / cpu("pydantic_ai"),
        "steps_per_s_1000": statistics.median(s["steps_per_s"] for s in thousand),
        "steps_per_cpu_s_1000": statistics.median(s["steps_per_cpu_s"] for s in thousand),
        "errors_1000": sum(s["errors"] for s in thousand),
        "rss_mb_1000": max(s["rss_mb"] for s in thousand),
    }
    return {key: round(value, 4) for key, value in found.items()}


if __name__ == "__main__":
    main()
