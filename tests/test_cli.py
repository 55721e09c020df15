"""The command line as a user meets it: real processes, a real upstream, exit codes and streams."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from podium import Step, Workflow, render
from podium.store import SqliteStore
from podium.testing import Refuse, Say, Upstream

PLAN = render(Workflow((Step(0, "Try."), Step(1, "Check.", (0,)))))
KEY = "sk-canary-5a1f0c93"


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "none"),
            "PODIUM_TEST_KEY": KEY,
            "COLUMNS": "120",
        }

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from podium.cli import main; main()", *words,
            cwd=self.folder, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe,
        )  # fmt: skip

    async def __call__(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        process = await self.start(*words)
        out, err = await process.communicate(stdin.encode())
        assert KEY not in out.decode() + err.decode()
        assert "Traceback" not in err.decode(), err.decode()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def shell(tmp_path) -> Shell:
    return Shell(tmp_path)


@contextlib.asynccontextmanager
async def upstream(shell: Shell, script):
    async with Upstream(script) as server:
        workers = "".join(
            f"""
            [[worker]]
            name = "{name}"
            model = "{name}"
            base_url = "{server.url}/v1"
            key_env = "PODIUM_TEST_KEY"
            price = {{ input = 1.0, output = 2.0 }}
            retries = 0
            """
            for name in ("a", "b")
        )
        text = f'store = "podium.sqlite"\n[planner]\nworker = "a"\n{workers}'
        (shell.folder / "podium.toml").write_text(text, encoding="utf-8")
        yield server


async def test_the_answer_alone_goes_to_stdout_and_the_story_to_stderr(shell):
    async with upstream(shell, {"a": [PLAN, "first"], "b": ["second"]}):
        code, out, err = await shell("Why is it so?")
    assert (code, out) == (0, "second\n")
    assert "step 0 a: done" in err and "2 steps" in err


async def test_json_is_the_whole_run(shell):
    async with upstream(shell, {"a": [PLAN, "first"], "b": ["second"]}):
        code, out, _ = await shell("ask", "--json", "Why?")
    run = json.loads(out)
    assert code == 0 and run["answer"] == "second" and run["cost"] > 0
    assert run["run"]["rounds"][0]["results"][1]["output"] == "second"


async def test_a_run_can_be_listed_and_shown_with_every_message(shell):
    async with upstream(shell, {"a": [PLAN, "first"], "b": ["second"]}):
        await shell("Why is it so?")
    _, listed, _ = await shell("runs")
    assert "Why is it so?" in listed and "answered" in listed
    id = listed.splitlines()[1].split()[0]
    code, out, err = await shell("show", id[:12], "--messages")
    assert code == 0 and out == "second\n"
    assert "Your subtask:" in err and "Check." in err
    code, _, err = await shell("show", "ffff")
    assert code == 2 and "no run" in err


async def test_a_plan_can_be_printed_and_performed(shell):
    async with upstream(shell, {"a": [PLAN, "first"], "b": ["second"]}):
        code, plan, err = await shell("plan", "Why?")
        assert code == 0 and plan.strip() == PLAN and "1 is b" in err
        code, out, _ = await shell("run", "-", "--question", "Why?", stdin=plan)
        assert (code, out) == (0, "second\n")


async def test_a_failed_run_exits_with_1_and_one_line(shell):
    async with upstream(shell, {"a": [Refuse(401)], "b": ["second"]}):
        code, out, err = await shell("ask", "-q", "Why?")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1 and "401" in err and "PODIUM_TEST_KEY" in err


async def test_an_unreachable_host_is_named(shell):
    async with upstream(shell, {"a": ["x"], "b": ["x"]}) as server:
        address = f"127.0.0.1:{server.port}"
    code, _, err = await shell("ask", "-q", "Why?")
    assert code == 1 and address in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stroe = 'x'", "unknown key `stroe`: did you mean `store`?"),
        ("[planner]\nworker='a'\n[[worker]]\nname='a'\nmodel='m'\nbase_url='http://x/v1'\n"
         "key_env='NOT_THERE'", "NOT_THERE is not set"),
        ("[", "not valid TOML"),
    ],
)  # fmt: skip
async def test_a_wrong_configuration_exits_with_2_and_one_line(shell, text, complaint):
    (shell.folder / "podium.toml").write_text(text, encoding="utf-8")
    code, out, err = await shell("Why?")
    assert (code, out) == (2, "") and complaint in err and len(err.splitlines()) == 1


async def test_a_wrong_flag_exits_with_2(shell):
    code, _, err = await shell("ask", "--dollars", "-3", "Why?")
    assert code == 2 and "--dollars" in err


async def test_a_limit_is_said_and_the_best_answer_is_given(shell):
    async with upstream(shell, {"a": [PLAN, "first"], "b": ["second"]}):
        code, out, err = await shell("ask", "--calls", "2", "Why?")
    assert (code, out) == (0, "first\n") and "best answer so far" in err and "2 calls" in err


async def test_ctrl_c_leaves_no_call_running_and_keeps_the_partial_run(shell):
    script = {"a": [PLAN, "first"], "b": [Say("never", delay=600)]}
    async with upstream(shell, script) as server:
        process = await shell.start("ask", "Why?")
        await server.arrived(3)
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 130
        await server.quiet()
        assert server.aborted == 1
    _, listed, _ = await shell("runs")
    assert "partial" in listed


async def test_a_run_that_was_killed_shows_the_steps_it_had_finished(shell):
    script = {"a": [PLAN, "first"], "b": [Say("never", delay=600)]}
    async with upstream(shell, script) as server:
        process = await shell.start("ask", "Why?")
        await server.arrived(3)
        store = SqliteStore(shell.folder / "podium.sqlite")
        async with asyncio.timeout(5):
            # Another process writes, and nothing tells this one: the plan and step 0 are two rows.
            while len(await store.fetch("SELECT 1 FROM progress")) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await store.close()
        process.kill()
        await process.communicate()
    _, listed, _ = await shell("runs")
    assert "unfinished" in listed
    code, out, err = await shell("show", listed.splitlines()[1].split()[0])
    assert (code, out) == (0, "first\n") and "Interrupted" in err


async def test_init_writes_a_configuration_for_the_keys_it_finds(shell):
    for name in [name for name in shell.env if name.endswith("_API_KEY")]:
        del shell.env[name]
    shell.env["ANTHROPIC_API_KEY"] = KEY
    code, _, err = await shell("init")
    assert code == 0 and "ANTHROPIC_API_KEY" in err
    written = (shell.folder / "podium.toml").read_text(encoding="utf-8")
    assert 'kind = "anthropic"' in written and KEY not in written
    code, _, err = await shell("init")
    assert code == 2 and "--force" in err
    from podium.config import load

    assert load(shell.folder / "podium.toml").planner.worker == "claude"


async def test_init_without_a_key_sets_the_local_model_up(shell):
    for name in [name for name in shell.env if name.endswith("_API_KEY")]:
        del shell.env[name]
    await shell("init")
    from podium.config import load

    assert load(shell.folder / "podium.toml").worker[0].kind == "local"


async def test_pool_check_shows_what_is_wrong_with_each_worker(shell):
    async with upstream(shell, {"a": ["OK"], "b": [Refuse(404)]}):
        code, out, _ = await shell("pool", "check", "--json")
    a, b = json.loads(out)
    assert code == 1 and a["ok"] and not b["ok"] and "404" in b["problem"]


async def test_help_teaches(shell):
    code, out, _ = await shell("--help")
    assert code == 0 and "podium init" in out
    code, out, _ = await shell("ask", "--help")
    assert code == 0 and "--dollars" in out
