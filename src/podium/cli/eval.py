"""`podium eval`: ask strategies the questions of a task, and score what they answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from podium.cli.report import PAGE, show
from podium.cli.view import money
from podium.errors import ConfigError
from podium.eval.cluster import Cluster
from podium.eval.results import Results, Sample
from podium.eval.runner import Estimate, Evaluation, Plan, Watch, here, rescore
from podium.eval.setting import Place
from podium.eval.strategies import parse_specs

REPLAYED_AT_ONCE = 64
ASKED_AT_ONCE = 16


@click.command()
@click.option("-t", "--task", help="A task of `podium tasks`.")
@click.option(
    "-w",
    "--world",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory of recorded answers, in place of a task and workers.",
)
@click.option(
    "-s",
    "--strategy",
    "strategies",
    default="",
    metavar="A,B,C",
    help="What to compare: single:NAME, single:*, best-single, vote:3, "
    "self-consistency:NAME:5, reflect:NAME, moa, random, random-workflow, router:knn, "
    "router:logistic, cascade, conductor, conductor:CHECKPOINT, strategy:NAME, "
    "trinity:FILE, oracle.",
)
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results are kept, and taken up again.",
)
@click.option("--split", default="test", show_default=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="So many questions, drawn.")
@click.option(
    "--samples",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Independent answers to each question.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    help="A local file in the task's published schema.",
)
@click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--concurrency", type=click.IntRange(min=1), help="Questions at a time.")
@click.option(
    "--choose-on",
    default="dev",
    show_default=True,
    metavar="SPLIT",
    help="Where the best workers are chosen.",
)
@click.option("--choose-limit", type=click.IntRange(min=1), help="So many questions of it.")
@click.option(
    "--train-limit",
    default=1000,
    show_default=True,
    type=click.IntRange(min=2),
    help="Questions of train that a router learns from.",
)
@click.option(
    "--embedding",
    default="tfidf",
    show_default=True,
    help="How a router reads questions: tfidf, or a sentence-transformers model.",
)
@click.option(
    "--equal-spend",
    default="",
    metavar="STRATEGY",
    help="Give the others what this one spends per question.",
)
@click.option(
    "--engine",
    default="here",
    show_default=True,
    type=click.Choice(["here", "ray"]),
    help="Where the questions are asked: in this process, or on a Ray cluster.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--retry-unscored", is_flag=True, help="Ask again what could not be scored.")
@click.option("--rescore", is_flag=True, help="Grade what is recorded again; ask nobody.")
@click.option(
    "--ask-above",
    default=1.0,
    show_default=True,
    metavar="DOLLARS",
    help="Ask before spending more than this.",
)
@click.option("-y", "--yes", is_flag=True, help="Spend without asking.")
@click.option("--json", is_flag=True, help="Print the figures as JSON.")
def eval(**flags: Any) -> None:
    """Ask strategies the questions of a task or of a recorded world, and score the answers.

    Everything goes to the directory --out. Killed, it goes on where it stopped when the same
    command is given again; several of them can share the directory. The report is `report.html`
    in it.

    \b
    podium eval --world recorded/mmlu-pro --strategy best-single,vote:3,oracle --out results
    podium eval --task math500 --strategy conductor,best-single --limit 100 --out results
    """
    asyncio.run(_rescore(flags) if flags["rescore"] else _evaluate(flags))


async def _evaluate(flags: dict[str, Any]) -> None:
    specs = parse_specs(flags["strategies"])
    if not specs:
        raise ConfigError("what is to be compared? Give --strategy, such as best-single,vote:3")
    place = Place(flags["task"], flags["world"], flags["data"], flags["config"])
    results = await Results.open(flags["out"])
    try:
        async with place.open(results.store) as setting:
            at_once = REPLAYED_AT_ONCE if setting.replay else ASKED_AT_ONCE
            plan = Plan(
                specs,
                split=flags["split"],
                limit=flags["limit"],
                samples=flags["samples"],
                seed=flags["seed"],
                concurrency=flags["concurrency"] or at_once,
                choose_on=flags["choose_on"],
                choose_limit=flags["choose_limit"],
                train_limit=flags["train_limit"],
                embedding=flags["embedding"],
                equal_spend=flags["equal_spend"],
                retry_unscored=flags["retry_unscored"],
            )
            engine = Cluster(place, results) if flags["engine"] == "ray" else here
            try:
                with Bar(None if flags["yes"] else flags["ask_above"]) as bar:
                    await Evaluation(setting, plan, results, bar.watch, engine).run()
            finally:
                await results.withdraw()  # while the store that both use is open
    finally:
        await results.close()
    await _show(flags)


async def _rescore(flags: dict[str, Any]) -> None:
    results = await Results.read(flags["out"])
    try:
        with Bar(None) as bar:
            changed = await rescore(results, bar.watch)
    finally:
        await results.close()
    click.echo(f"{changed} scores changed", err=True)
    await _show(flags)


async def _show(flags: dict[str, Any]) -> None:
    await show([flags["out"]], as_json=flags["json"], page=flags["out"] / PAGE)


class Bar:
    """Progress on stderr: how far, how right, how dear; and the question before spending."""

    def __init__(self, ask_above: float | None) -> None:
        self._ask_above = ask_above
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self._console,
            refresh_per_second=4,
        )
        self._right = self._usd = 0.0
        self._scored = 0
        self.watch = Watch(self._leg, self._sample, self._approve)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _leg(self, name: str, total: int, done: int) -> None:
        self._right, self._usd, self._scored = 0.0, 0.0, 0
        self._task = self._progress.add_task(name, total=total, completed=done, figures="")

    def _sample(self, sample: Sample) -> None:
        self._usd += sample.usd
        if sample.score is not None:
            self._scored += 1
            self._right += sample.score
        share = f"{self._right / self._scored:.1%}" if self._scored else "–"
        figures = f"{share} right · {money(self._usd)}"
        self._progress.update(self._task, advance=1, figures=figures)

    async def _approve(self, estimate: Estimate) -> bool:
        unknown = f", without {', '.join(estimate.unpriced)}" if estimate.unpriced else ""
        said = f"about {estimate.calls} calls for {money(estimate.usd)}{unknown}"
        if self._ask_above is None or (estimate.usd <= self._ask_above and not estimate.unpriced):
            self._console.print(said, style="dim", highlight=False)
            return True
        if not sys.stdin.isatty():
            raise ConfigError(f"this needs {said}: give --yes to spend it")
        self._progress.stop()
        agreed = click.confirm(f"This needs {said}. Go on?", err=True)
        self._progress.start()
        return agreed
