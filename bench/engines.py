"""One engine, one shape, one concurrency, in a process of its own: what `bench/overhead.py` runs.

    python bench/engines.py ENGINE chain|fan CONCURRENCY WORKFLOWS URL

`chain` is three calls one after another, `fan` three at once and then one that reads them. Each
engine is written the way its own documentation shows. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Solve = Callable[[str], Awaitable[str]]
SUBTASKS = ("Plan the work.", "Carry it out.", "Check it and give the answer.")
STEPS = {"chain": 3, "fan": 4}


async def hand(shape: str, url: str) -> Solve:
    """The floor: asyncio, aiohttp and orjson, and nothing else."""
    import aiohttp
    import orjson

    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def call(content: str) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 256}
        headers = {"content-type": "application/json"}
        post = session.post(f"{url}/chat/completions", data=orjson.dumps(body), headers=headers)
        async with post as response:
            reply = orjson.loads(await response.read())
        return str(reply["choices"][0]["message"]["content"])

    async def chain(question: str) -> str:
        output = ""
        for subtask in SUBTASKS:
            output = await call(f"{question}\n{output}\n{subtask}")
        return output

    async def fan(question: str) -> str:
        outputs = await asyncio.gather(*(call(f"{question}\n{s}") for s in SUBTASKS))
        return await call("\n".join([question, *outputs, "Put it together."]))

    return chain if shape == "chain" else fan


async def podium(shape: str, url: str) -> Solve:
    """Podium as `podium ask` runs it: recording on, every run and step stored."""
    from podium import Conductor, FixedPlanner, Step, Workflow
    from podium.app import Podium
    from podium.config import Config, PlannerSection, WorkerSection

    kept = Path(tempfile.mkdtemp()) / "podium.sqlite"
    worker = WorkerSection(
        name="w", model="m", base_url=url, max_tokens=256, price={"input": 1.0, "output": 2.0}
    )
    opened = Podium(
        Config(
            store=str(kept),
            recording="record",
            worker=(worker,),
            planner=PlannerSection(worker="w"),
        )
    )
    flows = {
        "chain": tuple(Step(0, s, (i - 1,) if i else ()) for i, s in enumerate(SUBTASKS)),
        "fan": (*(Step(0, s) for s in SUBTASKS), Step(0, "Put it together.", "all")),
    }
    conductor = Conductor(FixedPlanner(Workflow(flows[shape])), opened.pool)

    async def solve(question: str) -> str:
        run = await opened.ask(question, conductor)
        assert run.answer is not None, run.failure
        return run.answer

    return solve


async def langgraph(shape: str, url: str) -> Solve:
    import operator
    from typing import Annotated, TypedDict

    from langgraph.graph import END, START, StateGraph
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=2)

    fields = {"question": str, "outputs": Annotated[list[str], operator.add]}
    schema: Any = TypedDict("State", fields)

    def node(subtask: str) -> Any:
        async def run(state: Any) -> dict[str, Any]:
            content = "\n".join([state["question"], *state["outputs"], subtask])
            reply = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": content}], max_tokens=256
            )
            return {"outputs": [reply.choices[0].message.content]}

        return run

    graph: Any = StateGraph(schema)
    names = [f"step{i}" for i in range(len(SUBTASKS))]
    for name, subtask in zip(names, SUBTASKS, strict=True):
        graph.add_node(name, node(subtask))
    if shape == "chain":
        for before, after in zip([START, *names], [*names, END], strict=True):
            graph.add_edge(before, after)
    else:
        graph.add_node("merge", node("Put it together."))
        for name in names:
            graph.add_edge(START, name)
        graph.add_edge(names, "merge")
        graph.add_edge("merge", END)
    app = graph.compile()

    async def solve(question: str) -> str:
        state = await app.ainvoke({"question": question, "outputs": []})
        return str(state["outputs"][-1])

    return solve


async def agents(shape: str, url: str) -> Solve:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(
        model="m", openai_client=AsyncOpenAI(base_url=url, api_key="none")
    )
    team = [Agent(name=f"a{i}", instructions=s, model=model) for i, s in enumerate(SUBTASKS)]
    merger = Agent(name="merge", instructions="Put it together.", model=model)

    async def call(agent: Any, content: str) -> str:
        return str((await Runner.run(agent, content)).final_output)

    return _compose(
        shape, [lambda text, a=a: call(a, text) for a in team], lambda t: call(merger, t)
    )


async def pydantic_ai(shape: str, url: str) -> Solve:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none"))
    team: list[Any] = [Agent(model, instructions=s) for s in SUBTASKS]
    merger: Any = Agent(model, instructions="Put it together.")

    async def call(agent: Any, content: str) -> str:
        return str((await agent.run(content)).output)

    return _compose(
        shape, [lambda text, a=a: call(a, text) for a in team], lambda t: call(merger, t)
    )


def _compose(shape: str, team: list[Solve], merge: Solve) -> Solve:
    async def chain(question: str) -> str:
        output = ""
        for call in team:
            output = await call(f"{question}\n{output}")
        return output

    async def fan(question: str) -> str:
        outputs = await asyncio.gather(*(call(question) for call in team))
        return await merge("\n".join([question, *outputs]))

    return chain if shape == "chain" else fan


ENGINES = {
    "hand": hand,
    "podium": podium,
    "langgraph": langgraph,
    "agents": agents,
    "pydantic_ai": pydantic_ai,
}


async def measure(solve: Solve, concurrency: int, workflows: int) -> dict[str, float]:
    """Seconds of each workflow, and this process's CPU for all of them, after a warm-up."""
    seconds: list[float] = []
    errors = 0
    left = iter(range(workflows))

    async def one(number: int) -> None:
        nonlocal errors
        started = time.perf_counter()
        try:
            await solve(f"Question {number} of {time.time_ns()}?")
        except Exception as error:  # noqa: BLE001 - an engine that breaks under load is a result
            errors += 1
            print(f"error: {error!r}"[:300], file=sys.stderr)
        seconds.append(time.perf_counter() - started)

    async def lane() -> None:
        for number in left:
            await one(number)

    await asyncio.gather(*(one(-i) for i in range(min(concurrency, 32))))
    seconds.clear()
    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(concurrency)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    seconds.sort()
    return {
        "p50_ms": 1e3 * seconds[len(seconds) // 2],
        "p99_ms": 1e3 * seconds[int(len(seconds) * 0.99)],
        "cpu_s": cpu,
        "wall_s": wall,
        "errors": errors,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def main() -> None:
    engine, shape, concurrency, workflows, url = sys.argv[1:]
    solve = await ENGINES[engine](shape, url)
    found = await measure(solve, int(concurrency), int(workflows))
    steps = STEPS[shape] * int(workflows)
    found["cpu_ms_per_step"] = 1e3 * found["cpu_s"] / steps
    found["steps_per_cpu_s"] = steps / found["cpu_s"]
    found["steps_per_s"] = steps / found["wall_s"]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.new_event_loop().run_until_complete(main())
    os._exit(0)  # some engines leave clients open that complain on the way out
