"""Teach the specialists of a recipe, one after another, and write their GGUF adapters.

python -m podium.train.tiny recipes/tiny/specialists.toml --base MODEL.gguf --into DIRECTORY
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from podium.errors import ConfigError
from podium.eval.tiny.skills import SKILLS
from podium.train.gguf_adapter import export
from podium.train.tiny.recipe import lessons
from podium.train.tiny.specialists import teach


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m podium.train.tiny", description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="the GGUF model they all share")
    parser.add_argument(
        "--into", type=Path, required=True, help="where checkpoints and adapters go"
    )
    parser.add_argument("--only", nargs="*", default=[], help="these skills and no others")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        for name, lesson in lessons(args.recipe, only=args.only).items():
            adapter = teach(SKILLS[name], lesson, gguf=args.base, into=args.into)
            export(adapter, args.base, args.into / f"{name}.gguf", precision=lesson.precision)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
