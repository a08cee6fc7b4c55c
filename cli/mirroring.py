"""The verbs of a gallery beside another vector database: mirror and sync."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

import compatstore as cs
from compatstore.cli.exit_codes import stop_on_signals
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.verb import gallery_verb, verb
from compatstore.errors import Interrupted
from compatstore.shown import Table, table, view

if TYPE_CHECKING:
    from compatstore.stores.store import Description


@verb(
    "mirror",
    examples=(
        "mirror postgresql://localhost/shop#public.notes notes.lance --version v1 --source text --track",
        "mirror chroma:shop-db#notes notes.lance --check",
        "mirror qdrant+http://localhost:6333#notes notes.lance --version v1 --source text --metadata lang,year",
    ),
    groups={
        "Columns": ("id_", "vector", "source", "metadata"),
        "Old model": ("version", "encoder"),
        "Run": ("track", "check", "json", "log", "help"),
    },
)
@click.argument("store")
@click.argument("gallery")
@click.option("--version", metavar="NAME", default="v1", show_default=True, help="Name of the version of its vectors.")
@click.option("--encoder", metavar="ENCODER", help="The model that made them, for searches by text.")
@click.option("--id", "id_", metavar="COLUMN", default="", help="The ids; found by default.")
@click.option("--vector", metavar="COLUMN", default="", help="The vectors; the only ones by default.")
@click.option("--source", metavar="COLUMN", help="The text or file to embed; what the store says by default.")
@click.option("--metadata", metavar="COLUMNS", default="", help="Columns to copy, between commas.")
@click.option("--track", is_flag=True, help="Let triggers of PostgreSQL record changes; without it they are dropped.")
@click.option("--check", is_flag=True, help="Only describe the collection; nothing is written.")
@pass_output
def mirror(
    output: Output,
    /,
    store: str,
    gallery: str,
    version: str,
    encoder: str | None,
    id_: str,
    vector: str,
    source: str | None,
    metadata: str,
    track: bool,
    check: bool,
) -> None:
    """Mirror a collection of another vector database in a gallery.

    The database stays the master: nothing of the app's is modified. `upgrade` writes the new model's vectors beside the
    app's own, `sync` follows what the app changes, `cutover` switches the app where the database can.

    STORE is postgresql://HOST/DB#SCHEMA.TABLE, chroma:PATH#COLLECTION, qdrant:PATH#COLLECTION,
    milvus:PATH.db#COLLECTION, faiss:PATH or sqlite:PATH#TABLE; chroma+http://HOST:PORT#COLLECTION and the like reach
    servers. Passwords come from the environment or the client's own configuration. The same command again goes on with
    a stopped or killed one.

    A sync compares all rows with digests of them. With --track it reads the changed rows alone: triggers that this
    command makes in PostgreSQL record their ids. They are dropped by the same command without --track, by `abort` and
    by `retire`.
    """
    from compatstore.stores import link, tracking

    copied = [name for name in metadata.split(",") if name]
    columns: dict[str, Any] = {"id": id_, "vector": vector, "source": source, "metadata": copied}
    about = link.describe(store, **columns)
    if track:
        tracking.require_capture(about)
    if check:
        output.show(about, described)
        return
    for part in described(about):
        if isinstance(part, str):
            output.note(part)
    source_version = link.version_of(about, version)
    if encoder is not None:
        from compatstore.cli.versions import VersionSettings

        settings = VersionSettings(metric=about.metric, encoder=encoder)
        source_version = settings.version(version, source_version.dim)
    with progress_bars("mirror") as bars, stop_on_signals() as should_stop, output.noting_warnings():
        opened = cs.Gallery.mirror(
            store, gallery, source_version, **columns, track=track, progress=onto(bars), should_stop=should_stop
        )
    output.show(opened.status(), view)


def described(about: Description) -> Iterator[str | Table]:
    """A collection as a mirror reads it."""
    yield f"{about.address}: {about.rows} rows, {about.dim} values, {about.metric}, ids {about.id_type}"
    rows = [(name, kind, _role(about, name)) for name, kind in about.columns.items()]
    yield table(("column", "type", "read as"), rows)
    switched = {"": "the app's own change", "alias": "an alias"}.get(about.switch, f"{about.switch} in the store")
    yield f"new vectors: a {about.beside} beside the app's; cutover: {switched}"
    if about.tracking:
        yield f"changes: by digests of all rows; with --track by {about.tracking}"
    yield from about.notes


def _role(about: Description, name: str) -> str:
    parts = about.parts
    roles = {parts.id: "id", parts.vector: "vector", parts.source: "source"}
    return roles.get(name, "metadata" if name in parts.metadata else "")


@gallery_verb("sync", "sync notes.lance", "sync notes.lance --watch 30")
@click.option("--watch", type=float, metavar="SECONDS", help="Sync again and again, SECONDS apart, until stopped.")
def sync(output: Output, gallery: str, watch: float | None) -> None:
    """Bring a gallery in step with the database that it mirrors.

    Pulls what the app changed there, and pushes what upgrades made. Compares ids and digests, of the changed rows alone
    after `mirror --track`, and writes only what is not there. The same command again goes on with a stopped or killed
    one.
    """
    opened = cs.Gallery.open(gallery)
    with progress_bars("sync") as bars, stop_on_signals() as should_stop, output.noting_warnings():
        result = opened.sync(progress=onto(bars), should_stop=should_stop)
        while watch is not None and not _stops_within(watch, should_stop):
            output.note(str(result))
            try:
                result = opened.sync(progress=onto(bars), should_stop=should_stop)
            except Interrupted:  # a watch ends by a signal, whatever it does at that moment
                break
    output.show(result, view)


def _stops_within(seconds: float, should_stop: Callable[[], bool]) -> bool:
    """Wait; True once a stop is requested."""
    until = time.monotonic() + seconds
    while not should_stop() and time.monotonic() < until:
        time.sleep(min(0.2, seconds))
    return should_stop()
