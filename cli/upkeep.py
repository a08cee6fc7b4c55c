"""Verbs that look after a gallery: verify, doctor, optimize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from compatstore.cli.exit_codes import FOUND
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.verb import gallery_argument, open_gallery, trust_code_option, verb
from compatstore.shown import Table, table

if TYPE_CHECKING:
    from compatstore.upkeep.optimize import Optimized
    from compatstore.verification import Examination, Verification


@verb(
    "verify",
    examples=(
        "verify photos.lance",
        "verify app-db#photos --json",
        "verify photos.lance --embed --trust-code",
    ),
)
@gallery_argument
@click.option("--embed", is_flag=True, help="Embed a few items of each version again, and compare the vectors.")
@trust_code_option
@pass_output
@click.pass_context
def verify(ctx: click.Context, output: Output, gallery: str, embed: bool, trust_code: bool) -> None:
    """Check that all of a gallery fits together.

    Table, registry, files, tags and indexes are held against each other. Nothing is written; each finding comes with
    its repair. The exit code is 9 where an error or a warning is found, 0 where there is nothing but notes.
    """
    from compatstore.storage.location import locate
    from compatstore.verification import verify_at

    with progress_bars("verify"):
        if embed:
            result = open_gallery(gallery, trust_code=trust_code).maintenance.verify(embed=True)
        else:
            result = verify_at(locate(gallery))
    output.show(result, _findings)
    ctx.exit(0 if result.clean else FOUND)


@verb(
    "doctor",
    examples=(
        "doctor",
        "doctor photos.lance",
        "doctor app-db#photos --source path",
    ),
)
@click.argument("gallery", required=False)
@click.option("--vector", metavar="COLUMN", help="Column of the vectors; all columns of lists of numbers by default.")
@click.option("--id", metavar="COLUMN", help="Column of the ids; one of a usual name by default.")
@click.option("--source", metavar="COLUMN", help="Column to embed from: path, URI or text.")
@pass_output
@click.pass_context
def doctor(
    ctx: click.Context,
    output: Output,
    gallery: str | None,
    vector: str | None,
    id: str | None,
    source: str | None,
) -> None:
    """Look at an environment, or at vectors before an adoption.

    At libraries and memory, and at the place where GALLERY lies: a file of a few bytes is written beside the
    table and removed again, to see whether that can be done. A table that is no gallery yet, or a Parquet, Arrow,
    Feather, npz or npy file, is only read: are vectors zero, not finite, not of unit length, repeated or of several
    lengths, are sources missing, are there signs of two models in one column, and what would adopt do? The options name
    its columns. The exit code is 9 where there is a problem.
    """
    from compatstore.verification import doctor as examine

    with progress_bars("doctor") as bars:
        result = examine(gallery, vector=vector, id=id, source=source, progress=onto(bars))
    output.show(result, _diagnoses)
    ctx.exit(0 if result.fit else FOUND)


@verb(
    "optimize",
    examples=(
        "optimize photos.lance --dry-run",
        "optimize photos.lance",
        "optimize app-db#photos --adopted --grace 3600",
    ),
)
@gallery_argument
@click.option("--dry-run", is_flag=True, help="Say what there is to do, and do nothing.")
@click.option("--adopted", is_flag=True, help="Do it to the table of an app too, its old versions included.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a table version that was superseded stays for those who read it: 5 by default, and 7 days in the "
    "table of an app.",
)
@pass_output
def optimize(output: Output, gallery: str, dry_run: bool, adopted: bool, grace: float | None) -> None:
    """Merge fragments and indexes; remove what nothing needs.

    Refused while somebody works on an upgrade or an index; safe beside apps that search and write. What tags pin is
    kept. Galleries of our own merge small fragments by themselves; this does the rest at once.
    """
    opened = open_gallery(gallery, trust_code=False)
    with progress_bars("optimize"):
        result = opened.maintenance.optimize(adopted=adopted, grace=grace, dry_run=dry_run)
    output.show(result, _optimized)


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


def _optimized(result: Optimized) -> Iterator[str | Table]:
    """What an optimisation did, or would do."""
    names = ("fragments", "index parts", "table versions", "files", "MB")
    before, after = (
        (size.fragments, size.index_parts, size.versions, size.files, f"{size.bytes / 1e6:,.1f}")
        for size in (result.before, result.after)
    )
    yield table(("", "before", "would be" if result.dry_run else "after"), list(zip(names, before, after, strict=True)))
    verb = "would be removed" if result.dry_run else "removed"
    for count, what in (
        (len(result.dropped), f"columns that no version has: {', '.join(result.dropped)}"),
        (result.orphans, "files of the table that no version names"),
        (len(result.leftovers), "files beside the table that nothing needs"),
    ):
        if count:
            yield f"{verb}: {count} {what}"
    if result.tags:
        yield f"kept: the table versions of {', '.join(result.tags)}"
    if result.left_alone:
        yield f"left alone: {result.left_alone}"
