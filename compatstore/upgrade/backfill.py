"""The backfill: embed chosen items natively, most urgent first, and fold them into the table.

Every finished batch is durable (staged beside the table) before the next one starts. A wave of batches is folded into
the columns fragment by fragment, each in one commit; a staged vector whose item changed meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.encoders import Encoder, FloatArray, encode_readable
from compatstore.errors import UpgradeError
from compatstore.evaluation.curve import native_count
from compatstore.storage.basis import Digests, row_basis
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.fragments import Fragment, list_fragments, read_physical, replace_columns
from compatstore.storage.ids import find
from compatstore.storage.registry import Registry, RunRecord
from compatstore.storage.staging import Staging
from compatstore.upgrade.hop import read_source
from compatstore.upgrade.policies import order
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.rows import TableRows

BATCH_ROWS = 256
WAVE_ROWS = 100_000


@dataclass
class Backfill:
    """Embeds the first `floor(alpha n)` items of a run's order.

    Args:
        catalog: The gallery.
        registry: Its state.
        run: Share, policy and seed.
        unreadable: id -> why it could not be embedded; filled as the backfill goes.
    """

    catalog: Catalog
    registry: Registry
    run: RunRecord
    unreadable: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._source: VersionColumns = self.registry.columns(self.run.source)
        self._target: VersionColumns = self.registry.columns(self.run.target)
        self._staging = Staging(
            self.catalog.store.location, self.run.target, self._target.dim, id_arrow_type(self.registry)
        )

    def remaining(self) -> list[Any]:
        """Ids that are still to be embedded, most urgent first; read-only.

        Native rows count as chosen already, and the rest of the share is the first of the order among the others. A
        row that became native has lost what the policy looked at (its uncertainty, its transformed vector), but then
        it was chosen: what is left of the order that stood before the backfill is the order of what is left. So a
        rerun ends with the very set of an uninterrupted run, and rows that cannot be embedded give way to no others.
        """
        rows = TableRows(self.catalog, self.registry, self.run, self.catalog.store.snapshot())
        native = rows.native()
        chosen = order(self.run.policy, rows, self.run.seed)
        left = max(native_count(self.run.backfill, len(native)) - int(native.sum()), 0)
        todo = rows.ids.take(pa.array(chosen[~native[chosen]][:left]))
        return list(todo.to_pylist())

    def embed(self, monitor: Monitor) -> int:
        """Embed and fold all that remains.

        Returns:
            Native vectors folded into the table.

        Raises:
            Interrupted: A stop was asked for; finished batches stay staged or folded.
            UpgradeError: The target version has no encoder.
        """
        todo = self.remaining()
        if not todo:
            return self.fold()
        encoder = require_encoder(self.catalog, self.run.target)
        staged = set(self._staging.load()[0])
        folded, waiting = 0, len(staged)
        for batch in _batches([item for item in todo if item not in staged]):
            monitor.check()
            waiting += self._stage(batch, encoder)
            monitor.advance(len(batch))
            if waiting >= WAVE_ROWS:
                folded, waiting = folded + self.fold(), 0
        return folded + self.fold()

    def fold(self) -> int:
        """Write all staged vectors into the target's columns, one commit a fragment, and empty the staging."""
        ids, vectors, basis = self._staging.load()
        if not ids:
            return 0
        wave = _Wave(pa.array(ids, id_arrow_type(self.registry)), vectors, basis)
        store = self.catalog.store
        folded = 0
        for fragment_id in [fragment.id for fragment in list_fragments(store.snapshot())]:
            folded += store.retry("fold natives", lambda: self._fold_fragment(fragment_id, wave))  # noqa: B023
        self._staging.clear()
        return folded

    def _stage(self, ids: list[Any], encoder: Encoder) -> int:
        """Embed one batch and make it durable; list what cannot be embedded."""
        side = [self._source.side] if self._source.side else []
        columns = [self.registry.id_column, self._source.vector, *side]
        source_column = self.registry.source_column
        rows = find(self.catalog.store, columns[0], ids, [*columns, *([source_column] if source_column else [])])
        found = rows.column(columns[0]).to_pylist()
        sources = rows.column(source_column).to_pylist() if source_column else [None] * len(found)
        basis = self._basis(rows)
        inputs = found if encoder.reads == "id" else sources
        usable = [i for i, value in enumerate(inputs) if value is not None]
        self.unreadable |= {found[i]: "it has no source" for i, value in enumerate(inputs) if value is None}
        if not usable:
            return 0
        encoded = encode_readable(encoder, [inputs[i] for i in usable])
        self.unreadable |= {found[usable[position]]: reason for position, reason in encoded.failures.items()}
        good = [usable[position] for position in encoded.readable]
        if good:
            self._staging.append([found[i] for i in good], encoded.vectors, basis[good])
        return len(good)

    def _basis(self, rows: Any) -> Digests:
        source = read_source(self._source, rows)
        sources = rows[self.registry.source_column] if self.registry.source_column else None
        return row_basis(source.vectors, source.valid, sources)

    def _fold_fragment(self, fragment_id: int, wave: _Wave) -> int:
        store = self.catalog.store
        snapshot = store.snapshot()
        fragment = next((f for f in list_fragments(snapshot) if f.id == fragment_id), None)
        if fragment is None or not self._holds_any(snapshot, fragment, wave):
            return 0
        counter = [0]
        replace_columns(store, snapshot, fragment, self._target, self._rewrite(snapshot, fragment, wave, counter))
        return counter[0]

    def _holds_any(self, snapshot: Any, fragment: Fragment, wave: _Wave) -> bool:
        batches = read_physical(snapshot, fragment, [self.registry.id_column])
        return any((wave.positions(batch) >= 0).any() for batch in batches)

    def _rewrite(self, snapshot: Any, fragment: Fragment, wave: _Wave, counter: list[int]) -> Iterator[dict[str, Any]]:
        source_column = [self.registry.source_column] if self.registry.source_column else []
        side = [self._source.side] if self._source.side else []
        columns = [self.registry.id_column, self._source.vector, *side, *source_column, *self._target.names]
        for batch in read_physical(snapshot, fragment, columns):
            target, basis = self._target.decode(batch), self._basis(batch)
            positions = wave.positions(batch)
            rows = np.flatnonzero((positions >= 0) & (wave.basis[positions] == basis))
            if len(rows):
                target.put(rows, _native(wave.vectors[positions[rows]], basis[rows], target, rows))
                counter[0] += len(rows)
            yield self._target.encode(target)


def require_encoder(catalog: Catalog, target: str) -> Encoder:
    """The encoder of a version.

    Raises:
        UpgradeError: It has none here.
    """
    encoder = catalog.encoder(target)
    if encoder is None:
        raise UpgradeError(
            f"embed items in {target}",
            expected=f"an encoder for {target}",
            found="none: its vectors come from outside",
            fix=f"Open the gallery with encoders={{'{target}': ...}} (a Precomputed one will do), "
            "or upgrade without a backfill.",
        )
    return encoder


@dataclass(frozen=True)
class _Wave:
    """Staged rows of one fold: Arrow ids, (n, dim) float32, (n,) uint64."""

    ids: Any
    vectors: FloatArray
    basis: Digests

    def positions(self, batch: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each live row of a batch is in the wave, -1 where it is not: (rows,) int64."""
        found = pc.index_in(batch.column(0), value_set=self.ids).fill_null(-1).to_numpy(zero_copy_only=False)
        live = batch["_rowid"].is_valid().to_numpy(zero_copy_only=False)
        positions: np.ndarray[Any, np.dtype[np.int64]] = np.where(live, found, -1).astype(np.int64)
        return positions


def _native(vectors: FloatArray, basis: Digests, before: VersionValues, rows: Any) -> VersionValues:
    """Values of native vectors; side-information that a hop made stays."""
    n = len(vectors)
    return VersionValues(
        vectors=vectors,
        valid=np.ones(n, bool),
        origin=np.full(n, NATIVE, object),
        uncertainty=np.full(n, np.nan, np.float32),
        basis=basis,
        side=None if before.side is None else before.side[rows],
        side_valid=before.side_valid[rows],
    )


def _batches(ids: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(ids), BATCH_ROWS):
        yield ids[start : start + BATCH_ROWS]
