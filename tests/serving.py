"""A real server on a free port of this machine, for the tests that speak to one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from podium.app import Podium
from podium.config import Config
from podium.serve.app import build
from podium.serve.desk import Desk
from podium.serve.server import Guarded, bounded
from podium.testing import Upstream
from podium.types import Step, Workflow
from podium.workflow import render

PRICE = {"input": 1.0, "output": 2.0}


@dataclass
class Served:
    url: str
    desk: Desk
    upstream: Upstream

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


def worker(
    name: str, upstream: Upstream, kind: str = "openai", **more: object
) -> dict[str, object]:
    base = f"{upstream.url}/v1"
    return {
        "name": name, "kind": kind, "model": name, "base_url": base, "price": PRICE,
        "retries": 0, **more,
    }  # fmt: skip


def workflow(*steps: Step) -> str:
    return render(Workflow(steps))


def config(tmp_path: Path, upstream: Upstream, **more: object) -> Config:
    """Two workers, and a planner whose drafts the upstream scripts under the model `plan`."""
    made: dict[str, object] = {
        "store": str(tmp_path / "podium.sqlite"),
        "planner": {"worker": "plan"},
        "planner_worker": [worker("plan", upstream)],
        "worker": [worker("a", upstream), worker("b", upstream)],
        **more,
    }
    return Config.model_validate(made)


@asynccontextmanager
async def served(config: Config, upstream: Upstream) -> AsyncIterator[Served]:
    podium = Podium(config)
    desk = Desk(podium)
    options = uvicorn.Config(
        bounded(build(desk)), port=0, http=Guarded, ws="none", lifespan="off", log_config=None,
        access_log=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(options)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    task = asyncio.create_task(server._serve([listener]))
    try:
        yield Served(f"http://127.0.0.1:{port}", desk, upstream)
    finally:
        server.should_exit = True
        await task
        listener.close()
        await desk.close()
