"""Real clients, unmodified, against `podium serve` over a scripted upstream.

    python tests/clients/run.py            all of them
    python tests/clients/run.py codex llm  only these

What a client needs is installed for it under .bench-venv: Python packages into `clients`, npm's
into `node`. Nothing leaves this machine but the installing.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from podium.testing import Say, Sent, Upstream  # noqa: E402
from podium.types import Step, ToolCall  # noqa: E402
from serving import config, served, workflow  # noqa: E402

VENV = ROOT / ".bench-venv" / "clients"
NODE = ROOT / ".bench-venv" / "node"
ONE = workflow(Step(0, "Answer the question."))
EDITED = "edited through podium"
PATIENCE = 240


# ── installing ──


def python_with(*packages: str) -> str:
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return str(python)


def npm_with(package: str) -> Path:
    NODE.mkdir(parents=True, exist_ok=True)
    if not (NODE / "node_modules" / package).exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent", package]
        subprocess.run(command, check=True, cwd=NODE)
    return NODE / "node_modules"


async def command(*words: str, cwd: Path = HERE, **env: str) -> str:
    """What a program prints; it fails if the program does."""
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env={**os.environ, **env}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    text = said.decode(errors="replace")
    if process.returncode != 0:
        raise AssertionError(f"exit code {process.returncode}:\n{text[-3000:]}")
    return text


# ── what the upstream says ──


def talkative(sent: Sent) -> Say | str:
    """A worker that uses a tool where it is offered one, and a shape where it is asked for one."""
    messages = sent.body["messages"]
    assert isinstance(messages, list)
    if sent.body.get("response_format"):
        return '{"city": "Paris", "people": 2100000}'
    if sent.body.get("tools") and messages[-1]["role"] != "tool":
        return Say(tool_calls=(ToolCall("up-1", "weather", '{"city": "Paris"}'),))
    if messages[-1]["role"] == "tool":
        return f"It is {messages[-1]['content']} in Paris."
    return Say("Hello from the pool.", pieces=5)


def coder(sent: Sent) -> Say | str:
    """A worker that edits a file with whatever its client offers, and then says so."""
    tools = {t["function"]["name"]: t["function"] for t in sent.body.get("tools") or ()}
    done = any(m["role"] == "tool" for m in sent.body["messages"])
    line = f"printf '%s\\n' '{EDITED}' > note.txt"
    for name in ("exec_command", "shell_command", "shell", "Bash"):
        if name in tools and not done:
            return Say(tool_calls=(ToolCall("up-1", name, json.dumps(_order(tools[name], line))),))
    return "The file is edited." if tools else "A short title"


def _order(tool: dict[str, object], line: str) -> dict[str, object]:
    fields = tool["parameters"]["properties"]
    if "cmd" in fields:
        return {"cmd": line}
    if fields["command"].get("type") == "array":
        return {"command": ["bash", "-lc", line]}
    more = {"description": "Write the note"} if "description" in fields else {}
    return {"command": line, **more}


@asynccontextmanager
async def serving(worker: Callable[[Sent], Say | str]):
    with tempfile.TemporaryDirectory() as place:
        async with (
            Upstream({"plan": [ONE], "": [worker]}) as upstream,
            served(config(Path(place), upstream), upstream) as server,
        ):
            yield server


# ── the clients ──


async def script(name: str, interpreter: str) -> None:
    async with serving(talkative) as server:
        said = await command(interpreter, str(HERE / name), PODIUM=server.url)
        assert said.strip().endswith("ok"), said


async def openai_python() -> None:
    await script("openai_python.py", sys.executable)


async def anthropic_python() -> None:
    await script("anthropic_python.py", sys.executable)


async def openai_node() -> None:
    modules = npm_with("openai")
    target = modules.parent / "openai_node.mjs"
    target.write_text((HERE / "openai_node.mjs").read_text())
    async with serving(talkative) as server:
        said = await command("node", str(target), PODIUM=server.url)
        assert said.strip().endswith("ok"), said


async def langchain() -> None:
    await script("langchain_client.py", python_with("langchain-openai"))


async def litellm() -> None:
    await script("litellm_client.py", python_with("litellm"))


async def llm() -> None:
    python = python_with("llm")
    async with serving(talkative) as server:
        with tempfile.TemporaryDirectory() as home:
            model = {"model_id": "podium", "model_name": "podium", "api_base": server.v1}
            (Path(home) / "extra-openai-models.yaml").write_text(json.dumps([model]))
            env = {"LLM_USER_PATH": home, "OPENAI_API_KEY": "none"}
            program = str(Path(python).parent / "llm")
            for flags in (["--no-stream"], []):
                said = await command(program, "-m", "podium", *flags, "Say hello", **env)
                assert "Hello from the pool." in said, said


async def codex() -> None:
    program = npm_with("@openai/codex") / ".bin" / "codex"
    async with serving(coder) as server:
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as repo:
            await command("git", "init", "-q", cwd=Path(repo))
            settings = {
                "model": "podium",
                "model_provider": "podium",
                "model_providers.podium.name": "Podium",
                "model_providers.podium.base_url": server.v1,
                "model_providers.podium.env_key": "PODIUM_KEY",
                "model_providers.podium.wire_api": "responses",
            }
            flags = [word for k, v in settings.items() for word in ("-c", f"{k}={json.dumps(v)}")]
            await command(
                str(program), "exec", "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox", *flags,
                "Write a note into note.txt.",
                cwd=Path(repo), CODEX_HOME=home, PODIUM_KEY="none",
            )  # fmt: skip
            edited(Path(repo), server.upstream)


async def claude_code() -> None:
    program = npm_with("@anthropic-ai/claude-code") / ".bin" / "claude"
    async with serving(coder) as server:
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as repo:
            await command("git", "init", "-q", cwd=Path(repo))
            names = ("OPUS", "SONNET", "HAIKU")
            await command(
                str(program), "-p", "Write a note into note.txt.", "--model", "podium",
                "--allowedTools", "Bash", "--permission-mode", "acceptEdits",
                cwd=Path(repo), HOME=home, ANTHROPIC_BASE_URL=server.url,
                ANTHROPIC_AUTH_TOKEN="none", ANTHROPIC_SMALL_FAST_MODEL="podium",
                CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_TELEMETRY="1",
                DISABLE_AUTOUPDATER="1",
                **{f"ANTHROPIC_DEFAULT_{name}_MODEL": "podium" for name in names},
            )  # fmt: skip
            edited(Path(repo), server.upstream)


def edited(repo: Path, upstream: Upstream) -> None:
    note = repo / "note.txt"
    assert note.exists() and note.read_text().strip() == EDITED, "the file was not edited"
    assert any(m["role"] == "tool" for m in upstream.requests[-1].body["messages"])


CLIENTS: dict[str, Callable[[], Awaitable[None]]] = {
    "openai-python": openai_python,
    "anthropic-python": anthropic_python,
    "openai-node": openai_node,
    "langchain": langchain,
    "litellm": litellm,
    "llm": llm,
    "codex": codex,
    "claude-code": claude_code,
}


async def attempt(name: str) -> bool:
    try:
        await CLIENTS[name]()
    except (AssertionError, TimeoutError, subprocess.CalledProcessError) as failed:
        print(f"{name}: FAILED\n{failed}", flush=True)
        return False
    print(f"{name}: ok", flush=True)
    return True


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], default=[])
    wanted = parser.parse_args().clients or list(CLIENTS)
    results = [await attempt(name) for name in wanted]
    print(f"{sum(results)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
