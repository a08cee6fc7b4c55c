"""A random sample of a gallery, embedded in both versions of an upgrade; read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.encoders import FloatArray, encode_readable
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns, VersionValues
from compatstore.storage.ids import find
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.backfilling.policies import random_scores
from compatstore.upgrade.hop import read_source
from compatstore.upgrade.transform import transformer_of

SMALLEST_SAMPLE = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """n items in random order.

    Args:
        ids: Arrow array.
        source: Their vectors, and side-information, in the source.
        served: Their vectors in the target as the table has them now.
        native: (n, dim) float32, embedded with the target's model.
        labels: (n,) what is correct, or None.
        population: Items that they were drawn from.
    """

    ids: Any
    source: VersionValues
    served: VersionValues
    native: FloatArray
    labels: npt.NDArray[Any] | None
    population: int

    def served_only(self) -> Sample:
        """The items that searches in the target find."""
        rows = self.served.valid
        return Sample(
            ids=self.ids.filter(rows),
            source=self.source.take(rows),
            served=self.served.take(rows),
            native=self.native[rows],
            labels=None if self.labels is None else self.labels[rows],
            population=self.population,
        )


def draw_sample(
    catalog: Catalog, run: RunRecord, size: int, *, labels: str | None = None, seed: int = 0, skip: int = 0
) -> Sample:
    """Draw items and embed them natively; those that are native in the table are taken as they are.

    The order is a function of ids and seed alone: what one sample leaves is what `skip` lets another one begin with.

    Args:
        catalog: The gallery.
        run: The upgrade, settled.
        size: Items to draw.
        labels: Column of labels, or None.
        seed: Of the draw.
        skip: Items of the order to leave out, because an earlier sample had them.

    Raises:
        UpgradeError: Too few items could be embedded natively.
        InvalidInput: There is no such column of labels.
    """
    registry = catalog.registry()
    rows, population = _draw(catalog, registry, run, size, labels, seed, skip)
    source, served, native, kept = _embed(catalog, registry, run, rows)
    return Sample(
        ids=rows.column(registry.id_column).take(kept),
        source=source,
        served=served,
        native=native,
        labels=rows.column(labels).take(kept).to_numpy() if labels else None,
        population=max(population, len(kept)),
    )


def _draw(
    catalog: Catalog, registry: Registry, run: RunRecord, size: int, labels: str | None, seed: int, skip: int
) -> tuple[Any, int]:
    """Items that have a vector in the source, with all that is read of them, in random order; and how many have."""
    store, key = catalog.store, registry.id_column
    source = registry.columns(run.source)
    schema = store.schema.names
    if labels is not None and labels not in schema:
        raise InvalidInput(
            f"try the upgrade to {run.target}", expected=f"labels in one of {', '.join(schema)}", found=labels
        )
    ids = store.scan([key], source.present).column(key).combine_chunks()
    chosen = ids.take(np.argsort(-random_scores(ids, "estimate", seed), kind="stable")[skip : skip + size])
    extra = [name for name in (registry.source_column, labels, source.side) if name]
    target = registry.record(run.target).columns
    columns = [key, source.vector, *extra, *(target.names if target else [])]
    rows = find(store, key, chosen.to_pylist(), list(dict.fromkeys(columns))).combine_chunks()
    return rows.take(np.argsort(-random_scores(rows.column(key), "estimate", seed), kind="stable")), len(ids)


def _embed(
    catalog: Catalog, registry: Registry, run: RunRecord, rows: Any
) -> tuple[VersionValues, VersionValues, FloatArray, npt.NDArray[np.intp]]:
    """Source and target values and native vectors of the rows that have all that is needed, and which these are."""
    source = read_source(registry.columns(run.source), rows)
    record = registry.record(run.target)
    served = _served(record.columns, record.dim, rows)
    native, known = served.vectors.copy(), served.valid & (served.origin == "native")
    usable = transformer_of(catalog, run).possible(source) if run.path else source.valid
    todo = np.flatnonzero(usable & ~known)
    encoder = catalog.encoder(run.target)
    column = registry.id_column if encoder is not None and encoder.reads == "id" else registry.source_column
    if encoder is not None and column is not None and len(todo):
        inputs = rows.column(column).take(todo).to_pylist()
        there = [i for i, value in enumerate(inputs) if value is not None]
        encoded = encode_readable(encoder, [inputs[i] for i in there])
        good = todo[[there[i] for i in encoded.readable]]
        native[good], known[good] = encoded.vectors, True
    kept = np.flatnonzero(usable & known)
    if len(kept) < SMALLEST_SAMPLE:
        raise UpgradeError(
            f"try the upgrade to {run.target}",
            expected=f"{SMALLEST_SAMPLE} items with a native vector in {run.target}, or an encoder and sources",
            found=f"{len(kept)}" + (" and no encoder" if encoder is None else ""),
            fix=f"Open the gallery with encoders={{'{run.target}': ...}}.",
        )
    return source.take(kept), served.take(kept), native[kept], kept


def _served(columns: VersionColumns | None, dim: int, rows: Any) -> VersionValues:
    """The target's values as the table has them; none before the upgrade began."""
    if columns is not None:
        return columns.decode(rows)
    return VersionValues.absent(rows.num_rows, dim)
