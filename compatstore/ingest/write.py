"""Write items: one commit, after every check has passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowTable, Id
from compatstore.errors import InvalidInput, SourceError
from compatstore.ingest.arrow import cast_columns
from compatstore.ingest.complete import Completion, Unembedded, to_table
from compatstore.ingest.items import Items, Repeated, read_items
from compatstore.ingest.metadata import new_columns, new_fields
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.failures import require_room
from compatstore.storage.ids import among, find, known_among, read_ids, refuse_known, refuse_unknown
from compatstore.storage.inserts import Insert, insert_or_replace
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store, is_same
from compatstore.upkeep.optimize import tend


@dataclass(frozen=True)
class Added:
    """The result of an `add`.

    Attributes:
        rows: Items written.
        version: Version that they were added in.
        failures: (id, reason) of items whose source could not be embedded; they were not written, unless the call
            keeps items without a vector.
    """

    rows: int
    version: str
    failures: tuple[tuple[Id, str], ...] = ()


@dataclass(frozen=True)
class _Prepared:
    """Items as they will be written.

    Attributes:
        registry: State of the gallery that they were completed for.
        version: Version that their vectors belong to.
        items: Those whose source could be embedded.
        table: Arrow table of them.
        failures: (id, reason) of the others.
        new_fields: Arrow fields of metadata that the gallery's table does not have yet.
        without: Table version that was found to have none of the ids, if any was.
    """

    registry: Registry
    version: str
    items: Items
    table: Any
    failures: tuple[tuple[Id, str], ...]
    new_fields: Sequence[Any] = ()
    without: Snapshot | None = None


def add(
    catalog: Catalog,
    data: Any,
    version: str | None = None,
    *,
    upsert: bool = False,
    repeated: Repeated = "refuse",
    unembedded: Unembedded = "refuse",
) -> Added:
    """Write items in one commit; see `Gallery.add`."""
    store = catalog.store
    with new_columns(store) as make:
        while True:
            prepared = _prepare(catalog, data, version, upsert, repeated, unembedded)
            operation, rows = prepared.items.operation, len(prepared.items)
            if not rows:
                break
            require_room(store.location, prepared.table.nbytes, operation)
            make(prepared.new_fields)
            insert = None if upsert else Insert(prepared.table)
            if store.retry(operation, lambda: _commit(catalog, prepared, insert)):  # noqa: B023
                break
    if rows:
        tend(catalog)
    return Added(rows, prepared.version, prepared.failures)


def _prepare(
    catalog: Catalog, data: Any, named: str | None, upsert: bool, repeated: Repeated, unembedded: Unembedded
) -> _Prepared:
    """Check items and find their vectors in all live versions; nothing is written."""
    store, registry = catalog.store, catalog.registry()
    version = named or registry.active  # as of now: another may be active when a write is made again
    items = read_items(data, registry, version, store, repeated)
    if not len(items):
        return _Prepared(registry, version, items, None, ())
    schema = store.schema
    fields = new_fields(items.metadata, registry, schema, items.operation)
    without = None
    if not upsert and (fields or registry.stored.keys() - items.vectors.keys()):  # before columns are made, or vectors
        without = store.snapshot()
        refuse_known(without, registry.id_column, items.ids, items.operation)
    sources = _stored_sources(catalog, registry, items, upsert)
    values, failed = Completion(items, catalog, registry, sources).complete(version, unembedded, upsert=upsert)
    ids = items.ids.to_pylist()
    failures = tuple((ids[row], why) for row, why in sorted(failed.items()))
    if failed and unembedded != "keep":
        if len(failed) == len(items):
            raise SourceError(items.operation, failed, ids=ids, fix="Check the sources; nothing was written.")
        keep = np.array([row not in failed for row in range(len(items))])
        items, values = items.keep(keep), {name: whole.take(keep) for name, whole in values.items()}
    table = to_table(items, values, registry, pa.schema([*schema, *fields]))
    return _Prepared(registry, version, items, table, failures, fields, without)


def update(catalog: Catalog, data: Any) -> int:
    """Change metadata of items in one commit; see `Gallery.update`."""
    store = catalog.store

    def commit() -> int:
        writer = store.writer()  # first, as in `_commit`
        registry = catalog.registry(writer)
        items = read_items(data, registry, registry.active, store)
        operation = f"update {len(items)} items of {store.location.name}"
        _require_metadata_alone(items, operation)
        if not len(items):
            return 0
        fields = new_fields(items.metadata, registry, store.schema, operation)
        make(fields)
        writer = store.writer() if fields else writer
        refuse_unknown(store, registry.id_column, items.ids, operation)
        table = cast_columns({registry.id_column: items.ids, **items.metadata}, store.schema, operation)
        merge = writer.merge_insert(registry.id_column).when_matched_update_all().conflict_retries(0)
        merge.execute(_with_kept_columns(store, writer, registry, table))
        return len(items)

    with new_columns(store) as make:
        changed = store.retry("update items", commit)
    if changed:
        tend(catalog)
    return changed


def _require_metadata_alone(items: Items, operation: str) -> None:
    given = [
        name
        for name, part in (("source", items.sources is not None), ("vector", items.vectors), ("side", items.side))
        if part
    ]
    if given:
        expected, found = "ids and metadata; a source or vector makes another item", ", ".join(given)
        raise InvalidInput(operation, expected=expected, found=found, fix="Write these items with add(upsert=True).")


def delete(catalog: Catalog, ids: Any) -> int:
    """Remove items in one commit; see `Gallery.delete`."""
    registry = catalog.registry()
    store = catalog.store
    unwanted = read_ids(ids, id_arrow_type(registry), f"delete items of {store.location.name}")
    if not unwanted:
        return 0
    deleted = 0

    def commit() -> None:
        nonlocal deleted
        writer = store.writer()
        there = known_among(writer, registry.id_column, pa.array(unwanted, id_arrow_type(registry)))
        deleted = len(there)
        if there:
            writer.delete(" OR ".join(among(registry.id_column, there)))

    store.retry("delete items", commit)
    if deleted:
        tend(catalog)
    return deleted


def _commit(catalog: Catalog, prepared: _Prepared, insert: Insert | None) -> bool:
    """Write without Lance's own retries: after a lost race the ids must be looked up again.

    Args:
        catalog: The gallery's catalog.
        prepared: The items.
        insert: Of their rows; None to replace those that are there.

    Returns:
        True if it was written; False if an upgrade began, or a version was retired, while the items were embedded:
        they lack a vector then, or have one too many.
    """
    store, registry, items = catalog.store, prepared.registry, prepared.items
    # The handle comes first: later changes are conflicts, so the reads below agree with it.
    writer = store.writer()
    if catalog.registry(writer).live != registry.live:
        return False
    if insert is None:
        rows = _with_kept_columns(store, writer, registry, prepared.table)
        insert_or_replace(store, writer, registry.id_column, rows)
    else:
        if prepared.without is None or not is_same(writer, prepared.without):
            refuse_known(writer, registry.id_column, items.ids, items.operation)
        insert.commit(store, writer)
    return True


def _with_kept_columns(store: Store, writer: Snapshot, registry: Registry, table: ArrowTable) -> ArrowTable:
    """Complete the rows of an upsert by the columns that were not given, as the rows that they replace have them.

    Lance would keep such columns by itself, but if the ids are indexed it then rewrites every fragment that it
    touches as a whole, and takes it out of the vector indexes. Columns and rows are those of the handle that writes:
    in the latest table version an abort may have dropped some, and then the write is a conflict and made again.
    """
    schema, key = writer.schema, registry.id_column
    missing = [field.name for field in schema if field.name not in table.schema.names]
    if not missing:
        return table
    kept = find(store, key, table.column(key).to_pylist(), [key, *missing], writer).combine_chunks()
    positions = pc.index_in(table.column(key), value_set=kept.column(key)).combine_chunks()
    for name in missing:
        table = table.append_column(schema.field(name), kept.column(name).take(positions))
    return table.select(schema.names)


def _stored_sources(catalog: Catalog, registry: Registry, items: Items, upsert: bool) -> ArrowArray | None:
    """`source` values of the rows after the write: given ones, or those of the rows that are replaced."""
    column = registry.source_column
    if items.sources is not None or column is None:
        return items.sources
    if not upsert:
        return pa.nulls(len(items), catalog.store.schema.field(column).type)
    kept = find(catalog.store, registry.id_column, items.ids.to_pylist(), [registry.id_column, column])
    known = dict(zip(kept.column(registry.id_column).to_pylist(), kept.column(column).to_pylist(), strict=True))
    return pa.array([known.get(i) for i in items.ids.to_pylist()], catalog.store.schema.field(column).type)
