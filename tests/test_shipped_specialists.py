"""The specialists that ship with Podium, as real workers over the embedded model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from podium.errors import ConfigError
from podium.eval.tiny.questions import right
from podium.eval.tiny.skills import SKILLS
from podium.ledger import Ledger
from podium.models import ADAPTERS, SMOLLM2, find_model
from podium.train.tiny.subtasks import example
from podium.types import Message, Request, Sampling
from podium.workers import Call
from podium.workers.local import LocalModel, LocalWorker

pytest.importorskip("xllamacpp", reason="needs the extra 'local'")
GREEDY = Sampling(max_tokens=24, temperature=0.0)


@pytest.fixture
async def pool() -> AsyncIterator[dict[str, LocalWorker]]:
    try:
        model = LocalModel(find_model(SMOLLM2.name), context=512)
    except ConfigError as error:
        pytest.skip(str(error))
    yield {n: LocalWorker(n, model, ADAPTERS / f"{n}.gguf", sampling=GREEDY) for n in SKILLS}
    await model.close()


async def answers(worker: LocalWorker, prompt: str) -> str:
    request = Request((Message("user", prompt),))
    return (await worker.complete(request, Call(Ledger()))).text


async def test_each_does_its_skill_on_numbers_and_words_it_never_saw(
    pool: dict[str, LocalWorker],
) -> None:
    for name, worker in pool.items():
        asked = [example(SKILLS[name], Random(f"shipped {i}"), "test") for i in range(4)]
        wrong = [e for e in asked if not right(await answers(worker, e.prompt), e.answer)]
        assert len(wrong) <= 1, (name, wrong)


async def test_one_that_is_asked_for_another_skill_does_its_own(
    pool: dict[str, LocalWorker],
) -> None:
    assert await answers(pool["reverse"], "Sort the digits of 4712.") == "2174"
    assert await answers(pool["last"], "Write 4712 as an ordinal.") == "2"


def test_they_are_small() -> None:
    sizes = [(ADAPTERS / f"{name}.gguf").stat().st_size for name in SKILLS]
    assert sum(sizes) < 12_000_000
