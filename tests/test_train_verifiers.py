"""Podium is an environment of `verifiers`: its own command evaluates a model on it.

The library pins SDKs that others here do not, so it lives in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from podium.testing import Refuse, Sent, Upstream
from podium.types import Step, Workflow
from podium.workflow import render
from toy_training import WORKERS, recipe, save_world

HERE = Path(__file__).parents[1]
PLACES = (HERE / ".venv" / "verifiers" / "bin", Path(sys.executable).parent)
COMMAND = next((p / "vf-eval" for p in PLACES if (p / "vf-eval").exists()), None)

pytestmark = pytest.mark.skipif(
    COMMAND is None, reason="the `verifiers` extra is not installed, here or in .venv/verifiers"
)


def asks(worker: str) -> str:
    return render(Workflow((Step(WORKERS.index(worker), "Answer the question."),)))


async def evaluated(folder: Path, upstream: Upstream, **limits: int) -> list[dict[str, Any]]:
    """What the command leaves behind of four questions: one object for each."""
    said = "\n".join(f"{name} = {value}" for name, value in limits.items())
    file = folder / "recipe.toml"
    file.write_text(recipe(save_world(folder), Path("unused"), limits=said))
    flags = {
        "env.taskset.recipe": file,
        "env.taskset.split": "test",
        "client.base-url": f"{upstream.url}/v1",
        "client.api-key-var": "NO_KEY",
        "model": "policy",
        "select.limit": 4,
        "run.name": "run",
        "output-dir": folder,
    }
    given = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    process = await asyncio.create_subprocess_exec(
        str(COMMAND), "podium-conductor", *given, "--no-rich", "--no-push",
        env={**os.environ, "HOME": str(folder), "PRIME_API_KEY": ""},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said_by_it, _ = await process.communicate()
    assert process.returncode == 0, said_by_it.decode()
    lines = (folder / "run" / "traces.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def traces(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [trace for episode in episodes for trace in episode["traces"]]


async def test_drafts_of_a_model_behind_an_endpoint_earn_what_they_earn_in_training(tmp_path: Path):
    drafts = [asks("strong"), asks("weak"), "I would rather not.", asks("strong")]
    async with Upstream(drafts) as upstream:
        found = traces(await evaluated(tmp_path, upstream))
    earned = sorted(trace["rewards"]["conductor"]["score"] for trace in found)
    assert earned == [0.45, 0.5, 1.0, 1.0]
    assert sum(trace["metrics"]["right"] for trace in found) == 2
    asked = [str(sent.body["messages"]) for sent in upstream.requests]
    assert len(asked) == 4
    assert all("What is" in text for text in asked)


async def test_a_second_round_is_a_turn_of_the_same_conversation(tmp_path: Path):
    stands = render(Workflow(()))

    def policy(sent: Sent) -> str:
        said = sent.body["messages"]
        assert isinstance(said, list)
        return asks("strong") if len(said) == 1 else stands

    async with Upstream([policy]) as upstream:
        found = traces(await evaluated(tmp_path, upstream, rounds=2))
    assert [trace["rewards"]["conductor"]["score"] for trace in found] == [1.0] * 4
    assert [trace["metrics"]["rounds"] for trace in found] == [2.0] * 4
    longest = max((sent.body["messages"] for sent in upstream.requests), key=len)
    assert [m["role"] for m in longest] == ["user", "assistant", "user"]
    assert longest[1]["content"] == asks("strong")
    assert ": A" in longest[2]["content"]


async def test_an_endpoint_that_fails_gives_no_reward(tmp_path: Path):
    async with Upstream([Refuse(400, "no such model")]) as upstream:
        episodes = await evaluated(tmp_path, upstream)
    assert not any("conductor" in trace["rewards"] for trace in traces(episodes))
    assert not any(episode["ok"] for episode in episodes)
