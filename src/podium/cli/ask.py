"""`podium ask`, `podium plan`, `podium run`: a question, answered, or only planned."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console

from podium.app import MAIN, Podium, find_config, read_workflow
from podium.cli.view import LiveView, summary
from podium.conductor import Conductor, Terms
from podium.errors import ConfigError
from podium.events import Emit, Event
from podium.ledger import Ledger
from podium.planner import FixedPlanner
from podium.serve.retries import Retries
from podium.store import state_of
from podium.types import Limits, Question, Rules, Run
from podium.workflow import parse, render

if TYPE_CHECKING:
    from podium.serve.beside import Show

WEAK = (
    "no podium.toml and no key in use: a Conductor of 135 million parameters leads specialists of "
    "the same size, who know numbers and little else. `podium init` sets better ones up."
)


@dataclass(frozen=True, slots=True)
class Options:
    """The flags that every command which asks has in common."""

    config: Path | None
    strategy: str
    dollars: float | None
    tokens: int | None
    calls: int | None
    seconds: float | None
    steps: int | None
    rounds: int | None
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    images: tuple[str, ...]
    json: bool
    quiet: bool
    open: bool = False

    def limits(self, own: Limits) -> Limits:
        return replace(
            own,
            dollars=self.dollars or own.dollars,
            tokens=self.tokens or own.tokens,
            calls=self.calls or own.calls,
            seconds=self.seconds or own.seconds,
            steps=self.steps or own.steps,
            rounds=self.rounds or own.rounds,
        )

    @property
    def rules(self) -> Rules:
        return Rules(frozenset(self.allow) if self.allow else None, frozenset(self.deny))

    def question(self, words: tuple[str, ...]) -> Question:
        text = sys.stdin.read() if words == ("-",) else " ".join(words)
        if not text.strip():
            raise ConfigError("there is no question: give it as an argument, or - to read stdin")
        return Question(text.strip(), self.images)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    above_zero = click.FloatRange(min=0, min_open=True)
    one_up = click.IntRange(min=1)
    path = click.Path(dir_okay=False, path_type=Path)
    for option in reversed(
        [
            click.option("-c", "--config", type=path, help="Instead of podium.toml."),
            click.option("-s", "--strategy", default=MAIN, show_default=True,
                         help="A strategy of the configuration, or single:WORKER."),
            click.option("--dollars", type=above_zero, help="Never spend more than this."),
            click.option("--tokens", type=one_up, help="Never use more tokens than this."),
            click.option("--calls", type=one_up, help="Never make more calls than this."),
            click.option("--seconds", type=above_zero, help="Answer with what there is by then."),
            click.option("--steps", type=one_up, help="Steps of one workflow, at most."),
            click.option("--rounds", type=one_up, help="Workflows in a row, at most."),
            click.option("--allow", multiple=True, metavar="WORKER", help="Use only these."),
            click.option("--deny", multiple=True, metavar="WORKER", help="Do not use these."),
            click.option("--image", "images", multiple=True, metavar="URL",
                         help="Hand an image to the workers."),
            click.option("--json", is_flag=True, help="Print the whole run as JSON."),
            click.option("-q", "--quiet", is_flag=True, help="The answer alone, no story."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


OPEN = click.option("--open", is_flag=True, help="Show the run on the page as it happens.")


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="QUESTION…")
@OPEN
@_options
@click.pass_context
def ask(ctx: click.Context, /, words: tuple[str, ...], **flags: Any) -> None:
    """Answer a question.

    The Conductor writes a workflow, its workers perform it, and the last step's answer is
    printed. Meanwhile the tree of steps is drawn on stderr, with seconds, tokens and cost.

    \b
    podium "Which weighs more, a litre of oil or of water?"
    podium ask --dollars 0.05 --rounds 2 "Is 2027 prime?"
    podium ask --deny gpt-5 --json "…" > run.json
    podium ask --open "How many primes are there below 100?"
    """
    options = Options(**flags)
    asyncio.run(_ask(ctx, options, options.question(words)))


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="QUESTION…")
@_options
@click.pass_context
def plan(ctx: click.Context, /, words: tuple[str, ...], **flags: Any) -> None:
    """Show the workflow the Conductor would write, and stop there.

    What it prints can be edited and given to `podium run`.
    """
    options = Options(**flags)
    asyncio.run(_plan(ctx, options, options.question(words)))


@click.command()
@click.argument("workflow", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--question", "words", required=True, help="What the workflow is to answer.")
@OPEN
@_options
@click.pass_context
def run(ctx: click.Context, /, workflow: Path, words: str, **flags: Any) -> None:
    """Perform a workflow that you wrote: a file, or - for stdin.

    \b
    model_id = [0, 1]
    subtasks = ["Answer the question.", "Check the answer and correct it."]
    access_list = [[], ["all"]]
    """
    options = Options(**flags)
    asyncio.run(_ask(ctx, options, options.question((words,)), workflow))


async def _ask(
    ctx: click.Context, options: Options, question: Question, workflow: Path | None = None
) -> None:
    async with Podium.open(options.config) as podium:
        strategy = _written(workflow, podium) if workflow else podium.strategy(options.strategy)
        _warn_if_embedded(options)
        async with _page(podium) if options.open else nullcontext() as page:
            with LiveView(Console(stderr=True, quiet=options.quiet or options.json)) as view:
                heard = Retries(_both(view, page) if page else view)
                done = await podium.ask(
                    question,
                    strategy,
                    limits=options.limits(podium.limits(options.strategy)),
                    rules=options.rules,
                    emit=heard,
                    pieces=view.console.is_terminal,
                )
            heard.keep(podium.store)
            _print(done, options)
            if page:
                await page.stay()
    ctx.exit(0 if done.answer is not None else 1)


def _page(podium: Podium) -> AbstractAsyncContextManager[Show]:
    try:
        from podium.serve.beside import shown
    except ImportError as exc:
        raise ConfigError(f"{exc.name} is missing: pip install 'podium[serve]'") from exc
    return shown(podium, lambda said: click.secho(said, err=True, dim=True))


def _both(view: LiveView, page: Show) -> Emit:
    def hear(event: Event) -> None:
        view(event)
        page(event)

    return hear


async def _plan(ctx: click.Context, options: Options, question: Question) -> None:
    async with Podium.open(options.config) as podium:
        strategy = podium.strategy(options.strategy)
        if not isinstance(strategy, Conductor):
            raise ConfigError(f"the strategy {options.strategy!r} does not write workflows")
        limits = options.limits(podium.limits(options.strategy))
        terms = Terms(Ledger(limits, podium.ledger), options.rules)
        planned = await strategy.plan(strategy.stage(question, terms))
    if planned.workflow is None:
        assert planned.failure is not None
        click.echo(f"podium: {planned.failure.message}", err=True)
        ctx.exit(1)
    names = dict(enumerate(strategy.pool.only(options.rules).names))
    if options.json:
        click.echo(orjson.dumps(planned, option=orjson.OPT_INDENT_2))
        return
    click.echo(render(planned.workflow))
    used = sorted({s.worker for s in planned.workflow.steps})
    click.echo(", ".join(f"{i} is {names[i]}" for i in used), err=True)


def _written(path: Path, podium: Podium) -> Conductor:
    if str(path) == "-":
        flow = parse(sys.stdin.read(), workers=len(podium.pool), max_steps=32)
    else:
        flow = read_workflow(path, podium.pool)
    return Conductor(FixedPlanner(flow, podium.pool.names), podium.pool, "written")


def _warn_if_embedded(options: Options) -> None:
    if not options.quiet and options.config is None and find_config() is None:
        click.secho(WEAK, err=True, dim=True)


def _print(done: Run, options: Options) -> None:
    if options.json:
        click.echo(orjson.dumps(as_json(done), option=orjson.OPT_INDENT_2))
        return
    if not options.quiet:
        click.secho(summary(done), err=True, dim=True)
    if done.failure is not None:
        cut_short = "podium: this is the best answer so far: " if done.answer else "podium: "
        click.echo(f"{cut_short}{done.failure.message}", err=True)
    if done.answer is not None:
        click.echo(done.answer)


def as_json(done: Run) -> dict[str, object]:
    """The record, and before it what a reader looks for first."""
    return {
        "answer": done.answer,
        "state": state_of(done),
        "cost": done.cost,
        "unpriced_calls": done.unpriced,
        "usage": done.usage,
        "run": done,
    }
