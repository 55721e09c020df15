"""Imports go one way, and importing costs next to nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "podium"
AROUND = {"eval", "train", "serve", "trinity", "cli", "testing"}
MAY_IMPORT = {
    "core": set(),
    "app": {"trinity"},
    "testing": set(),
    "eval": {"trinity"},
    "trinity": set(),
    "train": {"eval", "trinity"},
    "serve": {"eval", "trinity"},
    "cli": AROUND,
}
"""Which packages around the core a part may use; everything may use the core."""


def part(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if first == "__main__":
        return "cli"
    if first == "app":  # where everything is put together
        return "app"
    return first if first in AROUND else "core"


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.split(".")[1] for name in found if name.startswith("podium.")}


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_go_one_way(path: Path):
    mine = part(path)
    foreign = (imported(path) & AROUND) - MAY_IMPORT[mine] - {mine}
    assert not foreign, f"{path.relative_to(SOURCE)} is {mine} and imports {foreign}"


@pytest.mark.parametrize("module", ["podium", "podium.cli", "podium.app"])
def test_the_core_imports_no_torch_no_server_and_no_dataset_library(module: str):
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "transformers", "trl", "datasets", "starlette", "uvicorn", "numpy", "sklearn"}
    assert not heavy & set(loaded)


def test_importing_podium_loads_no_http_client_and_no_pydantic():
    code = "import sys, podium; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"aiohttp", "pydantic", "rich", "click"} & set(loaded)
