"""Verbs about the index of a version: index create, status, refresh, drop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli.exit_codes import stop_on_signals
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.verb import gallery_argument, open_gallery, shown_examples, verb
from compatstore.shown import Table, table

if TYPE_CHECKING:
    from compatstore.storage.index_refresh import RefreshedIndex
    from compatstore.storage.index_status import IndexStatus
    from compatstore.upkeep.index import DroppedIndex

KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
version_argument = click.argument("version", required=False)


@click.group("index", epilog=shown_examples(("index create photos.lance", "index status photos.lance")))
def index() -> None:
    """Index the vectors of a version, and look after the index.

    VERSION is the active one where it is left out.
    """


@verb(
    "create",
    examples=(
        "index create photos.lance",
        "index create photos.lance v1 --kind IVF_PQ --num-partitions 256",
    ),
)
@gallery_argument
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
@pass_output
def create(output: Output, gallery: str, version: str | None, **options: Any) -> None:
    """Build the index of VERSION, or replace the one that there is.

    What it finds is measured with items of the gallery, and searches use the cheapest settings by which that is 97 % of
    the 10 nearest. Ctrl-C ends the build; one of more than 256 cells is finished first.
    """
    found = open_gallery(gallery, trust_code=False).maintenance.index(version)
    with progress_bars("index create") as bars, stop_on_signals() as should_stop:
        made = found.create(**options, progress=onto(bars), should_stop=should_stop)
    output.show(made, lambda status: _statuses([status]))


@verb(
    "status",
    examples=(
        "index status photos.lance",
        "index status photos.lance v1 --json",
    ),
)
@gallery_argument
@version_argument
@pass_output
def status(output: Output, gallery: str, version: str | None) -> None:
    """Show the index of VERSION, or of every version that has vectors.

    Where searches compare all of its vectors for lack of an index, the kind is none. Recall is the share of the 10
    nearest items that searches found when that was measured; compared is the share of the indexed vectors that a search
    compares now, about.
    """
    opened = open_gallery(gallery, trust_code=False)
    live = [found.name for found in opened.status().versions if found.state in ("active", "live")]
    output.show([opened.maintenance.index(name).status() for name in ([version] if version else live)], _statuses)


@verb("refresh", examples=("index refresh photos.lance v1",))
@gallery_argument
@version_argument
@pass_output
def refresh(output: Output, gallery: str, version: str | None) -> None:
    """Take what came later into the index of VERSION, and measure it.

    It is trained again where its recall is below 0.95 with the settings that searches use, or where a search compares
    1.5 times as many of the vectors as when that was measured.
    """
    found = open_gallery(gallery, trust_code=False).maintenance.index(version)
    with progress_bars("index refresh") as bars, stop_on_signals() as should_stop:
        done = found.refresh(progress=onto(bars), should_stop=should_stop)
    output.show(done, _refreshed)


@verb(
    "drop",
    examples=(
        "index drop photos.lance v1",
        "index drop app-db#photos v1 --adopted",
    ),
)
@gallery_argument
@version_argument
@click.option("--adopted", is_flag=True, help="Drop it from the column of an app too, whose index it may be.")
@pass_output
def drop(output: Output, gallery: str, version: str | None, adopted: bool) -> None:
    """Drop the index of VERSION; searches compare every vector then."""
    output.show(open_gallery(gallery, trust_code=False).maintenance.index(version).drop(adopted=adopted), _dropped)


for command in (create, status, refresh, drop):
    index.add_command(command)


def _statuses(result: Sequence[IndexStatus]) -> Iterator[str | Table]:
    """Indexes of versions."""
    columns = ("version", "kind", "cells", "deltas", "MB", "indexed", "not indexed", "compared", "recall", "measured")
    rows = [
        (
            *(found.version, found.kind or "none", found.cells, found.deltas, f"{found.bytes / 1e6:,.1f}"),
            *(found.indexed_rows, found.unindexed_rows, _share(found.compared), _figure(found.recall)),
            found.recall_at.partition(".")[0],
        )
        for found in result
    ]
    yield table(columns, rows)
    for found in result:
        if found.settings is not None:
            yield f"searches of {found.version} use {found.settings}"


def _refreshed(result: RefreshedIndex) -> Iterator[str | Table]:
    """What a refresh did."""
    yield f"{result.added} vectors came into the index of {result.status.version}"
    if result.retrained:
        yield f"it was trained again: {result.retrained}"
    yield from _statuses([result.status])


def _dropped(result: DroppedIndex) -> Iterator[str | Table]:
    """What a drop did."""
    yield f"dropped: {', '.join(result.dropped)}" if result.dropped else f"{result.version} has no index"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
