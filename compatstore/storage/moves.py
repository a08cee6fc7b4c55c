"""Rows that move: whole rows written again in one commit, and the rows that changed between two versions of a table.

Moving costs a row's width for each row, wherever the rows lie; replacing columns (see `fragments.py`) costs the columns
of every fragment that holds one of them. Lance refuses the commit when another writer changed one of the fragments
since. The written files stay valid as long as the rows themselves are unchanged, and only the commit is repeated.

Data files and marks of deleted rows never change. So a fragment whose columns lie in the same files has the same
values, and one with other marks has lost rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import ArrowBatch, ArrowTable, Digests
from compatstore.storage.fragments import Fragment, file_names, write_whole
from compatstore.storage.ids import ADDRESS
from compatstore.storage.snapshot import Snapshot, lance
from compatstore.storage.store import Store

SAMPLE_ROWS = 256


@dataclass(frozen=True)
class Move:
    """Rows that were written and that no commit has put into the table yet.

    Attributes:
        written: Lance's metadata of the new fragments.
        offsets: Physical rows that they replace, by fragment.
        files: Data files of those fragments when the rows were read; files never change: equal names mean equal rows.
    """

    written: Sequence[Any]
    offsets: Mapping[int, npt.NDArray[np.int64]]
    files: Mapping[int, tuple[str, ...]]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(len(offsets) for offsets in self.offsets.values())


def unmovable(snapshot: Snapshot) -> str | None:
    """The reason why rows of this table cannot be moved, or None."""
    if snapshot.has_stable_row_ids:
        return "its rows have stable ids, which moving would change"
    read = snapshot.to_table(limit=0).schema
    references = [field.name for field in snapshot.schema if read.field(field.name).type != field.type]
    return f"its column {references[0]} holds blobs, which are not read with the rows" if references else None


def row_bytes(snapshot: Snapshot) -> float:
    """Bytes that a whole row takes on disk, about: by the sizes of the data files, or of some rows in memory."""
    fragments = [fragment.metadata for fragment in snapshot.get_fragments()]
    sizes = [file.file_size_bytes for fragment in fragments for file in fragment.files]
    if sizes and all(sizes):
        return float(sum(sizes) / sum(fragment.physical_rows for fragment in fragments))
    sample = snapshot.to_table(limit=SAMPLE_ROWS)
    return float(sample.nbytes / max(sample.num_rows, 1))


def write_rows(store: Store, snapshot: Snapshot, rows: ArrowTable) -> Move:
    """Write whole rows, durably; no reader sees them before `commit_move`.

    Args:
        store: The table.
        snapshot: The table version that the rows were read from.
        rows: Whole rows as `read_rows` gives them, changed at will but for their addresses.

    Raises:
        StorageError: The disk is full.
    """
    addresses = rows.column(ADDRESS).to_numpy().astype(np.int64)
    fragments, offsets = addresses >> 32, addresses & 0xFFFFFFFF
    schema = snapshot.schema
    written = write_whole(store.location, "data", rows.select(schema.names), snapshot, mode="append", schema=schema)
    touched = [int(fragment) for fragment in np.unique(fragments)]
    return Move(
        written=written,
        offsets={fragment: offsets[fragments == fragment] for fragment in touched},
        files={fragment: file_names(snapshot.get_fragment(fragment).metadata) for fragment in touched},
    )


def commit_move(store: Store, snapshot: Snapshot, move: Move) -> bool:
    """Put moved rows into the table and delete those that they replace, in one commit.

    Args:
        store: The table.
        snapshot: Its latest version.
        move: From `write_rows`, of this version or an earlier one.

    Returns:
        True if it was done; False if one of the rows was changed or deleted since it was read.

    Raises:
        CommitConflictError: Another writer changed one of the fragments after the snapshot; nothing is committed.
    """
    updated, removed = [], []
    for fragment_id, offsets in move.offsets.items():
        fragment = snapshot.get_fragment(fragment_id)
        if fragment is None or file_names(fragment.metadata) != move.files[fragment_id]:
            return False
        rest = fragment.delete_rows(offsets.tolist())
        if fragment.metadata.num_rows - (rest.num_rows if rest else 0) != len(offsets):
            return False
        if rest:
            updated.append(rest)
        else:
            removed.append(fragment_id)
    operation = lance.LanceOperation.Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=list(move.written),
        update_mode="rewrite_rows",
    )
    store.commit(operation, snapshot.version)
    return True


_BATCH_ROWS = 8192


@dataclass(frozen=True)
class ChangedFragments:
    """The differences between the fragments of two table versions, by their numbers.

    Attributes:
        left: Fragments whose rows, as they were read, count no more.
        shrunk: Fragments that lost rows, and changed in nothing else.
        fresh: Fragments that are to be read.
    """

    left: tuple[int, ...]
    shrunk: tuple[int, ...]
    fresh: tuple[int, ...]

    @classmethod
    def between(cls, before: Sequence[Fragment], now: Sequence[Fragment]) -> ChangedFragments:
        """Compare two lists of the fragments of the same columns."""
        former, present = ({fragment.id: fragment for fragment in state} for state in (before, now))
        kept = {n for n, fragment in former.items() if n in present and present[n].files == fragment.files}
        return cls(
            left=tuple(former.keys() - kept),
            shrunk=tuple(n for n in sorted(kept) if present[n].deleted != former[n].deleted),
            fresh=tuple(sorted(present.keys() - kept)),
        )


def read_fragments(
    snapshot: Snapshot, numbers: Sequence[int], columns: Sequence[str], condition: str | None = None
) -> Iterator[ArrowBatch]:
    """Rows of some fragments that fulfil an SQL condition, in order, with `_rowaddr`."""
    if not numbers:
        return
    scanner = snapshot.scanner(  # Lance's `to_batches` takes `fragments` and reads all of them
        fragments=[snapshot.get_fragment(number) for number in numbers],
        columns=list(columns),
        filter=condition,
        batch_size=_BATCH_ROWS,
        scan_in_order=True,
        with_row_address=True,
    )
    yield from scanner.to_batches()


def addresses(snapshot: Snapshot, condition: str | None = None, numbers: Sequence[int] | None = None) -> Digests:
    """Addresses of rows that fulfil an SQL condition, of all fragments or of some: (n,) uint64, in any order."""
    chosen = None if numbers is None else [snapshot.get_fragment(number) for number in numbers]
    found = snapshot.scanner(columns=[], filter=condition, fragments=chosen, with_row_address=True).to_table()
    rows: Digests = found[ADDRESS].to_numpy()
    return rows
