"""The command line: thin. Parse flags, call one function, print.

The answer goes to stdout, the story to stderr. Exit codes: 0 answered, 1 failed, 2 something to
fix in the configuration or the command, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys

import click

from podium.errors import ConfigError, PodiumError

COMMANDS = {
    "ask": ("podium.cli.ask", 'Answer a question. `podium "…"` means this.'),
    "plan": ("podium.cli.ask", "Show the workflow the Conductor would write, and stop."),
    "run": ("podium.cli.ask", "Perform a workflow that you wrote."),
    "init": ("podium.cli.init", "Write a podium.toml for the keys found in the environment."),
    "pool": ("podium.cli.pool", "Reach each worker: latency, price, what is wrong."),
    "runs": ("podium.cli.runs", "List what was asked before."),
    "show": ("podium.cli.runs", "Show one run again, with every message on request."),
    "tasks": ("podium.cli.tasks", "The benchmarks there are; check one by its own answers."),
    "eval": ("podium.cli.eval", "Ask strategies the questions of a task, and score the answers."),
    "report": ("podium.cli.report", "What evaluations found: a table, JSON, and a page."),
    "train": ("podium.cli.train", "Train a Conductor, or evolve a TRINITY head, by a recipe."),
    "serve": ("podium.cli.serve", "One endpoint in front of the pool, for any client."),
    "keys": ("podium.cli.keys", "Keys of the server: made, listed, limited, revoked."),
    "models": ("podium.cli.models", "The models that run on this machine."),
}
"""Where each command lives. A command's module is imported only when it is called."""


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        found: click.Command = vars(module)[cmd_name]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A first word that is no command begins a question."""
        if args and args[0] not in COMMANDS:
            args = ["ask", *args]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Try: podium init; podium pool check; podium "Which is larger, 9.9 or 9.11?"',
)
@click.version_option(package_name="podium")
def cli() -> None:
    """A small language model, the Conductor, manages bigger ones.

    It writes a workflow for each question: which workers to ask, what to ask of each, and who may
    see whose work. Podium performs it and returns the last step's answer. Without a podium.toml
    and without a key it uses a small model that runs on this machine.
    """


def main() -> None:
    """The entry point: every expected failure becomes one line and an exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("podium: interrupted", err=True)
        code = 130
    except ConfigError as exc:
        click.echo(f"podium: {exc}", err=True)
        code = 2
    except PodiumError as exc:
        click.echo(f"podium: {exc}", err=True)
        code = 1
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
