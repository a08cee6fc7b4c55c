"""The plan of an upgrade: what it will do and cost, found without writing anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compatstore.encoders import encode_readable
from compatstore.storage.bridges import bridge_to
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.registry import Registry, RunRecord
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.budget import Budget
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.hop import Hop, read_source
from compatstore.upgrade.natives.native_ways import plan_natives, require_way
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


def make_plan(catalog: Catalog, run: RunRecord) -> Plan:
    """Say what a settled run has left to do and what that costs; read-only, a sample is timed."""
    registry = catalog.registry()
    record = registry.record(run.target)
    target = record.columns or VersionColumns.of(record.version(), padded=needs_padding(catalog, registry, run.target))
    rows = catalog.store.count()
    transformer = transformer_of(catalog, run) if run.path else None
    steps = [
        *([] if record.columns else [Step("expand", 0, 0, 0.0, f"add the empty columns {', '.join(target.names)}")]),
        *_hop_step(catalog, registry, run, transformer, target, rows),
        *_backfill_step(catalog, run, target, rows),
        *([] if registry.active == run.target else [Step("cutover", 0, 0, 0.0, f"search {run.target}: on your word")]),
    ]
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
        warnings=tuple(_warnings(catalog, registry, run, transformer, target)),
    )


def needs_padding(catalog: Catalog, registry: Registry, target: str) -> bool:
    """Whether an app that owns an adopted table could take the target's column for its own.

    LanceDB finds "the" vector column by dimension when a search does not name one.
    """
    if not registry.adopted:
        return False
    dim = registry.record(target).dim
    others = [field for field in catalog.store.schema if field.name != target]
    return any(getattr(field.type, "list_size", None) == dim for field in others)


def _hop_step(
    catalog: Catalog,
    registry: Registry,
    run: RunRecord,
    transformer: Transformer | None,
    target: VersionColumns,
    rows: int,
) -> list[Step]:
    if transformer is None:
        return []
    todo = rows
    if registry.record(run.target).columns is not None:
        todo = Hop.of(catalog.store, registry, run.source, run.target, transformer).pending()
    if not todo:
        return []
    chain = " then ".join(f"{artifact.short_id}" for artifact in transformer.artifacts)
    seconds = _per_row(catalog, registry, run, transformer) * todo
    note = f"transform {run.source} by {chain}"
    return [Step("hop", todo, todo * target.row_bytes, seconds, note)]


def _per_row(catalog: Catalog, registry: Registry, run: RunRecord, transformer: Transformer) -> float:
    """Seconds to transform one row, measured on a sample; 0 without one."""
    columns = registry.columns(run.source)
    names = [columns.vector, *([columns.side] if columns.side else [])]
    sample = read_source(columns, catalog.store.scan(names, columns.present, limit=SAMPLE_ROWS))
    usable = sample.take(transformer.possible(sample))
    if not len(usable.valid):
        return 0.0
    started = time.perf_counter()
    transformer.apply(usable)
    return (time.perf_counter() - started) / len(usable.valid)


def _backfill_step(catalog: Catalog, run: RunRecord, target: VersionColumns, rows: int) -> list[Step]:
    registry, native = catalog.registry(), 0
    if registry.record(run.target).columns is not None:
        native = catalog.store.count(target.native)
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
    encoder = catalog.encoder(run.target)
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


def _warnings(
    catalog: Catalog, registry: Registry, run: RunRecord, transformer: Transformer | None, target: VersionColumns
) -> list[str]:
    found = []
    if run.backfill > 0 and catalog.encoder(run.target) is None:
        found.append(f"{run.target} has no encoder here: the backfill cannot run")
    bridge = bridge_to(registry, run.target)
    if not run.path and run.backfill < 1 and bridge is not None:
        found.append(
            f"nothing transforms {run.source}: items that are not embedded natively are searched in {bridge.source} by "
            f"queries of {run.target} ({bridge.kind} {bridge.id[:12]}), and it cannot be retired before they are"
        )
    if len(run.path) > 1:
        found.append(
            f"no direct artifact from {run.source} to {run.target}: each of {len(run.path)} hops loses quality"
        )
    if transformer is not None and transformer.needs_side:
        side = registry.columns(run.source).side
        missing = catalog.store.count(f"`{side}` IS NULL") if side else 0
        if missing:
            found.append(f"{missing} items have no side-information and cannot be transformed")
    if target.width != target.dim:
        found.append(
            f"{target.vector} is stored with {target.width - target.dim} zeros behind its {target.dim} values, so that "
            "apps that search without naming a column keep finding theirs"
        )
    return found
