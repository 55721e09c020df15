"""The server as a process: signals, several of them on one socket, and the commands for keys."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner
from openai import APIConnectionError, AsyncOpenAI

from podium.cli.keys import keys
from podium.errors import ConfigError
from podium.serve.server import Options, serve
from podium.testing import Say, Upstream

ASK = [{"role": "user", "content": "?"}]
CONFIG = """
store = "{store}"
[planner]
worker = "{name}"
[[worker]]
name = "{name}"
model = "m"
base_url = "{url}/v1"
price = {{ input = 1.0, output = 2.0 }}
"""
COMMAND = "from podium.cli.serve import serve; serve()"


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def open(self, url: str) -> None:
        self.openai = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def ask(self, model: str = "a") -> str:
        reply = await self.openai.chat.completions.create(model=model, messages=ASK)
        return reply.choices[0].message.content

    async def models(self) -> list[str]:
        return [m.id async for m in self.openai.models.list()]

    async def line(self, word: str) -> str:
        """The next line of its log that says this."""
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            while word not in (line := (await self.process.stderr.readline()).decode()):
                assert line, "it ended"
        return line

    def tell(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
async def upstream():
    async with Upstream(["fine"]) as made:
        yield made


@pytest.fixture
def config(tmp_path, upstream):
    def write(name: str = "a", broken: str = ""):
        path = tmp_path / "podium.toml"
        store = tmp_path / "podium.sqlite"
        path.write_text(CONFIG.format(store=store, name=name, url=upstream.url) + broken)
        return path

    return write


@asynccontextmanager
async def running(path, *flags: str):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, "-c", str(path), "--port", "0", *flags,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    made = Process(process)
    try:
        made.open((await made.line("podium serves")).split()[-1])
        yield made
        await made.openai.close()
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), 20)


async def test_a_reload_takes_effect_and_a_wrong_one_does_not(config):
    async with running(config("a")) as server:
        assert await server.ask("a") == "fine"
        config("b")
        server.tell(signal.SIGHUP)
        await server.line("read anew")
        assert "b" in await server.models() and "a" not in await server.models()
        config("c", broken="\nnonsense = true\n")
        server.tell(signal.SIGHUP)
        line = json.loads(await server.line("old configuration stays"))
        assert "nonsense" in line["message"]
        assert await server.ask("b") == "fine"


async def test_a_run_under_way_may_finish_when_the_server_is_told_to_stop(config, upstream):
    gate = asyncio.Event()
    upstream._scripts = {"": [Say("late, and whole", gate=gate)]}
    async with running(config("a")) as server:
        answer = asyncio.create_task(server.ask("a"))
        await upstream.arrived(1)
        server.tell(signal.SIGTERM)
        with pytest.raises(APIConnectionError):
            while True:
                await asyncio.wait_for(server.models(), 5)
        gate.set()
        assert await answer == "late, and whole"
        assert await server.process.wait() in (0, -signal.SIGTERM)


async def test_several_processes_share_one_address_and_the_dead_are_replaced(config):
    async with running(config("a"), "--workers", "2") as server:
        assert await server.ask("a") == "fine"
        children = _children(server.process.pid)
        assert len(children) == 2
        for child in children:
            os.kill(child, signal.SIGKILL)
        for _ in range(100):
            try:
                assert await server.ask("a") == "fine"
                break
            except APIConnectionError:
                await asyncio.sleep(0.1)
        assert set(_children(server.process.pid)).isdisjoint(children)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as found:  # noqa: PTH123
        return [int(child) for child in found.read().split()]


async def test_without_keys_it_listens_on_this_machine_only(config):
    path = config("a")

    def outside() -> None:
        with pytest.raises(ConfigError, match="podium keys new"):
            serve(Options(path, host="0.0.0.0"))

    await asyncio.to_thread(outside)


def test_keys_are_made_listed_limited_and_revoked(tmp_path):
    path = tmp_path / "podium.toml"
    path.write_text(CONFIG.format(store=tmp_path / "s.sqlite", name="a", url="http://127.0.0.1:1"))

    def podium(*arguments: str) -> str:
        done = CliRunner().invoke(keys, [*arguments, "-c", str(path)], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    secret = podium("new", "alice", "--daily", "5", "--model", "podium").strip()
    assert secret.startswith("pk-")
    podium("limit", "alice", "--monthly", "50", "--worker", "a")
    (line,) = podium("list", "--json").splitlines()
    key = json.loads(line)
    assert (key["daily"], key["monthly"], key["models"]) == (5.0, 50.0, ["podium"])
    assert key["workers"] == ["a"] and secret not in line
    podium("limit", "alice", "--free")
    assert json.loads(podium("list", "--json"))["daily"] is None
    podium("revoke", "alice")
    assert "revoked" in podium("list")
