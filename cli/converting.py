"""The verb that converts a file of vectors: convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import compatstore as cs
from compatstore.cli.exit_codes import stop_on_signals
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.upgrades import budget_options, settings_kinds, upgrade_arguments
from compatstore.cli.verb import settings_options, verb
from compatstore.shown import view

if TYPE_CHECKING:
    from compatstore.versions import Metric


@verb(
    "convert",
    examples=(
        "convert old.parquet --out new.parquet --encoder model2vec:new-model --backfill 10%",
        "convert export.jsonl --out new.jsonl --encoder model2vec:new-model --vector _source.embedding",
        "convert old.npz --out new.npz --transform old-to-new",
    ),
    settings=settings_kinds,
    groups={
        "File": ("out", "vector", "id", "text", "metric", "model"),
        "New model": ("encoder", "transform"),
        "Costs and gates": ("backfill", "max_cost", "price_per_item", "require", "words", "config"),
        "Run": ("json", "log", "help"),
    },
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--out", metavar="FILE", required=True, type=click.Path(path_type=Path), help="File to write.")
@click.option("--vector", metavar="PATH", help="The vector in a record; of a usual name, as values, by default.")
@click.option("--id", metavar="PATH", help="The id, for gates.queries; of a usual name, as _id, by default.")
@click.option("--text", metavar="PATH", help="The text or file to embed; of a usual name, as text, by default.")
@click.option(
    "--metric",
    type=click.Choice(("l2", "cosine", "dot")),
    default="cosine",
    show_default=True,
    help="Metric of searches.",
)
@click.option("--model", metavar="NAME", default="", help="Identity of the old model, for an artifact that knows it.")
@click.option("--encoder", metavar="ENCODER", help="The new model; without one only --transform makes vectors.")
@click.option("--transform", metavar="ARTIFACT", help="Path of an artifact; one is learned by default.")
@budget_options
@settings_options
@pass_output
def convert(
    output: Output,
    /,
    path: Path,
    out: Path,
    metric: Metric,
    model: str,
    encoder: str | None,
    transform: str | None,
    **settings: Any,
) -> None:
    """Convert a file of vectors to another model.

    PATH is an export of any vector database: Parquet (also a folder), Arrow, npz, JSON lines or JSON, one record an
    item. A share of the items is embedded, all others are transformed. The output has the same records in the same
    shape; the new vector takes the place of the old one, with its origin and its uncertainty beside it.

    A PATH in a record names fields of objects with dots between them, as _source.embedding. The same command again goes
    on with a stopped or killed one.
    """
    from compatstore.cli.versions import VersionSettings
    from compatstore.conversion import open_export

    named = {name: settings.pop(name) for name in ("vector", "id", "text")}
    arguments = upgrade_arguments("compatstore convert", settings)
    dim = open_export(path, out).locate(**named).dim
    artifact = None if transform is None else cs.Artifact.load(transform)
    old, new = VersionSettings(metric=metric, model=model), VersionSettings(metric=metric, encoder=encoder)
    with progress_bars("convert") as bars, stop_on_signals() as should_stop, output.noting_warnings():
        converted = cs.convert(
            path,
            out,
            old.version("v1", dim),
            new.version("v2", dim if artifact is None else artifact.manifest.target.dim),
            **named,
            **arguments,
            transform=artifact,
            progress=onto(bars),
            should_stop=should_stop,
        )
    output.show(converted, view)
