"""The base of a gallery: its catalog, how it is made and opened, and how verbs are made safe for callers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, Self, TypeAlias, TypeVar

from compatstore.arrays import ArrowSchema
from compatstore.boundary import checked
from compatstore.encoders import Encoder
from compatstore.errors import CompatStoreWarning, first_offenders
from compatstore.ingest.metadata import declared_fields
from compatstore.notebook import default_progress
from compatstore.storage.catalog import LEASE_TERM, Catalog
from compatstore.storage.create import AppColumns, adopt_table, create_table
from compatstore.storage.failures import answering, answers
from compatstore.storage.location import locate
from compatstore.storage.recall import measure_index
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store
from compatstore.upgrade.progress import OnProgress
from compatstore.versions import EmbeddingVersion

Part = TypeVar("Part", bound=type)
Result = TypeVar("Result")
Ids: TypeAlias = Sequence[Any] | str | int  # one id, or a list or array of them
Missing = Literal["raise", "skip"]


def _showing_progress(verb: Callable[..., Result]) -> Callable[..., Result]:
    """A verb that shows its progress to a person at work, unless the call names another one."""

    @wraps(verb)
    def call(*args: Any, **options: Any) -> Result:
        options["progress"] = options.get("progress") or default_progress()
        return verb(*args, **options)

    return call


def verbs(path: str = "Gallery") -> Callable[[Part], Part]:
    """Make a class of verbs a part of the gallery.

    Arguments are validated by their annotations, storage errors are wrapped, and messages call each verb by
    the name that users know, such as `Gallery.search`.

    Args:
        path: Public place of the verbs.
    """

    def make(part: Part) -> Part:
        for name, member in list(vars(part).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))  # of class methods and properties
            if callable(function) and not isinstance(function, type):
                function.__qualname__ = f"{path}.{name}"
            if inspect.isfunction(member) and "progress" in inspect.signature(member).parameters:
                setattr(part, name, _showing_progress(member))
        return checked(answers(part))

    return make


@verbs()
class GalleryCore:
    """A catalog, and state shared by verbs of several parts."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def _tended(self, result: Result) -> Result:
        """Run maintenance after a write, then return the result."""
        from compatstore.upkeep.optimize import tend

        tend(self._catalog, count=True)
        return result

    def _registry_with(self, version: str | None, snapshot: Snapshot) -> Registry:
        """The registry of a table that has the columns of the items and of a version, the active one by default."""
        registry = self._catalog.recorded(snapshot)
        self._catalog.require(snapshot, version or registry.active)
        return registry


@verbs()
class OpeningVerbs(GalleryCore):
    """Making and opening a gallery. A part of `compatstore.Gallery`."""

    @classmethod
    def create(
        cls,
        gallery: Any,
        version: EmbeddingVersion,
        *,
        id_type: str = "string",
        metadata: Mapping[str, str] | ArrowSchema | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> Self:
        """Make an empty gallery.

        Args:
            gallery: A path, `s3://...`, `az://...`, `gs://...` or `DATABASE#TABLE`, where there is nothing yet.
            version: Its first and active version.
            id_type: "string" or "int64".
            metadata: Metadata columns that it has from the start: an Arrow schema, or names with types, of "string",
                "int64", "double", "bool", "timestamp", "date" and "json". Others come with the first items that have
                them. A column of JSON holds any JSON value as a text; conditions read it by Lance's functions
                (`json_extract(json_get(about, 'year'), '$') = '2024'`).
            storage_options: Options of the object store.

        Raises:
            AlreadyExists: Something is there.
            InvalidInput: A column has a name that means something else to the gallery, or that Lance cannot handle. A
                column has a type that Lance cannot keep.
            StorageError: The place cannot be written, or is an object store without conditional writes.

        Examples:
            >>> clip = cs.EmbeddingVersion("v1", dim=512, model="clip@2021")
            >>> cs.Gallery.create("photos.lance", clip, metadata={"label": "string", "year": "int64"}).active
            'v1'
        """
        location = locate(gallery, storage_options)
        with answering("create", location):
            fields = declared_fields(metadata, version, f"create a gallery at {location.uri}")
            opened = cls(Catalog(create_table(location, version, id_type, fields)))
            opened._catalog.keep_models(version)
        return opened

    @classmethod
    def open(
        cls,
        gallery: Any,
        *,
        encoders: Mapping[str, Encoder] | None = None,
        side_encoders: Mapping[str, Encoder] | None = None,
        trust_code: bool = False,
        storage_options: dict[str, str] | None = None,
        lease_term: float = LEASE_TERM,
    ) -> Self:
        """Open a gallery.

        Args:
            gallery: A path, a URI, `DATABASE#TABLE` or a LanceDB table.
            encoders: Encoders by version name, where only this program can make them.
            side_encoders: The same for side-information.
            trust_code: Build encoders that the gallery names as Python code or as an address.
            storage_options: Options of the object store.
            lease_term: Seconds without a sign of life after which another manager may take an upgrade over from one
                that works through this gallery.

        Raises:
            NotFound: There is none.
            StorageError: It is a plain Lance table that was not adopted.
            InvalidInput: `lease_term` is no number above 0.
            Incompatible: An encoder is another model than its version was registered with.

        Examples:
            >>> len(cs.Gallery.open("letters.lance"))
            6
        """
        location = locate(gallery, storage_options)
        with answering("open", location):
            store = Store.open(location)
            return cls(Catalog(store, encoders, side_encoders, trust_code=trust_code, lease_term=lease_term))

    @classmethod
    def adopt(
        cls,
        gallery: Any,
        version: EmbeddingVersion,
        *,
        vector: str,
        id: str,
        source: str | None = None,
        again: bool = False,
        storage_options: dict[str, str] | None = None,
        progress: OnProgress = None,
    ) -> Self:
        """Take over an existing Lance or LanceDB table in place.

        No data file is rewritten and no column renamed; the app that owns the table goes on using it as before.
        Like the app's own, the table's ids are not declared as its key, so of two concurrent `add` calls with one new
        id both can succeed. A sample of the vectors is looked at for parts that another model has made, which takes at
        most seconds; it warns if there is one.

        Args:
            gallery: The table: a path, a URI, `DATABASE#TABLE` or a LanceDB table object.
            version: The version that the vectors in the table belong to.
            vector: Column of the vectors. Where LanceDB's metadata name the function that embeds it, that function is
                the version's model, unless the version names one; it is built only by a gallery whose code is trusted.
            id: Column of the ids, text or whole numbers.
            source: Column to re-embed from, or None: the column that LanceDB's metadata name, if any.
            again: Forget the versions, upgrades and history of the gallery that the table was, as after the app has
                overwritten it. Columns of its versions that are still there stay as the app's.
            storage_options: Options of the object store.
            progress: Called during the search for vectors of two models.

        Raises:
            NotFound: There is no table.
            InvalidInput: A column is missing or of another type, or the table is a gallery already. A column has a name
                that Lance or a gallery cannot handle. The vectors have another length. An id occurs twice.
            StorageError: The table lies in an object store without conditional writes.

        Examples:
            >>> import lancedb
            >>> table = lancedb.connect("app-db").create_table("notes", [{"key": "n1", "embedding": [0.0, 1.0]}])
            >>> len(cs.Gallery.adopt(table, v1, vector="embedding", id="key"))
            1
        """
        from compatstore.verification.two_models import foreign_items

        location = locate(gallery, storage_options)
        with answering("adopt", location):
            store = adopt_table(location, version, AppColumns(vector, id, source), again=again)
            opened = cls(Catalog(store))
            opened._catalog.keep_models(version)
            measure_index(store, version.name)
            found = foreign_items(store, opened._catalog.registry().columns(version.name), id, progress)
            if found is not None:
                share, ids = found
                text = (
                    f"{share:.0%} of {vector} look as if another model had made them, such as those of "
                    f"{first_offenders(ids)}; embed them again by one model, or keep each model in its own column"
                )
                warnings.warn(text, CompatStoreWarning, stacklevel=2)
        return opened
