"""Verbs that make a gallery: demo, init, adopt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import compatstore as cs
from compatstore.cli.exit_codes import end_on_signals
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import VERSION, gallery_verb, verb
from compatstore.errors import InvalidInput
from compatstore.shown import Table, view

if TYPE_CHECKING:
    from compatstore.cli.versions import VersionSettings
    from compatstore.demo import DemoReport


@verb("demo", examples=("demo", "demo compatstore-demo --seed 1"))
@click.argument("directory", default="compatstore-demo", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Seed of training, split and order of the backfill.")
@pass_output
def demo(output: Output, directory: Path, seed: int) -> None:
    """Upgrade a gallery of real images.

    From training to cutover, without a network or a GPU; 1 to 2 minutes on a machine of two cores. The gallery, the
    artifacts, a picture and a report stay in DIRECTORY, which must be new or empty.
    """
    from compatstore.demo import run_demo

    with end_on_signals():
        report = run_demo(directory, seed=seed, say=output.note)
    output.show(report, demo_view)


@gallery_verb(
    "init",
    "init photos.lance --version v1 --encoder timm:resnet18",
    "init texts.lance --version v1 --dim 1536 --model text-embedding-3-small@2024-01 --metadata year:int64",
    requests=VERSION,
)
@click.option("--version", metavar="NAME", required=True, help="Name of its first embedding version.")
@click.option("--id-type", type=click.Choice(["string", "int64"]), default="string", help="Type of ids.")
@click.option(
    "--metadata",
    metavar="COLUMN:TYPE",
    multiple=True,
    help="Metadata column that it has from the start, such as year:int64 or about:json; others come with their items.",
)
def init(
    output: Output, gallery: str, version: str, id_type: str, metadata: tuple[str, ...], settings: VersionSettings
) -> None:
    """Make an empty gallery with its first version."""
    columns = dict(declared.rpartition(":")[::2] for declared in metadata)
    if "" in columns or len(columns) < len(metadata):
        expected = "--metadata COLUMN:TYPE, each column once"
        raise InvalidInput("make a gallery", expected=expected, found=", ".join(metadata))
    created = cs.Gallery.create(gallery, settings.version(version), id_type=id_type, metadata=columns)
    output.show(created.status(), view)


@gallery_verb(
    "adopt",
    "adopt app-db#notes",
    "adopt app-db#photos --version v1 --vector embedding --id uri --source path --metric l2",
    requests=VERSION,
)
@click.option(
    "--version",
    metavar="NAME",
    default="v1",
    show_default=True,
    help="Name of the embedding version that its vectors belong to.",
)
@click.option("--vector", metavar="COLUMN", help="Column of the vectors; the only one by default.")
@click.option(
    "--id", metavar="COLUMN", help="Column of the ids, text or whole numbers; one of a usual name, as id, by default."
)
@click.option(
    "--source",
    metavar="COLUMN",
    help="Column to re-embed from: path, URI or text; one of a usual name, as text, by default.",
)
@click.option("--again", is_flag=True, help="Forget the gallery that the table was, as after the app overwrote it.")
def adopt(
    output: Output, /, gallery: str, version: str, again: bool, settings: VersionSettings, **columns: Any
) -> None:
    """Take over a Lance or LanceDB table in place.

    No data is rewritten, no column renamed, and the app that owns the table goes on using it as before. The output
    lists the columns that were chosen by default.
    """
    from compatstore.storage.create import AppColumns
    from compatstore.storage.location import locate
    from compatstore.verification.plain_columns import usual_columns

    named = AppColumns(columns["vector"] or "", columns["id"] or "", columns["source"])
    taken, dim = usual_columns(locate(gallery), named, again=again)
    described = settings.version(version, dim)
    adopted = cs.Gallery.adopt(gallery, described, vector=taken.vector, id=taken.id, source=taken.source, again=again)
    if None in columns.values():
        sources = adopted.columns.source or "no column"
        lack = "" if adopted.columns.source else ": no item can be embedded from a text"
        output.note(f"Taken: {taken.vector} as the vectors, {taken.id} as the ids, {sources} as the sources{lack}.")
    encoder = adopted.status().versions[0].encoder
    if encoder.startswith("lancedb:"):
        output.note(
            f"{version} is embedded by the app's own function in LanceDB's registry: commands that embed with it "
            "take --trust-code, and --import MODULE if a module of the app registers it."
        )
    elif not encoder:
        output.note(
            f"{version} has no encoder: it cannot search texts, and an upgrade is evaluated without it. Name its "
            f"model: compatstore register {shlex.quote(gallery)} {version} --encoder ENCODER"
        )
    output.show(adopted.status(), view)


def demo_view(result: DemoReport) -> Iterator[str | Table]:
    """View of a demo: ways to serve the gallery, and the files that the demo leaves."""
    yield from view(result.decision)
    yield ""
    yield from (str(file) for file in result.files)
    yield ""
    yield "The gallery is live; try:"
    yield from (f"  {command}" for command in result.next_commands)
