"""The items of a gallery: written, changed, deleted and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowSchema, ArrowTable, FloatArray
from compatstore.boundary import shown
from compatstore.errors import InvalidInput, NotFound, first_offenders
from compatstore.gallery.core import GalleryCore, Ids, Missing, verbs
from compatstore.ingest.complete import Unembedded
from compatstore.ingest.items import Repeated
from compatstore.search.condition import joined
from compatstore.search.scan import Scan, require_columns, result_columns
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.ids import find, read_ids
from compatstore.storage.vector_form import to_matrix

if TYPE_CHECKING:
    from compatstore.ingest.write import Added


@dataclass(frozen=True)
class GalleryColumns:
    """Columns of a gallery's table by content.

    Attributes:
        id: Column of the ids: "id", or its name in an adopted table.
        id_type: "string" or "int64".
        source: Column of the sources, or None if an adopted table has none.
        vectors: By version, the column of its vectors.
        metadata: Arrow schema of the other columns, which are the user's own.
        adopted: True if the table is an app's, which gets no column for metadata from here.
    """

    id: str
    id_type: str
    source: str | None
    vectors: Mapping[str, str]
    metadata: ArrowSchema
    adopted: bool


@verbs()
class ItemVerbs(GalleryCore):
    """Writing and reading items. A part of `compatstore.Gallery`."""

    def add(
        self,
        data: Any,
        version: str | None = None,
        *,
        upsert: bool = False,
        repeated: Repeated = "refuse",
        unembedded: Unembedded = "refuse",
    ) -> Added:
        """Write items, in one commit.

        Vectors of the other live versions are filled in the same commit: given under the version's own name,
        transformed while an upgrade is open, or embedded where an encoder and a source are there.

        Args:
            data: Arrow table, pandas or polars frame, mapping of columns or list of rows with `id`, `vector` and/or
                `source`, `side`, and any metadata. Of a frame, vectors are a column of lists or arrays.
            version: Version of `vector` and `side`; the active one by default.
            upsert: Replace items whose id is there: their vectors in all versions are replaced or cleared, metadata
                columns that are not given stay.
            repeated: Treatment of an id that occurs twice in the data: "refuse" all, or take the "last" row.
            unembedded: Treatment of items that have no vector and cannot be embedded: "refuse" them, or "keep"
                them without a vector. No search finds such items; conditions and ids do, and an upgrade embeds them
                where it can.

        Returns:
            Number of written items, and the sources that could not be embedded.

        Raises:
            InvalidInput: Something is missing or of the wrong type. An id occurs twice and `repeated` is "refuse", or
                is in the gallery and `upsert` is false. Vectors have another length. NaN or infinite values.
            SourceError: No source at all could be embedded.

        Examples:
            >>> gallery.add({"id": ["g"], "vector": [[4.0, 4.0]], "label": [3]}).rows
            1
            >>> gallery.add({"id": ["g"], "vector": [[5.0, 5.0]]}, upsert=True).rows
            1
        """
        from compatstore.ingest import write

        return write.add(self._catalog, data, version, upsert=upsert, repeated=repeated, unembedded=unembedded)

    def update(self, data: Any) -> int:
        """Change metadata of items, in one commit; vectors, sources and columns that are not given stay.

        Args:
            data: Arrow table, mapping of columns or list of rows with `id` and any metadata.

        Returns:
            Number of changed items.

        Raises:
            NotFound: Some are not there; nothing was changed.
            InvalidInput: A vector or a source is given, or something is missing or of the wrong type. An id occurs
                twice.

        Examples:
            >>> gallery.update({"id": ["a", "b"], "label": [7, 8]})
            2
            >>> gallery.get(["b", "c"], ["label"])["label"].to_pylist()
            [8, 1]
        """
        from compatstore.ingest import write

        return write.update(self._catalog, data)

    def delete(self, ids: Ids) -> int:
        """Remove items, in one commit; ids that are not there are ignored. Returns how many were removed.

        Raises:
            InvalidInput: Ids are of another type than the gallery's.

        Examples:
            >>> gallery.delete(["a", "not there"])
            1
        """
        from compatstore.ingest import write

        return write.delete(self._catalog, ids)

    def get(self, ids: Ids, columns: Sequence[str] | None = None, *, missing: Missing = "raise") -> ArrowTable:
        """Read items.

        Args:
            ids: Ids, in the order wanted.
            columns: Columns, fields of structs as "meta.lang" too; all columns by default.
            missing: Treatment of unknown ids: "raise" an error, or "skip" them.

        Returns:
            Arrow table with one row an id, in order.

        Raises:
            NotFound: Some are not there, and `missing` is "raise".
            InvalidInput: A column is not there, or ids are of another type than the gallery's.

        Examples:
            >>> gallery.get(["c", "a"], ["id", "label"]).to_pylist()
            [{'id': 'c', 'label': 1}, {'id': 'a', 'label': 0}]
            >>> gallery.get(["c", "lost"], ["id", "label"], missing="skip").to_pylist()
            [{'id': 'c', 'label': 1}]
        """
        snapshot = self._catalog.store.snapshot()
        self._catalog.require(snapshot)
        schema = snapshot.schema
        names = schema.names if columns is None else require_columns(columns, schema)
        return self._read(snapshot, ids, names, missing)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | Sequence[str] | None = None,
        *,
        native: Sequence[str] = (),
        limit: int | None = None,
    ) -> Scan:
        """Rows for other libraries, as of now: a pandas or polars frame, or an Arrow stream that is read in batches.

        Args:
            columns: Columns, in this order, fields of structs as "meta.lang" too; by default the user's
                own: id, source and metadata, without vectors.
            where: A condition in SQL, several that must all hold, or None.
            native: Versions in which an item must have a native vector.
            limit: Rows at most, >= 0; None for all.

        Returns:
            The rows, read lazily.

        Raises:
            InvalidInput: A column is not there, a condition is no valid SQL, or the limit is below 0.

        Examples:
            >>> gallery.scan(["id"], limit=2).to_arrow().to_pydict()
            {'id': ['a', 'b']}
            >>> len(gallery.scan(where="label = 1", native=["v1"]))
            2
        """
        snapshot = self._catalog.store.snapshot()
        self._catalog.require(snapshot, *native)
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
            raise InvalidInput("scan the gallery", expected="a limit that is a whole number >= 0", found=shown(limit))
        registry = self._catalog.recorded(snapshot)
        wanted = result_columns(registry, snapshot.schema, columns)
        condition = joined(where, "scan the gallery")
        parts = [registry.columns(version).native for version in native] + ([condition] if condition else [])
        every = " AND ".join(f"({part})" for part in parts)
        return Scan(snapshot, self._catalog.store.location, wanted, every or None, limit)

    @property
    def columns(self) -> GalleryColumns:
        """Columns of the table by content: ids, sources, vectors, metadata.

        Examples:
            >>> gallery.columns.id, gallery.columns.vectors["v1"], gallery.columns.metadata.names
            ('id', 'v1', ['label'])
        """
        from compatstore.ingest import metadata as metadata_columns

        snapshot = self._catalog.store.snapshot()
        registry = self._catalog.recorded(snapshot)
        own = metadata_columns.own_columns(registry, snapshot.schema.names)
        return GalleryColumns(
            id=registry.id_column,
            id_type=registry.id_type,
            source=registry.source_column,
            vectors={record.name: record.columns.vector for record in registry.live if record.columns is not None},
            metadata=pa.schema([snapshot.schema.field(name) for name in own]),
            adopted=registry.adopted,
        )

    def vectors(self, ids: Ids, version: str | None = None, *, side: bool = False) -> FloatArray:
        """Read vectors of items: (n, dim) float32, in the order of `ids`, NaN where an item has none.

        Args:
            ids: The items.
            version: The active one by default.
            side: Read the version's side-information instead: (n, side_dim); of bits -1 and 1, as transforms read it.

        Raises:
            InvalidInput: The version has no side-information.
            NotFound: Some items are not there. The gallery keeps no vectors of that version.

        Examples:
            >>> gallery.vectors(["b", "c"]).tolist()
            [[1.0, 0.0], [2.0, 1.0]]
        """
        snapshot = self._catalog.store.snapshot()
        registry = self._registry_with(version, snapshot)
        name = version or registry.active
        columns = registry.columns(name)
        column, dim = (columns.side, columns.side_dim) if side else (columns.vector, columns.dim)
        if column is None or dim is None:
            raise InvalidInput(f"read side-information of {name}", expected="a version with side_dim", found="none")
        matrix, valid = to_matrix(self._read(snapshot, ids, [column]).column(column), dim)
        matrix = matrix.copy()
        matrix[~valid] = float("nan")
        return matrix

    def __len__(self) -> int:
        return self._catalog.store.count()

    def __repr__(self) -> str:
        return (
            f"<Gallery {self._catalog.store.location.uri} active={self._catalog.recorded().active} items={len(self)}>"
        )

    def _read(self, snapshot: Any, ids: Ids, names: Sequence[str], missing: Missing = "raise") -> ArrowTable:
        """Read columns that a snapshot has, from that snapshot: meanwhile an upgrade may end that drops some."""
        registry = self._catalog.recorded(snapshot)
        wanted = read_ids(ids, id_arrow_type(registry), f"get items of {self._catalog.store.location.name}")
        columns = list(dict.fromkeys([*names, registry.id_column]))
        found = find(self._catalog.store, registry.id_column, wanted, columns, snapshot)
        keys = found.column(registry.id_column)
        positions = pc.index_in(pa.array(wanted, id_arrow_type(registry)), value_set=keys.combine_chunks())
        if positions.null_count and missing == "raise":
            unknown = [item for item, position in zip(wanted, positions.to_pylist(), strict=True) if position is None]
            raise NotFound(
                f"get {len(wanted)} items of {self._catalog.store.location.name}",
                expected="ids that are in the gallery",
                found=f"no item {first_offenders(unknown)}",
                kind="item",
                fix=next_step.either(
                    shell="Check the ids: they are compared letter by letter.",
                    python='Check the ids, or skip those that are not there: missing="skip"',
                ),
            )
        return found.take(positions.drop_null()).select(names)
