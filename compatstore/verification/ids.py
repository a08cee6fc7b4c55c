"""Ids: every item has one, and no two have the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from compatstore.arrays import Digests
from compatstore.errors import first_offenders
from compatstore.storage.input_hash import hash_values
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding

PART_ROWS = 8_000_000  # digests that are held and sorted at a time, 64 MB


def check_ids(context: CheckContext) -> Iterator[Finding]:
    """No id is null or occurs twice."""
    nulls = context.count(f"`{context.registry.id_column}` IS NULL")
    if nulls:
        yield _wrong(f"{nulls} items have no id", "Remove them, or give them ids, where the table is written.")
    repeated = _repeated(context)
    if repeated:
        named = first_offenders(sorted(repeated, key=str))
        repair = f"Keep one of each: delete the id with Gallery.delete, then {context.command('add')} FILE"
        yield _wrong(f"{len(repeated)} ids occur more than once: {named}", repair)


def _wrong(what: str, repair: str) -> Finding:
    return Finding(check="ids", severity="error", what=what, repair=repair)


def _repeated(context: CheckContext) -> list[object]:
    """Ids that occur more than once.

    Found by their digests, a part of all digests at a time, so that memory does not grow with the gallery; then
    counted by themselves, as two ids may share a digest.
    """
    parts = 1 + context.snapshot.count_rows() // PART_ROWS
    suspects = np.concatenate([_repeated_digests(context, part, parts) for part in range(parts)])
    if not len(suspects):
        return []
    counts: Counter[object] = Counter()
    for batch in context.batches([context.registry.id_column]):
        ids = batch.column(0)
        counts.update(ids.filter(np.isin(hash_values(ids), suspects)).to_pylist())
    return [item for item, count in counts.items() if count > 1 and item is not None]


def _repeated_digests(context: CheckContext, part: int, parts: int) -> Digests:
    """Digests that occur more than once, of those that leave `part` when divided by `parts`."""
    kept = [np.zeros(0, np.uint64)]
    for batch in context.batches([context.registry.id_column]):
        digests = hash_values(batch.column(0).drop_null())
        kept.append(digests[digests % np.uint64(parts) == part])
    ordered = np.sort(np.concatenate(kept))
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
