"""Items by their ids, in an index of them, and rows by their addresses, which are read at once.

An address is the number of a fragment and a place in it. Rows move, when their natives are written or fragments are
merged, so an address is that of an earlier read: the row there must have the id, or the id is looked up after all.
Pages of the index of ids stay in memory, so lookups all over a gallery take memory by its rows; addresses do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowTable, ArrowType, Id, RowNumbers
from compatstore.boundary import foreign, shown
from compatstore.errors import InvalidInput, NotFound, first_offenders
from compatstore.storage.indexes import update_index
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store

CHUNK = 5_000
NAMED = 5  # ids in a message
SCANNED = 100  # times some ids, all the ids that a scan compares in the time of as many look-ups
SCANNED_AT_ONCE = 1 << 20
SMALLEST = -(2**63)
# Rows appended since the index was built are found by a scan; past this many they are indexed.
UNINDEXED_ROWS = 20_000


def literal(value: object) -> str:
    """An SQL literal of an id or other value; quotes doubled, so that no value ends its string.

    Raises:
        InvalidInput: It is neither text nor a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidInput("name an item", expected="an id that is text or a whole number", found=repr(value))
    if value == SMALLEST:  # read as minus a number that is one too large
        return f"CAST('{value}' AS BIGINT)"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''") + "'"


def read_ids(ids: Any, kind: ArrowType, operation: str) -> list[Id]:
    """Ids as a list; one id counts as a list of one.

    Args:
        ids: One id, or a list, Arrow or NumPy array of ids.
        kind: Arrow type of the gallery's ids.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: Some are not of the gallery's type; the first offenders are named.
    """
    with foreign(operation, "a list or array of ids"):
        given = ids.to_pylist() if hasattr(ids, "to_pylist") else ids.tolist() if hasattr(ids, "tolist") else ids
        given = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    wanted = [item.item() if isinstance(item, np.generic) else item for item in given]
    whole = pa.types.is_integer(kind)
    wrong = [item for item in wanted if not (_is_int64(item) if whole else isinstance(item, str))]
    if wrong:
        expected = f"ids that are {'whole numbers of 64 bits' if whole else 'text'}"
        raise InvalidInput(operation, expected=expected, found=first_offenders([shown(item) for item in wrong]))
    return wanted


def _is_int64(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and -(2**63) <= item < 2**63


def column(name: str) -> str:
    """An SQL identifier, quoted."""
    return "`" + name.replace("`", "``") + "`"


def among(id_column: str, ids: Sequence[Id]) -> Iterator[str]:
    """SQL conditions that together select the rows of those ids, a few thousand ids each."""
    for start in range(0, len(ids), CHUNK):
        values = ",".join(literal(value) for value in ids[start : start + CHUNK])
        yield f"{column(id_column)} IN ({values})"


def find(
    store: Store, id_column: str, ids: Sequence[Id], columns: Sequence[str], snapshot: Snapshot | None = None
) -> ArrowTable:
    """Rows of those ids, in any order, as an Arrow table; from the latest table version if no snapshot is given."""
    return _read(store.snapshot() if snapshot is None else snapshot, columns, among(id_column, ids), addresses=False)


def known_among(snapshot: Snapshot, id_column: str, ids: ArrowArray) -> list[Id]:
    """Those of some ids that a table version has: by the ids' index, or by a scan where that takes less time.

    Args:
        snapshot: The table version.
        id_column: Column of the ids.
        ids: Arrow array of them.
    """
    if len(ids) > CHUNK:
        # New ids often come after all others: the index counts none between the first and the last of them.
        first, last = (literal(end) for end in pc.min_max(ids).as_py().values())
        between = f"{column(id_column)} >= {first} AND {column(id_column)} <= {last}"
        if snapshot.count_rows(between) <= SCANNED * len(ids):
            # Arrow hashes the ids for each batch again: few large ones.
            batches = snapshot.to_batches(columns=[id_column], filter=between, batch_size=SCANNED_AT_ONCE)
            held = (batch[id_column].cast(ids.type) for batch in batches)
            return [known for part in held for known in part.filter(pc.is_in(part, value_set=ids)).to_pylist()]
    return list(_read(snapshot, [id_column], among(id_column, ids.to_pylist()), addresses=False)[id_column].to_pylist())


def first_of(snapshot: Snapshot, id_column: str, condition: str) -> list[Id]:
    """Ids of some rows of a table version that fulfil an SQL condition, for messages."""
    ids: list[Id] = snapshot.to_table(columns=[id_column], filter=condition, limit=NAMED).column(id_column).to_pylist()
    return ids


def named(ids: Sequence[Id], count: int) -> str:
    """The first ids, and how many more there are: "a, b, c (and 7 more)"."""
    return first_offenders([*ids, *[""] * (count - len(ids))], max(len(ids), 1)) if ids else "none"


def refuse_repeats(ids: ArrowArray, operation: str) -> None:
    """Refuse an Arrow array in which an id is null or occurs twice.

    Raises:
        InvalidInput: An id is null. An id occurs twice; the first offenders are named.
    """
    refuse_null_ids(ids, operation)
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    if repeated:
        found = f"repeated ids {first_offenders(repeated)}"
        raise InvalidInput(
            operation, expected="each id once", found=found, fix="Remove the repeats.", duplicates=repeated
        )


def refuse_null_ids(ids: ArrowArray, operation: str) -> None:
    """Refuse an Arrow array in which an id is null.

    Raises:
        InvalidInput: One is.
    """
    if ids.null_count:
        positions = [i for i, valid in enumerate(ids.is_valid().to_pylist()) if not valid]
        raise InvalidInput(
            operation, expected="an id for every item", found=f"none at row {first_offenders(positions)}"
        )


def refuse_known(snapshot: Snapshot, id_column: str, ids: ArrowArray, operation: str) -> None:
    """Refuse ids that a table version has.

    Raises:
        InvalidInput: Some are there; the first are named.
    """
    known = known_among(snapshot, id_column, ids)
    if known:
        found = f"ids already in the gallery: {first_offenders(sorted(known))}"
        fix = f"Replace those items with {next_step.option('upsert', True)}, or leave them out."
        raise InvalidInput(operation, expected="new ids", found=found, fix=fix, duplicates=known)


def refuse_unknown(store: Store, id_column: str, ids: ArrowArray, operation: str) -> None:
    """Refuse ids that the gallery does not have.

    Raises:
        NotFound: Some are not there; the first are named.
    """
    known = set(find(store, id_column, ids.to_pylist(), [id_column]).column(id_column).to_pylist())
    unknown = [item for item in ids.to_pylist() if item not in known]
    if unknown:
        found = f"no item {first_offenders(unknown)}"
        fix = "Check the ids: leave these out, or add the items first."
        raise NotFound(operation, expected="ids that are in the gallery", found=found, kind="item", fix=fix)


def build_index(store: Store, id_column: str) -> None:
    """Index the ids, unless they are."""
    if not _index_name(store, id_column):
        store.retry("index the ids", lambda: store.writer().create_scalar_index(id_column, "BTREE"))


def refresh_index(store: Store, id_column: str) -> None:
    """Take appended rows into the index once there are many, so that finding ids stays fast, unless there is none."""
    name = _index_name(store, id_column)
    if name is not None:
        update_index(store, [name], more_than=UNINDEXED_ROWS)


def _index_name(store: Store, id_column: str) -> str | None:
    for index in store.snapshot().describe_indices():
        if list(index.field_names) == [id_column] and index.index_type in ("BTree", "BTREE"):
            return str(index.name)
    return None


ADDRESS = "_rowaddr"  # Lance's column of the address of a row
UNKNOWN = -1  # address of a row that is to be found by its id


def at_addresses(rows: Sequence[int]) -> Iterator[str]:
    """SQL conditions that together select the rows at these addresses, a few thousand each."""
    for start in range(0, len(rows), CHUNK):
        yield f"{ADDRESS} IN ({','.join(map(str, rows[start : start + CHUNK]))})"


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
        ids: n ids. In an app's table an id may be in several rows.
        addresses: (n,) int64, row addresses at the last read, `UNKNOWN` if unknown. Of an
            id whose row is there still no other row is read.
        columns: Columns to read, with `id_column`; None for whole rows.
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


def _read(
    snapshot: Snapshot, columns: Sequence[str] | None, conditions: Iterator[str], *, addresses: bool = True
) -> ArrowTable:
    settings = {"columns": None if columns is None else list(columns), "with_row_address": addresses}
    parts = [snapshot.to_table(filter=condition, **settings) for condition in conditions]
    return pa.concat_tables(parts) if parts else snapshot.to_table(limit=0, **settings)
