"""`podium-fast` by a head: read by the embedded model, answered by real HTTP workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("uvicorn")

from openai import AsyncOpenAI

from podium.app import Podium
from podium.errors import ConfigError
from podium.models import SMOLLM2, pull
from podium.testing import Upstream
from podium.trinity import ROLES, Head, LocalStates, Reading
from podium.trinity.prompts import coordinator_messages
from podium.types import Question
from podium.workers.local import LocalModel
from serving import config, served

SUM, LAW = "What is 17 times 23?", "Is an oral contract binding?"


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefers a where a question reads like a sum, and b where it reads like law."""
    file = tmp_path_factory.mktemp("head") / "head.json"
    asyncio.run(_learn(file))
    return file


async def _learn(file: Path) -> None:
    model = LocalModel(await asyncio.to_thread(pull), context=512)
    states = LocalStates(model)
    reading = Reading(SMOLLM2.name, states.digest, width=576)
    maths, law = [
        await states.state(coordinator_messages(Question(q), (), chars=320), reading)
        for q in (SUM, LAW)
    ]
    await model.close()
    apart = tuple(m - other for m, other in zip(maths, law, strict=True))
    middle = sum(d * (m + o) / 2 for d, m, o in zip(apart, maths, law, strict=True))
    scale = sum(m * m for m in maths)
    towards = tuple(d - middle * m / scale for d, m in zip(apart, maths, strict=True))
    Head(reading, ("a", "b"), (towards, tuple(-t for t in towards))).save(file)


def fast(head: Path) -> dict[str, object]:
    return {"name": "podium-fast", "head": str(head)}


async def asked(openai: AsyncOpenAI, question: str, **podium: object) -> str | None:
    reply = await openai.chat.completions.create(
        model="podium-fast",
        messages=[{"role": "user", "content": question}],
        extra_body={"podium": podium},
    )
    return reply.choices[0].message.content


async def test_podium_fast_asks_whom_the_head_prefers_and_passes_by_who_is_denied(
    tmp_path: Path, head: Path
):
    async with Upstream({"a": ["from a"], "b": ["from b"]}) as upstream:
        made = config(tmp_path, upstream, strategy=[fast(head)])
        async with (
            served(made, upstream) as server,
            AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0) as openai,
        ):
            assert "podium-fast" in {m.id async for m in openai.models.list()}
            assert [await asked(openai, q) for q in (SUM, LAW)] == ["from a", "from b"]
            assert await asked(openai, SUM, deny=["a"]) == "from b"
        bodies = [sent.body for sent in upstream.requests]
        assert [m["content"] for body in bodies for m in body["messages"]] == [SUM, LAW, SUM]


async def test_a_head_with_roles_may_take_as_many_rounds_as_it_has_turns(
    tmp_path: Path, head: Path
):
    known = Head.load(head)
    team = Head.zero(known.reading, known.workers, ROLES)
    team.save(tmp_path / "team.json")
    async with Upstream() as upstream:
        made = config(tmp_path, upstream, strategy=[fast(tmp_path / "team.json")])
        async with Podium(made) as podium:
            assert podium.limits("podium-fast").rounds == team.rules.turns
            assert podium.strategy("podium-fast").name == "podium-fast"


async def test_a_head_of_another_models_states_is_refused_when_podium_opens(
    tmp_path: Path, head: Path
):
    known = Head.load(head)
    changed = Reading(SMOLLM2.name, "0" * 64, width=576)
    Head.zero(changed, known.workers).save(tmp_path / "other.json")
    Head.zero(known.reading, ("x", "y")).save(tmp_path / "strangers.json")
    async with Upstream() as upstream:
        for name, complaint in (
            ("other.json", "another model"),
            ("strangers.json", "none is in the pool"),
            ("missing.json", "cannot read the head"),
        ):
            made = config(tmp_path, upstream, strategy=[fast(tmp_path / name)])
            with pytest.raises(ConfigError, match=complaint):
                Podium(made)


async def test_a_strategy_has_a_planner_or_a_head(tmp_path: Path, head: Path):
    async with Upstream() as upstream:
        for section in ({"name": "s"}, fast(head) | {"planner": {"worker": "a"}}):
            with pytest.raises(ValueError, match="either a `planner` or a `head`"):
                config(tmp_path, upstream, strategy=[section])
