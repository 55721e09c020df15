"""Makes workers out of their sections of the configuration, and the embedded default.

Connections and loaded models are shared by the workers that need the same ones, and are let go
together.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from podium.config import Config, WorkerSection, load
from podium.errors import ConfigError
from podium.workers import FREE, Member
from podium.workers.chat import ChatWorker, Secret
from podium.workers.prices import price_of
from podium.workers.tools import VoteWorker
from podium.workers.transport import Transport

if TYPE_CHECKING:  # imported where they are made: most configurations need neither
    from podium.workers.local import LocalModel
    from podium.workers.python import PythonWorker

EMBEDDED = Path(__file__).with_name("embedded.toml")
VOTE = "a program, not a model: returns the answer that most of the outputs it may read state"
PYTHON = "a program, not a model: runs the Python code in the last output it may read"


@dataclass(slots=True)
class Workshop:
    transport: Transport = field(default_factory=Transport)
    _models: dict[Path, LocalModel] = field(default_factory=dict)
    _python: PythonWorker | None = None

    def make(self, section: WorkerSection) -> Member:
        """The worker that a section describes.

        Raises:
            ConfigError: its key is not in the environment, or its model is not on this machine.
        """
        if section.remote:
            return self._chat(section)
        if section.kind == "local":
            return self._local(section)
        if section.kind == "vote":
            return Member(VoteWorker(section.name), VOTE, FREE, program=True)
        from podium.workers.python import PythonWorker

        self._python = PythonWorker(section.name)
        return Member(self._python, PYTHON, FREE, program=True)

    def model(self, path: Path) -> LocalModel:
        """The model in this file: one in memory for all who use it."""
        from podium.workers.local import LocalModel

        return self._models.setdefault(path, LocalModel(path))

    async def close(self) -> None:
        await self.transport.close()
        for model in self._models.values():
            await model.close()
        if self._python is not None:
            await self._python.close()

    def _chat(self, section: WorkerSection) -> Member:
        configured = section.price.value() if section.price else None
        worker = ChatWorker(
            name=section.name,
            model=section.model,
            transport=self.transport,
            dialect=section.kind,
            base_url=section.base_url,
            key=Secret(_key(section)),
            key_env=section.key_env,
            sampling=section.sampling(),
            extra=section.extra,
            max_tokens_field=section.max_tokens_field,
            concurrency=section.concurrency,
            rpm=section.requests_per_minute,
            tpm=section.tokens_per_minute,
            retries=section.retries,
        )
        worker.price = price_of(section.model, worker.base_url, configured)
        return Member(worker, section.model, worker.price)

    def _local(self, section: WorkerSection) -> Member:
        from podium.models import find_adapter, find_model
        from podium.workers.local import LocalWorker

        model = self.model(find_model(section.model))
        adapter = find_adapter(section.adapter) if section.adapter else None
        worker = LocalWorker(section.name, model, adapter=adapter, sampling=section.sampling())
        return Member(worker, "a small model on this machine", FREE)


def _key(section: WorkerSection) -> str:
    if not section.key_env:
        return ""
    key = os.environ.get(section.key_env, "")
    if not key:
        raise ConfigError(
            f"worker {section.name!r}: the environment variable {section.key_env} is not set"
        )
    return key


def embedded() -> Config:
    """What works with no configuration and no key."""
    return load(EMBEDDED)
