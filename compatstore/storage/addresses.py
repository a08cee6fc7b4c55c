"""Rows by their addresses: an address is read at once, where an id is looked up in an index of all ids.

An address is the number of a fragment and a place in it. Rows move, when their natives are written or fragments are
merged, so an address says where a row was: the row there must have the id, or the id is looked up after all. Pages of
the index of ids stay in memory, so that ids looked up all over a gallery take memory by its rows; addresses do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, Id, RowNumbers
from compatstore.storage.ids import among
from compatstore.storage.snapshot import Snapshot

ADDRESS = "_rowaddr"  # Lance's column of the address of a row
UNKNOWN = -1  # address of a row that is to be found by its id
_CHUNK = 5_000


def at_addresses(rows: Sequence[int]) -> Iterator[str]:
    """SQL conditions that together select the rows at these addresses, a few thousand each."""
    for start in range(0, len(rows), _CHUNK):
        yield f"{ADDRESS} IN ({','.join(map(str, rows[start : start + _CHUNK]))})"


def rows_at(snapshot: Snapshot, rows: RowNumbers, columns: Sequence[str]) -> ArrowTable:
    """Columns of the rows at n addresses, in their order; an address may occur again."""
    distinct, places = np.unique(rows, return_inverse=True)
    table = _read(snapshot, columns, at_addresses(distinct.tolist()))
    order = np.argsort(table[ADDRESS].to_numpy())
    return table.select(list(columns)).combine_chunks().take(pa.array(order[places]))


def read_rows(
    snapshot: Snapshot,
    id_column: str,
    ids: Sequence[Id],
    addresses: RowNumbers | None = None,
    columns: Sequence[str] | None = None,
) -> ArrowTable:
    """Rows of those ids, each once and in any order, as an Arrow table with their addresses in the column `ADDRESS`.

    Args:
        snapshot: The table version that is read.
        id_column: Column of the ids.
        ids: n ids. In a table that others own an id may stand in several rows.
        addresses: (n,) int64, where the rows were when they were read last, `UNKNOWN` where that is not known. Of an
            id whose row is there still no other row is read.
        columns: What is read, `id_column` with it; None for whole rows.
    """
    if addresses is None:
        return _read(snapshot, columns, among(id_column, ids))
    there = _read(snapshot, columns, at_addresses(addresses[addresses != UNKNOWN].tolist()))
    found = there[ADDRESS].to_numpy().astype(np.int64)
    sorting = np.argsort(found)
    places = np.searchsorted(found, addresses, sorter=sorting)
    places = sorting[np.minimum(places, len(found) - 1)] if len(found) else np.zeros(len(addresses), np.int64)
    stays = np.zeros(len(addresses), bool)
    if len(found):
        held = there[id_column].combine_chunks().take(pa.array(places))
        same = pc.equal(held, pa.array(list(ids), held.type)).to_numpy(zero_copy_only=False)
        stays = (found[places] == addresses) & same
    there = there.take(pa.array(np.unique(places[stays])))
    moved = [ids[int(row)] for row in np.flatnonzero(~stays)]
    if not moved:
        return there
    elsewhere = _read(snapshot, columns, among(id_column, moved))
    new = pc.invert(pc.is_in(elsewhere[ADDRESS], value_set=there[ADDRESS].combine_chunks()))
    return pa.concat_tables([there, elsewhere.filter(new)])


def _read(snapshot: Snapshot, columns: Sequence[str] | None, conditions: Iterator[str]) -> ArrowTable:
    chosen = None if columns is None else list(columns)
    parts = [snapshot.to_table(columns=chosen, filter=one, with_row_address=True) for one in conditions]
    return pa.concat_tables(parts) if parts else snapshot.to_table(columns=chosen, limit=0, with_row_address=True)
