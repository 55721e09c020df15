"""The same weights read by llama.cpp and by transformers: the same decision."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from podium.models import SMOLLM2, pull
from podium.train.trinity import reader
from podium.train.trinity_recipe import ModelSection
from podium.trinity import Coordinator, Head, LocalStates, Reading, TransformersStates
from podium.trinity.prompts import coordinator_messages
from podium.trinity.roles import Talk
from podium.types import Question

SUMS = ("What is 17 times 23?", "Add 48 and 21.")
LAWS = ("Is an oral contract binding?", "May a landlord enter without notice?")


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def apart(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


async def test_both_engines_hold_the_same_states_and_come_to_the_same_decisions():
    await asyncio.to_thread(pull)
    local, torch = (reader(ModelSection(engine=e)) for e in ("llama.cpp", "transformers"))
    assert isinstance(local, LocalStates) and isinstance(torch, TransformersStates)
    assert local.digest == torch.digest
    reading = Reading(SMOLLM2.name, local.digest, width=576)
    try:
        read = [
            [
                await engine.state(coordinator_messages(Question(q), (), chars=320), reading)
                for q in (*SUMS, *LAWS)
            ]
            for engine in (local, torch)
        ]
        assert min(map(cosine, *read)) > 0.99
        # States of all questions are nearly parallel: what tells them apart must agree as well.
        ours, theirs = ([apart(states[i], states[2]) for i in (0, 1)] for states in read)
        assert min(map(cosine, ours, theirs)) > 0.9
        towards = apart(read[1][0], read[1][2])
        head = Head(reading, ("sums", "laws"), (towards, tuple(-x for x in towards)))
        chances = [
            [
                (await Coordinator(head, engine).decide(Question(q), Talk(), head.workers, ()))
                for q in (*SUMS, *LAWS)
            ]
            for engine in (local, torch)
        ]
        assert [d.worker for d in chances[0]] == [d.worker for d in chances[1]]
    finally:
        await local.model.close()
