"""Verbs about items: add, drop-columns, search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

import compatstore as cs
from compatstore.cli.output import Output, rows_view
from compatstore.cli.progress import progress_bars
from compatstore.cli.settings import Options
from compatstore.cli.verb import gallery_verb, open_gallery, trust_code_option
from compatstore.errors import CompatStoreError, InvalidInput, SourceError
from compatstore.paths import exists

if TYPE_CHECKING:
    from compatstore.evaluation.fusion import Serving


FAILURES_SHOWN = 20


@gallery_verb("add", "add photos.lance holiday/ cat.jpg", "add texts.lance more.parquet --version v1 --upsert")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--version", metavar="VERSION", help="Version that the vectors belong to; the active one by default.")
@click.option("--upsert", is_flag=True, help="Replace items whose id is in the gallery.")
@click.option("--batch-size", type=int, help="Items of one commit; 1024 images or 32768 vectors by default.")
@trust_code_option
def add(
    output: Output,
    gallery: str,
    paths: tuple[str, ...],
    version: str | None,
    upsert: bool,
    batch_size: int | None,
    trust_code: bool,
) -> None:
    """Add images, folders, or files of vectors.

    An image's id is its path in its folder, or its file name when it is named itself; its source is its absolute path.
    Class folders give a column `label`. Parquet, Arrow, Feather and npz files hold `id`, `vector` and/or `source`,
    perhaps `side`, and any other columns. Images that cannot be read are listed and left out.
    """
    from compatstore.cli.files import open_feeds
    from compatstore.ingest.write import Added

    opened = open_gallery(gallery, trust_code=trust_code)
    feeds = open_feeds(paths, opened.columns.id_type)
    if batch_size is not None and batch_size < 1:
        raise InvalidInput("add items", expected="--batch-size >= 1", found=f"{batch_size}")
    rows, failures, total = 0, list[tuple[Any, str]](), sum(feed.rows for feed in feeds)
    with progress_bars("add") as bars:
        for batch in (batch for feed in feeds for batch in feed.read(batch_size or feed.batch_size)):
            try:
                added = opened.add(batch, version, upsert=upsert)
                rows, failures = rows + added.rows, failures + list(added.failures)
            except SourceError as error:  # of a batch in which no source can be embedded; the others go on
                failures += [(_id_of(batch, row), reason) for row, reason in error.failures.items()]
            except CompatStoreError:
                if rows:
                    output.note(f"{rows} items of the batches before are in the gallery.")
                raise
            bars.update("add", rows + len(failures), total)
    if failures and not rows:
        reasons = {position: f"{item}: {reason}" for position, (item, reason) in enumerate(failures)}
        raise SourceError(f"add {total} items", reasons, fix="Check the paths; nothing was written.")
    _note_failures(failures, output)
    added = Added(rows, version or opened.active, tuple(failures))
    output.show(added, lambda _: [f"{added.rows} items added in {added.version}"])


@gallery_verb("drop-columns", "drop-columns photos.lance caption camera")
@click.argument("names", metavar="COLUMN...", nargs=-1, required=True)
def drop_columns(output: Output, gallery: str, names: tuple[str, ...]) -> None:
    """Drop columns of metadata, for good.

    Ids, sources and the columns of versions stay; a version's columns go with `retire`.
    """
    left = open_gallery(gallery, trust_code=False).maintenance.drop_columns(names)
    message = f"dropped {', '.join(names)}; left: {', '.join(left) or 'none'}"
    output.show({"dropped": list(names), "left": left}, lambda _: [message])


@gallery_verb(
    "search",
    "search photos.lance --image cat.jpg -k 5 --where \"label = 'cats'\"",
    "search texts.lance --text 'red wool coat' --columns id,_distance",
    "search photos.lance --id holiday/1.jpg --serving fused --explain",
    requests={"cascade": Options("compatstore:Cascade")},
)
@click.option("--image", metavar="PATH", help="Search with an image.")
@click.option("--text", help="Search with a text.")
@click.option("--vector", metavar="FILE", help="Search with vectors: npy, npz or JSON, one or many rows.")
@click.option("--id", metavar="ID", help="Search with the stored vector of an item.")
@click.option("-k", "k", type=int, default=10, show_default=True, help="Results per query.")
@click.option("--where", metavar="SQL", multiple=True, help="Condition on the gallery's columns; all given must hold.")
@click.option("--version", metavar="VERSION", help="Version of the query; the active one by default.")
@click.option(
    "--columns",
    metavar="A,B,...",
    help="Columns to show, fields of structs as meta.lang too; id, source and metadata by default, and "
    "with them _distance, _version and _origin, unless some of these are named.",
)
@click.option(
    "--serving",
    type=click.Choice(["fused", "source", "target", "cascade"]),
    help="Fused search over both versions of an upgrade, or one version; by default as `evaluate --weight best` chose. "
    "cascade: the first candidates are embedded natively, within a budget, and ranked by these vectors.",
)
@click.option("--nprobes", type=int, help="Cells of the index to read; as was measured when it was built by default.")
@click.option(
    "--refine", type=int, help="Multiple of -k that is compared by whole vectors; as was measured by default."
)
@click.option("--explain", is_flag=True, help="Show how the search would go, and do not search.")
@trust_code_option
def search(
    output: Output,
    gallery: str,
    image: str | None,
    text: str | None,
    vector: str | None,
    id: str | None,
    k: int,
    where: tuple[str, ...],
    version: str | None,
    columns: str | None,
    serving: Literal["fused", "source", "target", "cascade"] | None,
    nprobes: int | None,
    refine: int | None,
    explain: bool,
    trust_code: bool,
    cascade: cs.Cascade,
) -> None:
    """Find the items nearest to a query.

    Give one of --image, --text, --vector and --id. --first and --in-all are those of --serving cascade.
    """
    from compatstore.storage.app_columns import OF_RESULTS

    forms = {"--image": image, "--text": text, "--vector": vector, "--id": id}
    given = [name for name, value in forms.items() if value is not None]
    if len(given) > 1 or not (given or explain):
        raise InvalidInput("search", expected=f"one of {', '.join(forms)}", found=", ".join(given) or "none")
    mode = cascade if serving == "cascade" else serving
    if serving != "cascade" and cascade != type(cascade)():
        raise InvalidInput("search", expected="--serving cascade beside the options of one", found=f"{serving}")
    opened = open_gallery(gallery, trust_code=trust_code)
    named = nprobes is not None or refine is not None
    settings = cs.SearchSettings(nprobes=nprobes, refine=refine) if named else None
    if explain:
        plan = opened.explain(k=k, version=version, where=where, serving=mode, settings=settings)
        output.show(plan, lambda _: str(plan).splitlines())
        return
    query = image or text or (_vectors(vector) if vector is not None else _stored(opened, str(id), version, mode))
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    found = opened.search(query, k, version, where, chosen, serving=mode, settings=settings)
    if chosen is not None and not set(chosen).isdisjoint(OF_RESULTS):
        found = found.select([name for name in chosen if name in found.column_names])
    output.show(found, rows_view)


def _note_failures(failures: Sequence[tuple[Any, str]], output: Output) -> None:
    """List on stderr what could not be embedded, the first ones."""
    if not failures:
        return
    output.note(f"{len(failures)} items could not be embedded and were left out:")
    for item, reason in failures[:FAILURES_SHOWN]:
        output.note(f"  {item}: {reason}")
    if len(failures) > FAILURES_SHOWN:
        output.note(f"  and {len(failures) - FAILURES_SHOWN} more (--json lists all)")


def _id_of(batch: Any, row: int) -> Any:
    found = batch["id"][row]
    return found.as_py() if hasattr(found, "as_py") else found.item() if hasattr(found, "item") else found


def _vectors(path: str) -> list[Any]:
    """A vector as numbers with commas between them, in brackets or not, or those of a file."""
    from compatstore.boundary import foreign
    from compatstore.cli.files import read_array

    if re.fullmatch(r"[\[\]\d.,eE+\s-]+", path) and not exists(path):
        with foreign(f"read {path[:80]}", "numbers with commas between them, or a file"):
            return [float(part) for part in path.strip().strip("[]").split(",")]

    # As lists they are vectors whatever their shape; an array could be an image.
    return list(read_array(path, "vector", "vectors", "query", "queries").tolist())


def _stored(gallery: cs.Gallery, item: str, version: str | None, serving: Serving | cs.Cascade | None) -> Any:
    """The vector of an item, or its vectors in all versions that are searched.

    Raises:
        InvalidInput: It has no vector in one of them.
    """
    key = int(item) if gallery.columns.id_type == "int64" and item.lstrip("-").isdecimal() else item
    plan = None if serving is None else gallery.explain(version=version, serving=serving)
    names = (version or gallery.active,) if plan is None else plan.versions
    vectors = {name: gallery.vectors([key], name)[0] for name in names}
    lacking = next((name for name, vector in vectors.items() if vector[0] != vector[0]), None)
    if lacking is not None:
        raise InvalidInput(
            f"search with item {item}",
            expected=f"an item with a vector in {lacking}",
            found="one without",
            fix=f"Give it one: compatstore upgrade GALLERY {lacking}",
        )
    return vectors[names[0]] if plan is None else vectors
