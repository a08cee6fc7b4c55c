"""The plan of an upgrade: what it will do and cost, found without writing anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from compatstore.encoders import Encoder, encode_readable
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragment_counts import counts_of
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.budget import Budget
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.expand import columns_for
from compatstore.upgrade.hop import Hop
from compatstore.upgrade.natives.native_ways import plan_natives, require_way
from compatstore.upgrade.plan_warnings import warnings_of
from compatstore.upgrade.precision import PrecisionChoice, PrecisionRequest, choose_precision, sample_source
from compatstore.upgrade.transform import Transformer, transformer_of

SAMPLE_ROWS = 2048
SAMPLE_SOURCES = 16


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        name: expand, hop, backfill, cutover.
        rows: Rows that it writes.
        bytes: Bytes that it writes to the table, about.
        seconds: Time that it takes on this machine, about; None where nothing can be measured.
        note: What it does, in words.
    """

    name: str
    rows: int
    bytes: int
    seconds: float | None
    note: str


@dataclass(frozen=True)
class Plan:
    """What an upgrade will do.

    Attributes:
        source: Version whose vectors are read.
        target: Version upgraded to.
        path: Short ids of the artifacts that are applied, in order.
        rows: Items in the gallery.
        backfill: Share to embed natively.
        policy: Order of the backfill.
        steps: What is left to do.
        quality: Held-out figures of the last artifact of the path.
        warnings: What may surprise.
        estimate: What it is expected to give, where terms were named.
    """

    source: str
    target: str
    path: tuple[str, ...]
    rows: int
    backfill: float
    policy: str
    steps: tuple[Step, ...]
    quality: Mapping[str, Any]
    warnings: tuple[str, ...]
    estimate: UpgradeEstimate | None = None


def make_plan(catalog: Catalog, run: RunRecord, precision: PrecisionRequest = "float32") -> Plan:
    """Say what a settled run has left to do and what that costs; read-only, a sample is timed."""
    registry = catalog.registry()
    record = registry.record(run.target)
    target = columns_for(registry, run.target, catalog.store.schema)
    rows = catalog.store.count()
    transformer = transformer_of(catalog, run) if run.path else None
    todo = _to_transform(catalog, registry, run, transformer, rows)
    choice = choose_precision(catalog, run, transformer, precision, todo)
    steps = [
        *([] if record.columns else [Step("expand", 0, 0, 0.0, f"add the empty columns {', '.join(target.names)}")]),
        *_hop_step(catalog, run, transformer, target, todo, choice),
        *_backfill_step(catalog, run, target, rows),
        *([] if registry.active == run.target else [Step("cutover", 0, 0, 0.0, f"search {run.target}: on your word")]),
    ]
    warnings = warnings_of(catalog, registry, run, transformer, target)
    quality = transformer.artifacts[-1].manifest.figures if transformer else {}
    short = tuple(artifact.short_id for artifact in transformer.artifacts) if transformer else ()
    return Plan(
        source=run.source,
        target=run.target,
        path=short,
        rows=rows,
        backfill=run.backfill,
        policy=run.policy,
        steps=tuple(steps),
        quality=dict(quality),
        warnings=(*([choice.warning] if choice.warning else []), *warnings),
    )


def _to_transform(
    catalog: Catalog, registry: Registry, run: RunRecord, transformer: Transformer | None, rows: int
) -> int:
    """Rows that the hop has left to transform."""
    if transformer is None:
        return 0
    if registry.record(run.target).columns is None:
        return rows
    return Hop.of(catalog.store, registry, run.source, run.target, transformer).pending()


def _hop_step(
    catalog: Catalog,
    run: RunRecord,
    transformer: Transformer | None,
    target: VersionColumns,
    todo: int,
    choice: PrecisionChoice,
) -> list[Step]:
    if transformer is None or not todo:
        return []
    transformer = replace(transformer, precision=choice.precision)
    chain = " then ".join(f"{artifact.short_id}" for artifact in transformer.artifacts)
    seconds = _per_row(catalog, run, transformer) * todo
    note = f"transform {run.source} by {chain} in {choice.precision}"
    return [Step("hop", todo, todo * target.row_bytes, seconds, note)]


def _per_row(catalog: Catalog, run: RunRecord, transformer: Transformer) -> float:
    """Seconds to transform one row, measured on a sample; 0 without one."""
    usable = sample_source(catalog, run, transformer, SAMPLE_ROWS)
    if not len(usable.valid):
        return 0.0
    started = time.perf_counter()
    transformer.apply(usable)
    return (time.perf_counter() - started) / len(usable.valid)


def _backfill_step(catalog: Catalog, run: RunRecord, target: VersionColumns, rows: int) -> list[Step]:
    registry, native = catalog.registry(), 0
    if not run.backfill:
        return []
    if registry.record(run.target).columns is not None:
        counts = counts_of(catalog.store, registry, run.source, run.target)
        native = counts.count(catalog.store.snapshot(), target.native)
    budget, (spent, failed) = Budget.of(run), read_account(catalog, registry, run)
    left = budget.rows_left(spent)
    todo = max(budget.share_left(rows, native) - failed.num_rows, 0)
    todo = todo if left is None else min(todo, left)
    if not todo or budget.ended_by(spent):
        return []
    seconds, time_left = _seconds_per_source(catalog, run), budget.seconds_left(spent)
    if seconds and time_left is not None:
        todo = min(todo, max(int(time_left / seconds), 1))
    costs = f", costs {budget.price(todo):g}" if budget.price_per_item else ""
    stored = plan_natives(catalog.store.snapshot(), registry, target, require_way(run.natives), todo)
    note = f"embed natively in {run.policy} order: {budget}{costs}; {stored}"
    steps = [Step("backfill", todo, stored.bytes, None if seconds is None else seconds * todo, note)]
    if run.holdout and run.path:
        remain = rows - native - todo
        note = "correct the transform by what was embedded and hop the rest again, where held-out rows come nearer"
        steps.append(Step("refit", remain, remain * target.row_bytes, None, note))
    return steps


def _seconds_per_source(catalog: Catalog, run: RunRecord) -> float | None:
    """Seconds to embed one item, measured on a few; None when that cannot be tried."""
    seconds = _seconds_in(catalog, catalog.encoder(run.target))
    side_encoder = catalog.side_encoder(run.target)
    return seconds if seconds is None else seconds + (_seconds_in(catalog, side_encoder) or 0.0)


def _seconds_in(catalog: Catalog, encoder: Encoder | None) -> float | None:
    registry = catalog.registry()
    column = registry.id_column if encoder is None or encoder.reads == "id" else registry.source_column
    if encoder is None or column is None:
        return None
    sources = catalog.store.scan([column], f"`{column}` IS NOT NULL", limit=SAMPLE_SOURCES).column(column).to_pylist()
    if not sources:
        return None
    started = time.perf_counter()
    encode_readable(encoder, sources)
    return (time.perf_counter() - started) / len(sources)
