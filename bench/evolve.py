"""Generations to reach 1e-6, beside pycma's diagonal mode, and the cost of one ask and tell.

    python bench/evolve.py

Both start at the same place with the same population, ⌈4 + 3 ln n⌉, and are judged by the true
value at the mean of the search, also where what they are told is noisy. Each figure is the median
of five seeds; a ratio under 1 says that ours needs fewer generations.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import cma
import numpy as np
from numpy.typing import NDArray

from podium.train.evolve import Evolution, population_size

Vector = NDArray[np.float64]
DIMENSIONS = 40
TARGET = 1e-6
SEEDS = range(5)
MOST = 5_000
BLOCK = 4


def sphere(x: Vector) -> float:
    return float(x @ x)


def ellipsoid(x: Vector) -> float:
    return float(np.logspace(0, 6, len(x)) @ x**2)


def blocks(x: Vector) -> float:
    """Within a block of four the coordinates depend on each other; between blocks they do not."""
    parts = x.reshape(-1, BLOCK)
    return float((parts**2).sum() + 0.5 * (parts.sum(axis=1) ** 2).sum())


def ours(f: Callable[[Vector], float], noise: float, seed: int) -> int:
    rng = np.random.default_rng(seed)
    search = Evolution(np.full(DIMENSIONS, 1.0), sigma=0.5, seed=seed)
    while f(search.mean) > TARGET and search.generation < MOST:
        search.tell([-f(x) * (1 + noise * rng.standard_normal()) for x in search.ask()])
    return search.generation


def reference(f: Callable[[Vector], float], noise: float, seed: int) -> int:
    rng = np.random.default_rng(seed)
    size = population_size(DIMENSIONS)
    options = {"CMA_diagonal": True, "popsize": size, "seed": seed + 1, "verbose": -9}
    search = cma.CMAEvolutionStrategy(np.full(DIMENSIONS, 1.0), 0.5, options)
    while f(search.mean) > TARGET and search.countiter < MOST:
        asked = search.ask()
        search.tell(asked, [f(x) * (1 + noise * rng.standard_normal()) for x in asked])
    return int(search.countiter)


def ask_tell_ms(dimensions: int, repeats: int = 20) -> tuple[float, float]:
    """One generation's ask and tell, without any fitness: ours and the reference's."""
    search = Evolution(np.zeros(dimensions), sigma=0.03)
    options = {"CMA_diagonal": True, "popsize": search.population, "seed": 1, "verbose": -9}
    other = cma.CMAEvolutionStrategy(np.zeros(dimensions), 0.03, options)
    told = list(np.random.default_rng(0).random(search.population))
    own, theirs = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        search.ask()
        search.tell(told)
        own.append(time.perf_counter() - began)
        began = time.perf_counter()
        other.tell(other.ask(), told)
        theirs.append(time.perf_counter() - began)
    return 1000 * statistics.median(own), 1000 * statistics.median(theirs)


def main() -> None:
    figures: dict[str, float] = {}
    for name, f, noise in (
        ("sphere", sphere, 0.0),
        ("ellipsoid", ellipsoid, 0.0),
        ("noisy_blocks", blocks, 0.05),
    ):
        mine = statistics.median(ours(f, noise, seed) for seed in SEEDS)
        theirs = statistics.median(reference(f, noise, seed) for seed in SEEDS)
        print(f"{name}: {mine:.0f} generations, pycma {theirs:.0f}")
        figures[f"{name}_generations"] = mine
        figures[f"{name}_vs_reference"] = round(mine / theirs, 3)
    own, other = ask_tell_ms(20_000)
    print(f"ask and tell at n = 20,000: {own:.1f} ms, pycma {other:.1f} ms")
    figures |= {"ask_tell_ms_20000": round(own, 2), "reference_ask_tell_ms_20000": round(other, 2)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
