"""Verbs that make and fill a gallery, and search it: init, adopt, add, drop-columns, search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import gallery_argument, open_gallery, trust_code_option, verb, version_settings
from compatstore.errors import InvalidInput

if TYPE_CHECKING:
    from click import Command

    from compatstore.cli.version_settings import VersionSettings
    from compatstore.gallery import Gallery


@verb("init", example="init photos.lance --version v1 --encoder timm:resnet18", settings=version_settings)
@gallery_argument
@click.option("--version", required=True, help="Name of its first embedding version.")
@click.option("--id-type", type=click.Choice(["string", "int64"]), default="string", help="Type of ids.")
@pass_output
def init(output: Output, gallery: str, version: str, id_type: str, settings: VersionSettings) -> None:
    """Make an empty gallery with its first version."""
    from compatstore.gallery import Gallery

    output.show(Gallery.create(gallery, settings.version(version), id_type=id_type).status(), views.status)


@verb("adopt", example="adopt db#photos --version v1 --vector embedding --id uri", settings=version_settings)
@gallery_argument
@click.option("--version", required=True, help="Name of the embedding version that its vectors belong to.")
@click.option("--vector", required=True, metavar="COLUMN", help="Column of the vectors.")
@click.option("--id", required=True, metavar="COLUMN", help="Column of the ids, text or whole numbers.")
@click.option("--source", metavar="COLUMN", help="Column to re-embed from: path, URI or text.")
@pass_output
def adopt(
    output: Output, gallery: str, version: str, vector: str, id: str, source: str | None, settings: VersionSettings
) -> None:
    """Take over a Lance or LanceDB table in place.

    No data is rewritten, no column renamed, and the app that owns the table goes on using it as before.
    """
    from compatstore.gallery import Gallery

    described = settings.version(version, _stored_dim(gallery, vector))
    output.show(Gallery.adopt(gallery, described, vector=vector, id=id, source=source).status(), views.status)


@verb("add", example="add photos.lance holiday/ more.parquet")
@gallery_argument
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--version", help="Version that the vectors belong to; the active one by default.")
@click.option("--upsert", is_flag=True, help="Replace items whose id is in the gallery.")
@click.option("--batch-size", type=int, help="Items of one commit; 1024 images or 32768 vectors by default.")
@trust_code_option
@pass_output
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
    from compatstore.cli.adding import add_feeds, note_failures
    from compatstore.cli.sources import open_feeds

    opened = open_gallery(gallery, trust_code=trust_code)
    feeds = open_feeds(paths, opened.id_type)
    added = add_feeds(opened, feeds, output, version=version, upsert=upsert, batch_size=batch_size)
    note_failures(added, output)
    output.show(added, views.added)


@verb("drop-columns", example="drop-columns photos.lance caption")
@gallery_argument
@click.argument("names", metavar="COLUMN...", nargs=-1, required=True)
@pass_output
def drop_columns(output: Output, gallery: str, names: tuple[str, ...]) -> None:
    """Drop columns of metadata, for good.

    Ids, sources and the columns of versions stay; a version's columns go with `retire`.
    """
    left = open_gallery(gallery, trust_code=False).drop_columns(names)
    output.show({"dropped": list(names), "left": left}, views.dropped_columns)


@verb("search", example="search photos.lance --image cat.jpg -k 5 --where \"label = 'cats'\"")
@gallery_argument
@click.option("--image", metavar="PATH", help="Search with an image.")
@click.option("--text", help="Search with a text.")
@click.option("--vector", metavar="FILE", help="Search with vectors: npy, npz or JSON, one or many rows.")
@click.option("--id", metavar="ID", help="Search with the stored vector of an item.")
@click.option("-k", "k", type=int, default=10, show_default=True, help="Results per query.")
@click.option("--where", metavar="SQL", multiple=True, help="Condition on the gallery's columns; all given must hold.")
@click.option("--version", help="Version of the query; the active one by default.")
@click.option(
    "--columns",
    metavar="A,B,...",
    help="Columns to show; id, source and metadata by default, and "
    "with them _distance, _version and _origin, unless some of these are named.",
)
@click.option("--explain", is_flag=True, help="Show how the search would go, and do not search.")
@trust_code_option
@pass_output
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
    explain: bool,
    trust_code: bool,
) -> None:
    """Find the items nearest to a query.

    Give one of --image, --text, --vector and --id.
    """
    from compatstore.search import COMPUTED

    forms = {"--image": image, "--text": text, "--vector": vector, "--id": id}
    given = [name for name, value in forms.items() if value is not None]
    if len(given) > 1 or not (given or explain):
        raise InvalidInput("search", expected=f"one of {', '.join(forms)}", found=", ".join(given) or "none")
    opened = open_gallery(gallery, trust_code=trust_code)
    if explain:
        output.show(opened.explain(k=k, version=version, where=where), views.search_plan)
        return
    query = image or text or (_vectors(vector) if vector is not None else _stored_vector(opened, str(id), version))
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    found = opened.search(query, k, version, where, chosen)
    if chosen is not None and not set(chosen).isdisjoint(COMPUTED):
        found = found.select([name for name in chosen if name in found.column_names])
    output.show(found, views.found)


def _stored_dim(gallery: str, vector: str) -> int | None:
    """Length of the vectors in a table's column, or None where it does not say; `adopt` then says what is wrong."""
    from compatstore.storage.location import locate
    from compatstore.storage.store import Store

    schema = Store.open(locate(gallery)).schema
    return getattr(schema.field(vector).type, "list_size", 1) if vector in schema.names else 1


def _vectors(path: str) -> list[Any]:
    from compatstore.cli.array_files import read_array

    # As lists they are vectors whatever their shape; an array could be an image.
    return list(read_array(path, "vector", "vectors", "query", "queries").tolist())


def _stored_vector(gallery: Gallery, item: str, version: str | None) -> Any:
    key = int(item) if gallery.id_type == "int64" and item.lstrip("-").isdecimal() else item
    (vector,) = gallery.vectors([key], version)
    if vector[0] != vector[0]:
        name = version or gallery.active
        raise InvalidInput(
            f"search with item {item}",
            expected=f"an item with a vector in {name}",
            found="one without",
            fix=f"Give it one: compatstore upgrade GALLERY {name}",
        )
    return vector


VERBS: tuple[Command, ...] = (init, adopt, add, drop_columns, search)
