"""`podium init`: a commented podium.toml for the keys that are found in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from podium.config import FILE
from podium.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a key leads, and two models worth starting with: a strong one and a cheap one."""

    key_env: str
    kind: str
    base_url: str
    models: tuple[tuple[str, str, str], ...]
    """Name in the pool, model, description."""


PROVIDERS = (
    Provider("OPENAI_API_KEY", "openai", "https://api.openai.com/v1", (
        ("gpt", "gpt-5", "strong all-round reasoning and code"),
        ("gpt-mini", "gpt-5-mini", "quick and cheap, good at plain questions"),
    )),
    Provider("ANTHROPIC_API_KEY", "anthropic", "https://api.anthropic.com", (
        ("claude", "claude-sonnet-4-5", "strong at code, writing and careful checking"),
        ("claude-haiku", "claude-haiku-4-5", "quick and cheap"),
    )),
    Provider("GEMINI_API_KEY", "gemini", "https://generativelanguage.googleapis.com/v1beta", (
        ("gemini", "gemini-2.5-pro", "strong at mathematics, science and long documents"),
        ("gemini-flash", "gemini-2.5-flash", "quick and cheap"),
    )),
    Provider("OPENROUTER_API_KEY", "openai", "https://openrouter.ai/api/v1", (
        ("deepseek", "deepseek/deepseek-chat", "cheap, good at mathematics and code"),
        ("qwen", "qwen/qwen3-235b-a22b", "open model, good at reasoning"),
    )),
    Provider("GROQ_API_KEY", "openai", "https://api.groq.com/openai/v1", (
        ("llama", "llama-3.3-70b-versatile", "open model, very quick"),
    )),
    Provider("TOGETHER_API_KEY", "openai", "https://api.together.xyz/v1", (
        ("together-llama", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "open model"),
    )),
    Provider("DEEPSEEK_API_KEY", "openai", "https://api.deepseek.com/v1", (
        ("deepseek-chat", "deepseek-chat", "cheap, good at mathematics and code"),
    )),
    Provider("MISTRAL_API_KEY", "openai", "https://api.mistral.ai/v1", (
        ("mistral", "mistral-large-latest", "good at European languages and code"),
    )),
)  # fmt: skip

HEAD = """\
# Podium's configuration. A key that is misspelt here is an error that names it.
# `podium pool check` reaches each worker; `podium "…"` asks.

# Where runs and recordings are kept.
# store = "~/.local/share/podium/podium.sqlite"

# record: keep every worker call; read-through: and reuse it; replay: make none at all.
recording = "off"

[limits]            # of one run; the answer so far is returned when one is reached
dollars = 0.50
rounds = 1          # 2 or more: the Conductor may look at the answer and correct it
steps = 5

[process]           # of everything that one process spends
dollars = 5.00

[planner]           # who writes the workflows
worker = "{planner}"
show = "cards"      # or "numbers": hide who is who, as in the paper
"""

WORKER = """
[[worker]]
name = "{name}"
kind = "{kind}"
model = "{model}"
base_url = "{base_url}"
key_env = "{key_env}"
description = "{description}"
# price = {{ input = 1.25, output = 10.0 }}   # dollars per million tokens, where none is known
# effort = "low"                            # reasoning effort, or a thinking budget in tokens
"""

LOCAL = """
# A small model that runs here, without a key. `podium models pull` fetches it.
[[worker]]
name = "smol"
kind = "local"
model = "smollm2-135m-instruct"
description = "very small, runs on this machine, free"
max_tokens = 256
"""

PROGRAMS = """
# Workers that are programs: the plurality of the answers a step may see, and Python in a sandbox.
[[worker]]
name = "vote"
kind = "vote"

[[worker]]
name = "python"
kind = "python"
"""


@click.command()
@click.option("--force", is_flag=True, help="Replace a podium.toml that is there.")
@click.option("-o", "--output", default=FILE, type=click.Path(dir_okay=False, path_type=Path))
def init(force: bool, output: Path) -> None:
    """Write a commented podium.toml for the keys found in the environment."""
    if output.exists() and not force:
        raise ConfigError(f"{output} is there already: --force replaces it")
    found = [p for p in PROVIDERS if os.environ.get(p.key_env)]
    output.write_text(configuration(found), encoding="utf-8")
    where = ", ".join(p.key_env for p in found) or "no key, so a small local model works"
    click.echo(f"wrote {output}: {where}", err=True)


def configuration(found: list[Provider]) -> str:
    """The file's text for these providers; a local model works where there is none."""
    workers = [
        WORKER.format(
            name=name, kind=p.kind, model=model, base_url=p.base_url, key_env=p.key_env,
            description=description,
        )
        for p in found
        for name, model, description in p.models
    ]  # fmt: skip
    planner = found[0].models[0][0] if found else "smol"
    head = HEAD.format(planner=planner)
    if not found:
        head += "held = true         # a grammar keeps a small model to the workflow language\n"
        head += 'prompt = "compact"\n'
        workers = [LOCAL]
    return head + "".join(workers) + PROGRAMS
