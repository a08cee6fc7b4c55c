"""Merges that keep what upgrades have counted: a merge moves rows and changes none, so counts add up.

Without that a merge of natives after a backfill, or an `optimize`, had the next no-op upgrade read all merged rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from compatstore.storage.catalog import Catalog
from compatstore.storage.compaction import Piece, merge
from compatstore.storage.fragment_counts import counts_of
from compatstore.storage.fragments import Fragment, list_fragments
from compatstore.storage.snapshot import Snapshot


def merge_counted(catalog: Catalog, table: Snapshot, pieces: Sequence[Piece]) -> int:
    """Rewrite some fragments as one, and note of it what the counts of open upgrades say of them.

    Args:
        catalog: The gallery.
        table: A handle of its table for writing, on the version that the fragments are of; it moves on.
        pieces: The fragments.

    Returns:
        Fragments that there are fewer of now.

    Raises:
        Conflict: Another writer changed one of them; nothing was committed.
        StorageError: The disk is full.
    """
    numbers = {piece.id for piece in pieces}
    before = list_fragments(table)
    fewer = merge(catalog.store, table, pieces)
    made = _made(before, table, sum(piece.rows for piece in pieces))
    if made is not None:
        _carry(catalog, [fragment for fragment in before if fragment.id in numbers], made)
    return fewer


def _made(before: Sequence[Fragment], after: Snapshot, rows: int) -> Fragment | None:
    """The fragment that a merge has made of live rows; None where others may have added fragments with it."""
    known = {fragment.id for fragment in before}
    new = [fragment for fragment in list_fragments(after) if fragment.id not in known]
    return new[0] if rows and len(new) == 1 and new[0].rows == rows and not new[0].deleted else None


def _carry(catalog: Catalog, merged: Sequence[Fragment], made: Fragment) -> None:
    registry = catalog.registry()
    for run in registry.runs.values():
        if all(registry.record(name).columns is not None for name in (run.source, run.target)):
            counts = counts_of(catalog.store, registry, run.source, run.target)
            counts.carry(merged, made)
            counts.save()
