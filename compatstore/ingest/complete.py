"""Complete items: every live version gets its vector, given, embedded or transformed.

While an upgrade is open this is the dual writing: an item that is added with the source's vector gets the target's in
the same commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowSchema, ArrowTable, BoolArray
from compatstore.digests import mix
from compatstore.encoders import Encoder, encode_readable
from compatstore.errors import InvalidInput
from compatstore.ingest.arrow import cast_columns
from compatstore.ingest.items import Items
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE, InputHashes, VersionValues, hash_values
from compatstore.storage.ids import find
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import Registry
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.transform import transformer_of

Unembedded = Literal["refuse", "keep"]


@dataclass(frozen=True)
class Completion:
    """Finds a vector for every item in every live version.

    Args:
        items: n checked items.
        catalog: The gallery's versions.
        registry: Its state.
        sources: Arrow array of the n `source` values that the rows will have, or None.
    """

    items: Items
    catalog: Catalog
    registry: Registry
    sources: ArrowArray | None

    def complete(
        self, version: str, unembedded: Unembedded, *, upsert: bool
    ) -> tuple[dict[str, VersionValues], dict[int, str]]:
        """Find the vectors.

        Args:
            version: Version that must have a vector: given, or embedded from the sources.
            unembedded: Handling of rows for which there is neither a vector nor a way to embed; "keep" leaves them
                without a vector.
            upsert: True if rows are replaced: a native vector of a version that the caller did not give stays if the
                `source` value stays.

        Returns:
            values: By version, the values of n rows.
            failures: Row -> the reason why it could not be embedded.

        Raises:
            InvalidInput: There are such rows, and `unembedded` is "refuse".
        """
        failures: dict[int, str] = {}
        primary = self.registry.record(version)
        values = {record.name: _given_values(self.items, record) for record in self.registry.live}
        missing = ~values[version].valid
        if unembedded == "keep":
            inputs = self._inputs(self.catalog.encoder(version)) or [None] * len(self.items)
            missing &= np.array([value is not None for value in inputs], bool)
        if missing.any():
            failures = self._embed(values[version], missing, primary)
        for record in _bases_first(self.registry):
            mine, transformed = values[record.name], np.zeros(len(self.items), bool)
            if record.name != version:
                if upsert and record.input_version is not None and self.sources is not None:
                    self._keep_natives(mine, record)
                transformed = self._transform(values, record)
                todo = ~mine.valid
                if todo.any() and self.sources is not None and self.catalog.encoder(record.name) is not None:
                    self._embed(mine, todo, record)
            if record.input_version is not None:
                base = values[record.input_version]
                now = InputHashes.of(base.vectors, base.valid, self.sources)
                mine.input_hash = np.where(transformed, now.transformed, now.native)
        return values, failures

    def _keep_natives(self, mine: VersionValues, record: VersionRecord) -> None:
        """Fill in the native vectors that the replaced rows have, if the model would read the same `source` again."""
        columns, key, store = record.columns, self.registry.id_column, self.catalog.store
        if columns is None or columns.origin is None or columns.input_hash is None:
            return
        snapshot = store.snapshot()
        if not set(columns.names) <= set(snapshot.schema.names):  # another process has dropped the version meanwhile
            return
        ids = self.items.ids.filter(pa.array(~mine.valid)).to_pylist()
        former = find(store, key, ids, [key, columns.origin, columns.input_hash], snapshot).combine_chunks()
        rows = pc.index_in(former[key].combine_chunks(), value_set=self.items.ids).to_numpy(zero_copy_only=False)
        values = hash_values(self.sources)[rows]
        native = pc.equal(former[columns.origin], NATIVE).fill_null(False).to_numpy(zero_copy_only=False)
        stay = native & (values != 0) & (former[columns.input_hash].fill_null(0).to_numpy() == mix(values))
        if not stay.any():
            return
        kept = find(store, key, former[key].filter(pa.array(stay)).to_pylist(), [key, *columns.names], snapshot)
        rows = pc.index_in(kept[key].combine_chunks(), value_set=self.items.ids).to_numpy(zero_copy_only=False)
        natives = columns.decode(kept)
        if mine.side is not None:  # the caller's
            natives.side, natives.side_valid = None, mine.side_valid[rows]
        mine.put(rows, natives)

    def _transform(self, values: dict[str, VersionValues], record: VersionRecord) -> BoolArray:
        """Transform the vectors of an open upgrade that the caller did not give: (n,) bool, rows that were tried."""
        mine = values[record.name]
        run = self.registry.runs.get(record.name)
        if run is None or not (run.open and run.path and run.source in values):
            return np.zeros(len(mine.valid), bool)
        base = values[run.source]
        todo = base.valid & ~mine.valid
        if todo.any():
            transformer_of(self.catalog, run).fill(mine, base, todo)
        return todo & mine.valid

    def _embed(self, values: VersionValues, todo: BoolArray, record: VersionRecord) -> dict[int, str]:
        """Embed rows natively, side-information with them; return the failures."""
        encoder = self.catalog.encoder(record.name)
        rows = np.flatnonzero(todo)
        inputs = self._inputs(encoder)
        if encoder is None or inputs is None:
            raise InvalidInput(
                f"{self.items.operation} with version {record.name}",
                expected=f"a vector for each item, or sources and an encoder for {record.name}",
                found=f"{len(rows)} items without a vector"
                + (", and no encoder" if encoder is None else ", and no sources"),
                fix=f'Give a column "vector", or a column "source" and the model: {next_step.encoder(record.name)}.',
            )
        encoded = VectorForm.of(record).keep(encode_readable(encoder, [inputs[row] for row in rows]))
        good = rows[encoded.readable]
        values.vectors[good] = encoded.vectors
        values.valid[good] = True
        values.origin[good] = NATIVE
        side_encoder = self.catalog.side_encoder(record.name)
        if side_encoder is not None and values.side is None and len(good):
            inputs = self._inputs(side_encoder)
            if inputs is not None:
                side = encode_readable(side_encoder, [inputs[row] for row in good])
                values.side = np.zeros((len(values.valid), side_encoder.dim), np.float32)
                values.side[good[side.readable]] = side.vectors
                values.side_valid[good[side.readable]] = True
        return {int(rows[position]): reason for position, reason in encoded.failures.items()}

    def _inputs(self, encoder: Encoder | None) -> list[Any] | None:
        """Inputs of an encoder: ids, or sources; None if there are none, or there is no encoder."""
        if encoder is not None and encoder.reads == "id":
            return list(self.items.ids.to_pylist())
        return None if encoder is None or self.sources is None else list(self.sources.to_pylist())


def _bases_first(registry: Registry) -> list[VersionRecord]:
    """Live versions, each after the one it is made from."""
    order: list[VersionRecord] = []
    waiting = list(registry.live)
    while waiting:
        done = {record.name for record in order}
        ready = [r for r in waiting if r.input_version is None or r.input_version in done]
        order += ready or waiting
        waiting = [record for record in waiting if record not in order]
    return order


def _given_values(items: Items, record: VersionRecord) -> VersionValues:
    """Given vectors as they will be stored; vectors that no search could find are refused."""
    values = VersionValues.absent(len(items), record.dim)
    if record.name in items.vectors:
        matrix, valid = items.vectors[record.name]
        form = VectorForm.of(record)
        matrix = form.stored(matrix)
        form.require(matrix, valid, items.ids, f"{items.operation}, vectors of {record.name}")
        values.vectors = matrix if valid.all() else np.where(valid[:, None], matrix, np.float32(0))
        values.valid = valid.copy()
        values.origin[valid] = NATIVE
    if record.name in items.side:
        values.side, values.side_valid = items.side[record.name]
    return values


def to_table(items: Items, values: dict[str, VersionValues], registry: Registry, schema: ArrowSchema) -> ArrowTable:
    """The Arrow table that is written: ids, given sources and metadata, all columns of all live versions."""
    columns: dict[str, Any] = {registry.id_column: items.ids}
    if items.sources is not None and registry.source_column:
        columns[registry.source_column] = items.sources
    columns.update(items.metadata)
    for name, kept in registry.stored.items():
        columns.update(kept.encode(values[name]))
    return cast_columns(columns, schema, items.operation)
