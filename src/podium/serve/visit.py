"""The page from outside: whether a server is there already, and where on it a thing is shown.

`PODIUM_PAGE` names the server; where it is not set, it is the address that `podium serve` has by
default. A server counts only if it knows what is to be shown: another one's store is of no use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

ADDRESS = "PODIUM_PAGE"
DEFAULT = "http://127.0.0.1:8000"
PATIENCE = aiohttp.ClientTimeout(total=2.0)
TURNS, PAUSE = 8, 0.1
"""A run that has just begun is written down within a moment."""


def address() -> str:
    return os.environ.get(ADDRESS, DEFAULT).rstrip("/").removesuffix("/v1")


async def ask(path: str) -> tuple[int, Any]:
    """The status and the JSON that the server answers with; 0 where there is none of ours."""
    try:
        async with (
            aiohttp.ClientSession(timeout=PATIENCE) as session,
            session.get(f"{address()}/web/api/{path}") as reply,
        ):
            return reply.status, orjson.loads(await reply.read())
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return 0, None


async def where(run: str) -> str:
    """Where the server shows a run; empty if no server does.

    One that asks for a key first is believed: whoever opens it has one, or is told what is missing.
    """
    for _ in range(TURNS):
        status, said = await ask(f"runs/{run}")
        if status == 401 or (status == 200 and said["id"] == run):
            return f"{address()}/#/runs/{run}"
        if status != 404:
            break
        await asyncio.sleep(PAUSE)
    return ""


async def evaluation(directory: Path) -> str:
    """Where the server shows the results in a directory; empty if they are not on its shelf."""
    status, found = await ask("evaluations")
    if status != 200:
        return ""
    path = await asyncio.to_thread(directory.resolve)
    name = _named([str(each["name"]) for each in found], path.as_posix())
    return f"{address()}/#/evaluations/{quote(name, safe='')}" if name else ""


def _named(names: Sequence[str], path: str) -> str:
    """The name on the shelf, which is the end of a path; of several the one that says most."""
    return max((n for n in names if path.endswith(f"/{n}")), key=len, default="")
