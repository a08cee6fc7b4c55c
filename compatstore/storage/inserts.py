"""Inserts: of two processes that write items at once, the later one looks its ids up again.

Lance lets two commits pass that add fragments to one table version, whatever ids these hold: a merge by an index of the
ids compares none with those that others inserted meanwhile. It refuses the later of two that take out one fragment. So
each insert takes out a fragment that no table has: a delete, an index, a merge of fragments or the columns of an
upgrade are in its way no more than in that of an append.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compatstore.arrays import ArrowTable
from compatstore.storage.fragments import write_whole
from compatstore.storage.snapshot import Writer, lance
from compatstore.storage.store import Store

NO_FRAGMENT = 2**32 - 2  # Lance counts fragments from 0, in 32 bits


class Insert:
    """Rows with new ids, which are written once and committed by as many attempts as it takes.

    Args:
        rows: Arrow table of them; columns that it lacks are null.
    """

    def __init__(self, rows: ArrowTable) -> None:
        self._rows = rows
        self._schema: Any = None
        self._fragments: Sequence[Any] = ()

    def commit(self, store: Store, writer: Writer) -> None:
        """Commit the rows on top of a table version that has none of their ids.

        Raises:
            CommitConflictError: Others inserted items since, or changed the columns.
        """
        if self._schema != writer.lance_schema:  # the fields of a file are those of the version it is written for
            self._fragments = write_whole(store.location, "data", self._rows, writer, mode="append")
            self._schema = writer.lance_schema
        inserted = lance.LanceOperation.Update(
            new_fragments=list(self._fragments), removed_fragment_ids=[NO_FRAGMENT], update_mode="rewrite_rows"
        )
        store.commit(inserted, writer.version)


def insert_or_replace(store: Store, writer: Writer, key: str, rows: ArrowTable) -> None:
    """Commit rows on top of a table version, in place of those that have their ids.

    Raises:
        CommitConflictError: Others inserted items since, or changed those or the columns.
    """
    merge = writer.merge_insert(key).when_matched_update_all().when_not_matched_insert_all()
    merged, _ = merge.execute_uncommitted(rows)
    removed = [*merged.operation.removed_fragment_ids, NO_FRAGMENT]
    store.commit(replace(merged.operation, removed_fragment_ids=removed), writer.version)
