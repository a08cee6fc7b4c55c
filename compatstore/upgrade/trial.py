"""Try an upgrade on a sample: embed it natively, transform it, measure every way to serve the gallery; read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.encoders import FloatArray, encode_readable
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation import DecisionSettings, DecisionTable, Trial, decide
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns, VersionValues
from compatstore.storage.ids import find
from compatstore.storage.registry import Registry, RunRecord
from compatstore.upgrade.hop import read_source
from compatstore.upgrade.policies import order, random_scores
from compatstore.upgrade.rows import COSINE_SCALE, ArrayRows
from compatstore.upgrade.transform import transformer_of

QUERIES = 1 / 4
SMALLEST_SAMPLE = 40


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """How an upgrade is tried.

    Args:
        sample: Items to look at; a quarter of them are the queries.
        labels: Column that says what is correct, or None: then it is what the target itself finds.
        criterion: The figure that decides: "cmc@1", "cmc@5" or "map".
        shares: Budgets between a hop alone and a full backfill, in (0, 1).
        seed: Of the sample and of the bootstrap.

    Raises:
        InvalidInput: The sample is too small.
    """

    sample: int = 2000
    labels: str | None = None
    criterion: str = "cmc@1"
    shares: tuple[float, ...] = (0.1, 0.25, 0.5)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample < SMALLEST_SAMPLE:
            raise InvalidInput("try an upgrade", expected=f"a sample >= {SMALLEST_SAMPLE}", found=f"{self.sample}")


def try_upgrade(catalog: Catalog, run: RunRecord, settings: SampleSettings) -> DecisionTable:
    """Measure an upgrade on items of the gallery before, or while, it runs.

    Items that are native in the target already are taken as they are, the others are embedded for the trial and
    not kept. The sample stands in for queries and gallery alike: figures of a larger gallery are lower, the order of
    the ways is what the trial is for.

    Args:
        catalog: The gallery.
        run: Its upgrade, settled: the path and the order of the backfill.
        settings: Size of the sample and what decides.

    Raises:
        UpgradeError: There is nothing to transform with, or too few items could be embedded natively.
        InvalidInput: There is no such column of labels, or too few items.
    """
    registry = catalog.registry()
    if not run.path:
        raise UpgradeError(
            f"try the upgrade to {run.target}",
            expected="an artifact to transform with",
            found="none: everything would be embedded natively",
            fix="Link one: compatstore link GALLERY ARTIFACT",
        )
    rows = _draw(catalog, registry, run, settings)
    source, native, kept = _embed(catalog, registry, run, rows)
    ids = rows.column(registry.id_column).take(kept)
    labels = rows.column(settings.labels).take(kept).to_numpy() if settings.labels else None
    transformed = transformer_of(catalog, run).apply(source)
    queries = np.arange(len(kept)) < int(len(kept) * QUERIES)
    trial = Trial(
        source_queries=source.vectors[queries],
        target_queries=native[queries],
        source=source.vectors[~queries],
        transformed=transformed.vectors[~queries],
        native=native[~queries],
        order=_order(catalog, run, ids.filter(~queries), transformed.take(~queries)),
        query_labels=None if labels is None else labels[queries],
        gallery_labels=None if labels is None else labels[~queries],
    )
    return decide(
        trial,
        DecisionSettings(
            criterion=settings.criterion,
            shares=settings.shares,
            source_metric=registry.record(run.source).version().metric,
            target_metric=registry.record(run.target).version().metric,
            seed=settings.seed,
        ),
    )


def _draw(catalog: Catalog, registry: Registry, run: RunRecord, settings: SampleSettings) -> Any:
    """A random sample of the items that have a vector in the source, with all that a trial reads, in random order."""
    store, key = catalog.store, registry.id_column
    source = registry.columns(run.source)
    schema = store.schema.names
    if settings.labels is not None and settings.labels not in schema:
        raise InvalidInput(
            f"try the upgrade to {run.target}", expected=f"labels in one of {', '.join(schema)}", found=settings.labels
        )
    ids = store.scan([key], source.present).column(key).combine_chunks()
    chosen = ids.take(np.argsort(-random_scores(ids, settings.seed), kind="stable")[: settings.sample])
    extra = [name for name in (registry.source_column, settings.labels, source.side) if name]
    target = registry.record(run.target).columns
    columns = [key, source.vector, *extra, *(target.names if target else [])]
    rows = find(store, key, chosen.to_pylist(), list(dict.fromkeys(columns))).combine_chunks()
    return rows.take(np.argsort(-random_scores(rows.column(key), settings.seed), kind="stable"))


def _embed(
    catalog: Catalog, registry: Registry, run: RunRecord, rows: Any
) -> tuple[VersionValues, FloatArray, npt.NDArray[np.intp]]:
    """Source values and native vectors of the sampled rows that have both, and which rows these are."""
    source = read_source(registry.columns(run.source), rows)
    native, known = _known_natives(registry.record(run.target).columns, registry.record(run.target).dim, rows)
    usable = transformer_of(catalog, run).possible(source)
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
    return source.take(kept), native[kept], kept


def _known_natives(columns: VersionColumns | None, dim: int, rows: Any) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    n = rows.num_rows
    if columns is None:
        return np.zeros((n, dim), np.float32), np.zeros(n, bool)
    values = columns.decode(rows)
    return values.vectors.copy(), values.valid & (values.origin == "native")


def _order(catalog: Catalog, run: RunRecord, ids: Any, transformed: VersionValues) -> npt.NDArray[np.intp]:
    """The order in which the run's policy would backfill the sample."""
    head = catalog.head(run.target)
    scale = COSINE_SCALE if catalog.version(run.target).normalised else 1.0
    rows = ArrayRows(
        ids=ids,
        sigma2=None if np.isnan(transformed.uncertainty).all() else transformed.uncertainty,
        logits=None if head is None else scale * (transformed.vectors @ head.T),
    )
    return order(run.policy, rows, run.seed)
