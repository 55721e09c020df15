"""The average of two checkpoints of one run: what each of two legs has learnt, in one adapter.

    python -m podium.train.average runs/chains/checkpoint runs/both/checkpoint --share 0.4 --out DIR

Weights between two checkpoints a few steps apart are often good at what either is good at.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from podium.checkpoints import FILE, find_checkpoint
from podium.errors import ConfigError
from podium.models import find_model

WEIGHTS = "adapter_model.safetensors"


def average(first: Path, second: Path, share: float, out: Path) -> None:
    """Write the adapter that has `share` of the second checkpoint and the rest of the first.

    Raises:
        ConfigError: they are not adapters of the same shape.
    """
    from safetensors.torch import load_file, save_file

    from podium.train.gguf_adapter import export

    missing = [d for d in (first, second) if not ((d / WEIGHTS).exists() and (d / FILE).exists())]
    if missing:
        raise ConfigError(f"{missing[0]} is no checkpoint with an adapter")
    one, other = load_file(first / WEIGHTS), load_file(second / WEIGHTS)
    if {k: v.shape for k, v in one.items()} != {k: v.shape for k, v in other.items()}:
        raise ConfigError(f"{first} and {second} are adapters of different shapes")
    shutil.copytree(first, out, ignore=shutil.ignore_patterns(WEIGHTS, "*.gguf"))
    mean = {k: one[k].lerp(other[k], share).contiguous() for k in one}
    save_file(mean, out / WEIGHTS)
    export(out, find_model(find_checkpoint(str(out)).manner.base), out / "conductor.gguf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, default=0.5, help="of the second")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    average(given.first, given.second, given.share, given.out)


if __name__ == "__main__":
    main()
