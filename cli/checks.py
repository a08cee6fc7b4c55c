"""Verbs that look and repair nothing: verify, doctor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from compatstore.cli.exit_codes import FOUND
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.tables import Table, table
from compatstore.cli.verb import gallery_argument, verb

if TYPE_CHECKING:
    from click import Command

    from compatstore.verification import Examination, Verification


@verb("verify", example="verify photos.lance")
@gallery_argument
@pass_output
@click.pass_context
def verify(ctx: click.Context, output: Output, gallery: str) -> None:
    """Check that all of a gallery fits together.

    Table, registry, files, tags and indexes are held against each other. Nothing is written; each finding comes with
    its repair. The exit code is 9 where an error or a warning is found, 0 where there is nothing but notes.
    """
    from compatstore.storage.location import locate
    from compatstore.verification import verify_at

    with progress_bars("verify"):
        result = verify_at(locate(gallery))
    output.show(result, _findings)
    ctx.exit(0 if result.clean else FOUND)


@verb("doctor", example="doctor photos.lance")
@click.argument("gallery", required=False)
@pass_output
@click.pass_context
def doctor(ctx: click.Context, output: Output, gallery: str | None) -> None:
    """Look at the environment of a gallery.

    At libraries, processor and memory, and at the place where GALLERY lies. A file of a few bytes is written beside the
    table and removed again, to see whether that can be done. The exit code is 9 where there is a problem.
    """
    from compatstore.verification import doctor as examine

    result = examine(gallery)
    output.show(result, _diagnoses)
    ctx.exit(0 if result.fit else FOUND)


def _findings(result: Verification) -> Iterator[str | Table]:
    yield f"{result.gallery}: {result.rows} items, table version {result.table_version}"
    if result.findings:
        rows = [(f.severity, f.check, f.what, f.repair) for f in result.findings]
        yield table(("severity", "check", "what", "repair"), rows)
    else:
        yield f"nothing wrong: {', '.join(result.checks)}"


def _diagnoses(result: Examination) -> Iterator[str | Table]:
    rows = [(d.level, d.topic, d.what, d.fix) for d in result.diagnoses]
    yield table(("level", "topic", "what", "fix"), rows)


VERBS: tuple[Command, ...] = (verify, doctor)
