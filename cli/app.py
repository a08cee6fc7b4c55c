"""The program `compatstore`: its verbs, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import traceback
from itertools import takewhile
from typing import Any, TextIO

import click
from click.shell_completion import get_completion_class

from compatstore import __version__, next_step
from compatstore.cli import (
    converting,
    creating,
    evaluation,
    items,
    judging,
    mirroring,
    models,
    switching,
    training,
    upgrades,
    upkeep,
    watching,
)
from compatstore.cli.exit_codes import EXPLANATION, STOPPED, UNEXPECTED, exit_code, stopped_code
from compatstore.cli.logs import Log, is_requested
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import shown_examples, verb
from compatstore.errors import CompatStoreError, StorageError
from compatstore.html import visible

VARIABLE = "_COMPATSTORE_COMPLETE"  # of the environment: set by click's own scripts
SHELLS = ("bash", "zsh", "fish")


@verb(
    "completion",
    examples=(
        "completion bash > ~/.local/share/bash-completion/completions/compatstore",
        "completion zsh > ~/.zfunc/_compatstore",
        "completion fish > ~/.config/fish/completions/compatstore.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_output
def completion(output: Output, shell: str) -> None:
    """Print the script that completes words in a shell.

    It completes verbs, methods, options, choices and paths. A new shell reads it from the path in the examples. For the
    current shell: eval "$(compatstore completion bash)".
    """
    made = get_completion_class(shell)
    assert made is not None
    script = made(click.Command("compatstore"), {}, "compatstore", VARIABLE).source()
    output.show({"shell": shell, "script": script}, lambda result: result["script"].splitlines())


# The verbs, grouped by purpose, in the order in which they are used.
VERBS = {
    "Everyday": (
        *(creating.demo, creating.init, creating.adopt, items.add, items.search),
        *(models.register, models.link, upgrades.upgrade, upgrades.pause),
        *(converting.convert, mirroring.mirror, mirroring.sync),
        *(switching.cutover, switching.rollback, switching.abort, switching.retire, watching.status),
    ),
    "Measure": (
        *(evaluation.evaluate, judging.judge, evaluation.report),
        *(watching.history, watching.unbackfillable, watching.metrics),
    ),
    "Maintain": (
        *(upkeep.verify, upkeep.doctor, upkeep.optimize, upkeep.index, models.versions),
        *(items.drop_columns, models.unregister, models.unlink, completion),
    ),
    "Train": (training.train, models.export),
}
FORMER = {"plan": "upgrade --dry-run", "fuse": "evaluate --weight best", "derive": "register --of"}
NOT_WRITTEN = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EBADF)


class App(click.Group):
    """The group of all verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are used, not of the alphabet."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """A verb.

        Raises:
            UsageError: It is the former name of a verb.
        """
        if name in FORMER:
            raise click.UsageError(f"`{name}` is `{FORMER[name]}`.", ctx)
        return super().get_command(ctx, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs, grouped by purpose."""
        for heading, verbs in VERBS.items():
            with formatter.section(heading):
                formatter.write_dl([(str(verb.name), verb.get_short_help_str(1_000)) for verb in verbs])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program; its advice names commands."""
        with next_step.speaking_shell():
            return super().main(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Decide how to speak before anything can go wrong."""
        words = list(takewhile(lambda word: word != "--", args))
        ctx.obj = Output(as_json="--json" in words, log=Log() if is_requested(words) else None)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            ctx.obj.fail_usage(error)
            return ctx.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb, and log its end with `--log json`."""
        output: Output = ctx.obj
        if output.log is None:
            return self._run(ctx, output)
        with output.log.until_end(), output.noting_warnings():
            return self._run(ctx, output)

    def _run(self, ctx: click.Context, output: Output) -> Any:
        """Run a verb; every error that is expected ends here, without a traceback."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # a reader that has gone is noticed here and not when the program ends
        except CompatStoreError as error:
            code = stopped_code(ctx, exit_code(error))
            output.fail(error, code)
        except click.UsageError as error:
            code = error.exit_code
            output.fail_usage(error)
        except BrokenPipeError:
            code = STOPPED + signal.SIGPIPE
            _silence(sys.stdout)
        except KeyboardInterrupt:
            code = stopped_code(ctx, STOPPED + signal.SIGINT)
            output.note("")
            output.note("Stopped.")
        return ctx.exit(code)


EXAMPLES = ("demo", "adopt app-db#notes", "upgrade app-db#notes v2 --encoder model2vec:new-model")


@click.group(
    cls=App,
    epilog=f"{shown_examples(EXAMPLES)}\n\n{EXPLANATION}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="compatstore")
def app() -> None:
    """Change the embedding model of a live retrieval system.

    GALLERY is a path, s3://..., az://..., gs://..., or a LanceDB database and a table: DATABASE#TABLE. ENCODER is
    timm:NAME, torchvision:NAME, open_clip:FOLDER or network:PATH for images; sentence-transformers:FOLDER,
    transformers:FOLDER, fastembed:FOLDER, model2vec:FOLDER or openai:BASE_URL#MODEL for texts; precomputed:PATH; or
    python:package.module:attribute. Settings follow a "?": transformers:FOLDER?pooling=cls&normalise=true.

    Data goes to stdout, progress and notes to stderr; --json prints every result, and every error, as JSON, and
    --log json makes each line of stderr a JSON object.
    If stdout is no terminal, tables are plain text of any width; NO_COLOR removes the styles on a terminal too.
    """


for verbs in VERBS.values():
    for command in verbs:
        app.add_command(command)


# Allocations before the garbage collector runs: with Python's 700 a tenth of a command's time goes to collections while
# modules load, which make no garbage.
FEW_COLLECTIONS = 50_000


def main() -> None:
    """Run the program."""
    gc.set_threshold(FEW_COLLECTIONS)
    completing = VARIABLE in os.environ  # by a shell, whose prompt must receive completions only
    if completing:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (until the program ends)
    # A stream that was closed before the program began is None.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a character that the encoding lacks must not end a command
    try:
        app(prog_name="compatstore")
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in NOT_WRITTEN:
            _silence(sys.stdout)
            failed = StorageError(
                "write the output", expected="an output that takes it", found=os.strerror(error.errno)
            )
            click.echo(f"Error: {failed}", err=True)
            sys.exit(exit_code(failed))
        # The traceback holds text of other libraries.
        for line in traceback.format_exc().splitlines():
            click.echo(visible(line), err=True)
        sys.exit(UNEXPECTED)


def _silence(stream: TextIO) -> None:
    """Discard the unwritten rest of a stream that has no reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
