"""The plan of an upgrade: what it will do and cost, found without writing anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from compatstore.storage import indexes
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragments import list_fragments
from compatstore.storage.indexes import VectorIndex
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.embeddable import Embeddable, count_embeddable, probe_embeddable
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.expand import columns_for
from compatstore.upgrade.hop import Hop
from compatstore.upgrade.natives.natives import plan_natives
from compatstore.upgrade.plan_warnings import warnings_of
from compatstore.upgrade.precision import PrecisionChoice, choose_precision, sample_source
from compatstore.upgrade.requests.backfill import Budget, write_mode_of
from compatstore.upgrade.requests.run_settings import PrecisionRequest
from compatstore.upgrade.transform import Transformer, transformer_of

SAMPLE_ROWS = 2048
COMMIT_SECONDS, FRAGMENT_SECONDS = 0.02, 0.0002  # of a commit that touches the metadata of all fragments


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        name: expand, hop, backfill, refit, catch-up, index, cutover.
        rows: Rows that it writes.
        bytes: Bytes that it writes to the table, about.
        seconds: Time that it takes on this machine, about; None where nothing can be measured.
        note: What it does, as a sentence.
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
        embeddable: Items that can be embedded natively, by a sample; None where none is to be.
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
    embeddable: int | None = None
    estimate: UpgradeEstimate | None = None


def make_plan(catalog: Catalog, run: RunRecord, precision: PrecisionRequest = "float32") -> Plan:
    """Plan a resolved run: the steps that are left, with rows, bytes and seconds; read-only.

    Seconds of the hop and of the backfill are those of a sample of rows, timed on this machine.

    Args:
        catalog: The gallery.
        run: The upgrade, resolved.
        precision: Precision of the hop; "auto" tries both on the sample.
    """
    registry = catalog.registry()
    record = registry.record(run.target)
    target = columns_for(registry, run.target, catalog.store.schema)
    rows = catalog.store.count()
    transformer = transformer_of(catalog, run) if run.path else None
    todo = _to_transform(catalog, registry, run, transformer, rows)
    choice = choose_precision(catalog, run, transformer, precision, todo)
    possible = _possible(catalog, registry, run)
    work = [
        *([] if record.columns else [_expand_step(catalog, target)]),
        *_hop_step(catalog, run, transformer, target, todo, choice),
        *(_backfill_steps(catalog, registry, run, target, possible) if possible else []),
    ]
    steps = [*work, *_closing_steps(catalog, registry, run, target, rows, busy=bool(work))]
    warnings = warnings_of(catalog, registry, run, transformer, target, possible)
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
        embeddable=None if possible is None else possible.expected,
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


def _expand_step(catalog: Catalog, target: VersionColumns) -> Step:
    """The step that adds the columns: one commit of metadata, no bytes for a row."""
    seconds = COMMIT_SECONDS + FRAGMENT_SECONDS * len(list_fragments(catalog.store.snapshot()))
    return Step("expand", 0, 0, seconds, f"add the empty columns {', '.join(target.names)}")


def _closing_steps(
    catalog: Catalog, registry: Registry, run: RunRecord, target: VersionColumns, rows: int, *, busy: bool
) -> list[Step]:
    """The steps after every row has a vector: catch up with rows that changed meanwhile, build the index, cut over."""
    steps = []
    if busy:
        seconds = _seconds_to_look(catalog, registry, run, rows)
        steps.append(Step("catch-up", 0, 0, seconds, "look for what came or changed meanwhile, and transform it"))
    index, own = _index_of(catalog, registry, run, target), indexes.describe(catalog.store, target.vector)
    stale = own is not None and (busy or indexes.unindexed_rows(catalog.store, target.vector) > 0)
    if index is not None and (own is None or stale) and rows >= indexes.MINIMUM_ROWS:
        seconds = indexes.build_seconds(index, rows, target.width)
        size = indexes.index_bytes(index, rows, target.width)
        note = f"build {index.kind} of {index.num_partitions} cells, as {run.source} has" + (" (at cutover)" * stale)
        steps.append(Step("index", rows, size, seconds, note))
    if registry.active != run.target:
        steps.append(Step("cutover", 0, 0, 0.0, f"search {run.target}, when you call cutover"))
    return steps


def _index_of(catalog: Catalog, registry: Registry, run: RunRecord, target: VersionColumns) -> VectorIndex | None:
    """The index that the target gets, or has; None where nothing is built any more, or the source has none."""
    if registry.active == run.target:
        return None
    source, metric = registry.columns(run.source), registry.record(run.target).metric
    own = indexes.describe(catalog.store, target.vector)
    return own or indexes.mirrored(catalog.store, source.vector, target.width, metric)


def _seconds_to_look(catalog: Catalog, registry: Registry, run: RunRecord, rows: int) -> float:
    """Seconds to compare all rows with the input hash of their vectors, from a sample."""
    source, sources = registry.columns(run.source), registry.source_column
    started = time.perf_counter()
    read = catalog.store.scan(source.hashed_names(sources), limit=SAMPLE_ROWS)
    source.input_hashes(read, sources)
    return (time.perf_counter() - started) * rows / max(int(read.num_rows), 1)


def _possible(catalog: Catalog, registry: Registry, run: RunRecord) -> Embeddable | None:
    """What can be embedded at all, by a sample; None where nothing is to be embedded."""
    if not run.backfill:
        return None
    budget, (spent, failed) = Budget.of(run), read_account(catalog, registry, run)
    counted = count_embeddable(catalog, registry, run, failed.num_rows)
    if not budget.share_left(counted.items, counted.native) or budget.ended_by(spent):
        return counted  # nothing is to be embedded any more: no model is loaded to find out how fast it is
    return probe_embeddable(catalog, registry, run, failed["id"].combine_chunks())


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


def _backfill_steps(
    catalog: Catalog, registry: Registry, run: RunRecord, target: VersionColumns, possible: Embeddable
) -> list[Step]:
    budget, spent = Budget.of(run), read_account(catalog, registry, run)[0]
    left, items = budget.rows_left(spent), possible.items
    todo = min(budget.share_left(items, possible.native), possible.expected - possible.native)
    todo = todo if left is None else min(todo, left)
    if todo < 1 or budget.ended_by(spent):
        return []
    seconds, time_left = possible.seconds, budget.seconds_left(spent)
    if seconds and time_left is not None:
        todo = min(todo, max(int(time_left / seconds), 1))
    costs = f", costs {budget.price(todo):g}" if budget.price_per_item else ""
    stored = plan_natives(catalog.store.snapshot(), registry, target, write_mode_of(run), todo)
    note = f"embed natively in {run.policy} order: {budget}{costs}; {stored}"
    steps = [Step("backfill", todo, stored.bytes, None if seconds is None else seconds * todo, note)]
    if run.holdout and run.path:
        remain = items - possible.native - todo
        note = "correct the transform by what was embedded and hop the rest again, where held-out rows come nearer"
        steps.append(Step("refit", remain, remain * target.row_bytes, None, note))
    return steps
