"""Verbs that look after a gallery: verify, doctor, optimize, and index create, status, refresh, drop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli.exit_codes import FOUND, stop_on_signals
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.verb import gallery_verb, open_gallery, shown_examples, trust_code_option, verb
from compatstore.shown import Table, table

if TYPE_CHECKING:
    from compatstore.storage.index_status import IndexStatus
    from compatstore.storage.recall import RefreshedIndex
    from compatstore.upkeep.optimize import Optimized
    from compatstore.verification import Verification


@gallery_verb(
    "verify", "verify photos.lance", "verify app-db#photos --json", "verify photos.lance --embed --trust-code"
)
@click.option("--embed", is_flag=True, help="Embed a few items of each version again, and compare the vectors.")
@trust_code_option
def verify(output: Output, gallery: str, embed: bool, trust_code: bool) -> int:
    """Check that all of a gallery fits together.

    Table, registry, files, tags and indexes are held against each other. Nothing is written; each finding comes with
    its repair. The exit code is 9 if an error or a warning is found, 0 if there are only notes.
    """
    from compatstore.storage.location import locate
    from compatstore.verification import verify_at

    with progress_bars("verify"):
        if embed:
            result = open_gallery(gallery, trust_code=trust_code).maintenance.verify(embed=True)
        else:
            result = verify_at(locate(gallery))
    output.show(result, _findings)
    return 0 if result.clean else FOUND


@verb("doctor", examples=("doctor", "doctor photos.lance", "doctor app-db#photos --source path"))
@click.argument("gallery", required=False)
@click.option("--vector", metavar="COLUMN", help="Column of the vectors; all columns of lists of numbers by default.")
@click.option("--id", metavar="COLUMN", help="Column of the ids; one of a usual name by default.")
@click.option("--source", metavar="COLUMN", help="Column to embed from: path, URI or text.")
@pass_output
def doctor(output: Output, /, gallery: str | None, **columns: Any) -> int:
    """Examine an environment, or vectors before an adoption.

    The checks are of libraries, memory and the storage of GALLERY: a file of a few bytes is written beside the
    table and removed again. A table that is no gallery yet, or a Parquet, Arrow,
    Feather, npz or npy file, is only read: its vectors are checked for zeros, values that are not finite, lengths,
    repeats, missing sources and signs of two models in one column, and the adoption is previewed. The options name
    its columns. The exit code is 9 if there is a problem.
    """
    from compatstore.verification import doctor as examine

    with progress_bars("doctor") as bars:
        result = examine(gallery, **columns, progress=onto(bars))
    rows = [(found.level, found.topic, found.what, found.fix) for found in result.diagnoses]
    output.show(result, lambda _: [table(("level", "topic", "what", "fix"), rows)])
    return 0 if result.fit else FOUND


@gallery_verb(
    "optimize",
    "optimize photos.lance --dry-run",
    "optimize photos.lance",
    "optimize app-db#photos --adopted --grace 3600",
)
@click.option("--dry-run", is_flag=True, help="Say what there is to do, and do nothing.")
@click.option("--adopted", is_flag=True, help="Do it to the table of an app too, its old versions included.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a table version that was superseded stays for those who read it: 5 by default, and 7 days in the "
    "table of an app.",
)
def optimize(output: Output, gallery: str, dry_run: bool, adopted: bool, grace: float | None) -> None:
    """Merge fragments and indexes; remove what nothing needs.

    Refused while a process works on an upgrade or an index; safe beside apps that search and write. What tags pin is
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


def _optimized(result: Optimized) -> Iterator[str | Table]:
    """Result of an optimisation, or its plan."""
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


KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
version_argument = click.argument("version", required=False)


@click.group("index", epilog=shown_examples(("index create photos.lance", "index status photos.lance")))
def index() -> None:
    """Index the vectors of a version, and look after the index.

    VERSION is the active one by default.
    """


@gallery_verb("create", "index create photos.lance", "index create photos.lance v1 --kind IVF_PQ --num-partitions 256")
@version_argument
@click.option("--kind", type=click.Choice(KINDS), default="IVF_PQ", show_default=True, help="Kind of the index.")
@click.option(
    "--num-partitions",
    type=click.IntRange(min=1),
    help="Cells; the square root of the number of vectors by default, 4,096 at the most.",
)
@click.option(
    "--num-sub-vectors",
    type=click.IntRange(min=1),
    help="Parts of product quantisation; a part for every 8 values by default.",
)
def create(output: Output, /, gallery: str, version: str | None, **options: Any) -> None:
    """Build the index of VERSION, or replace the one that there is.

    Its recall is measured with items of the gallery, and searches use the cheapest settings by which that is 97 % of
    the 10 nearest. Ctrl-C ends the build; one of more than 256 cells is finished first.
    """
    found = open_gallery(gallery, trust_code=False).maintenance.index(version)
    with progress_bars("index create") as bars, stop_on_signals() as should_stop:
        made = found.create(**options, progress=onto(bars), should_stop=should_stop)
    output.show(made, lambda status: _statuses([status]))


@gallery_verb("status", "index status photos.lance", "index status photos.lance v1 --json")
@version_argument
def status(output: Output, gallery: str, version: str | None) -> None:
    """Show the index of VERSION, or of every version that has vectors.

    The kind is none if searches compare all of its vectors for lack of an index. Recall is the share of the 10
    nearest items that searches found at the last measurement; compared is the approximate share of the indexed vectors
    that a search compares now.
    """
    opened = open_gallery(gallery, trust_code=False)
    live = [found.name for found in opened.status().versions if found.state in ("active", "live")]
    output.show([opened.maintenance.index(name).status() for name in ([version] if version else live)], _statuses)


@gallery_verb("refresh", "index refresh photos.lance v1")
@version_argument
def refresh(output: Output, gallery: str, version: str | None) -> None:
    """Add later vectors to the index of VERSION, and measure it.

    It is trained again if its recall is below 0.95 with the settings that searches use, or if a search compares
    1.5 times as many of the vectors as at the last measurement.
    """
    found = open_gallery(gallery, trust_code=False).maintenance.index(version)
    with progress_bars("index refresh") as bars, stop_on_signals() as should_stop:
        done = found.refresh(progress=onto(bars), should_stop=should_stop)
    output.show(done, _refreshed)


@gallery_verb("drop", "index drop photos.lance v1", "index drop app-db#photos v1 --adopted")
@version_argument
@click.option("--adopted", is_flag=True, help="Drop it from the column of an app too, whose index it may be.")
def drop(output: Output, gallery: str, version: str | None, adopted: bool) -> None:
    """Drop the index of VERSION; searches compare every vector then."""
    result = open_gallery(gallery, trust_code=False).maintenance.index(version).drop(adopted=adopted)
    message = f"dropped: {', '.join(result.dropped)}" if result.dropped else f"{result.version} has no index"
    output.show(result, lambda _: [message])


for command in (create, status, refresh, drop):
    index.add_command(command)


def _statuses(result: Sequence[IndexStatus]) -> Iterator[str | Table]:
    """Indexes of versions."""
    columns = ("version", "kind", "cells", "deltas", "MB", "indexed", "late", "compared", "recall", "measured")
    rows = [
        (
            *(found.version, found.kind or "none", found.cells, found.deltas, f"{found.bytes / 1e6:,.1f}"),
            *(found.indexed_rows, found.unindexed_rows, _form(found.compared, ".1%"), _form(found.recall, ".3f")),
            found.recall_at[:10],
        )
        for found in result
    ]
    yield table(columns, rows)
    for found in result:
        if found.settings is not None:
            yield f"searches of {found.version} use {found.settings}"


def _refreshed(result: RefreshedIndex) -> Iterator[str | Table]:
    """Result of a refresh."""
    yield f"{result.added} vectors came into the index of {result.status.version}"
    if result.retrained:
        yield f"it was trained again: {result.retrained}"
    yield from _statuses([result.status])


def _form(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
