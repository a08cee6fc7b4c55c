"""The program `compatstore`: its verbs, and the one place where errors become exit codes."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import click

from compatstore import __version__
from compatstore.cli import (
    checks,
    demo,
    evaluation,
    items,
    models,
    reporting,
    switching,
    training,
    upgrades,
    upkeep,
    watching,
)
from compatstore.cli.exit_codes import EXPLANATION, STOPPED, exit_code
from compatstore.cli.output import Output
from compatstore.cli.stopping import stopped_code
from compatstore.errors import CompatStoreError


class App(click.Group):
    """The group of all verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are used, not of the alphabet."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Decide how to speak before anything can go wrong."""
        ctx.obj = Output(as_json="--json" in takewhile(lambda word: word != "--", args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; every error that is expected ends here, without a traceback."""
        output: Output = ctx.obj
        try:
            return super().invoke(ctx)
        except CompatStoreError as error:
            code = stopped_code(ctx, exit_code(error))
            output.fail(error, code)
        except click.UsageError as error:
            if not output.as_json:
                raise
            code = error.exit_code
            output.fail_usage(error)
        except KeyboardInterrupt:
            code = STOPPED + 2
            output.note("\nStopped.")
        return ctx.exit(code)


@click.group(cls=App, epilog=EXPLANATION, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="compatstore")
def app() -> None:
    """Change the embedding model of a live retrieval system.

    GALLERY is a path, s3://..., gs://..., or a LanceDB database with a table: DATABASE#TABLE. ENCODER is timm:NAME,
    torchvision:NAME, network:PATH, precomputed:PATH or python:package.module:attribute.

    Data goes to stdout, progress and notes to stderr; --json prints every result, and every error, as JSON.
    """


for part in (demo, items, models, training, evaluation, upgrades, switching, watching, reporting, checks, upkeep):
    for command in part.VERBS:
        app.add_command(command)


def main() -> None:
    """Run the program."""
    app(prog_name="compatstore")
