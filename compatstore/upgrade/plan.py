"""The plan of an upgrade: steps, cost and warnings, computed without writing anything."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from compatstore.artifacts.network import PrecisionRequest
from compatstore.evaluation.curve import native_count
from compatstore.shown import Shown
from compatstore.storage import indexes
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragments import list_fragments
from compatstore.storage.index_status import build_seconds, index_bytes, index_status
from compatstore.storage.records import CHOSEN, OPEN
from compatstore.storage.registry import bridge_to
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.embeddable import Embeddable, count_embeddable, probe_embeddable
from compatstore.upgrade.backfilling.natives import plan_natives
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.full_backfill import reason_of
from compatstore.upgrade.hop import Hop, columns_for
from compatstore.upgrade.indexing import as_the_source
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.transform import Transformer, choose_precision, sample_source, transformer_of

SAMPLE_ROWS = 2048
COMMIT_SECONDS, FRAGMENT_SECONDS = 0.02, 0.0002  # of a commit that touches the metadata of all fragments


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        name: expand, hop, backfill, learn, catch-up, index, cutover.
        rows: Rows that it writes.
        bytes: Bytes that it writes to the table, about.
        seconds: Approximate duration on this machine; None if it cannot be measured.
        note: Description of the step, as a sentence.
    """

    name: str
    rows: int
    bytes: int
    seconds: float | None
    note: str


@dataclass(frozen=True)
class Plan(Shown):
    """The plan of an upgrade.

    Attributes:
        source: Version whose vectors are read.
        target: Version upgraded to.
        path: Short ids of the artifacts that are applied, in order.
        rows: Items in the gallery.
        backfill: Share to embed natively.
        policy: Order of the backfill.
        steps: Remaining steps.
        quality: Held-out figures of the last artifact of the path.
        warnings: Possible surprises.
        embeddable: Items that can be embedded natively, by a sample; None if none is to be.
        estimate: The estimate, if gates are set.
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


def make_plan(context: UpgradeContext, precision: PrecisionRequest = "float32", progress: OnProgress = None) -> Plan:
    """Plan a resolved run: the steps that are left, with rows, bytes and seconds; read-only.

    Seconds of the hop and of the backfill are those of a sample of rows, timed on this machine.

    Args:
        context: The upgrade, resolved.
        precision: Precision of the hop; "auto" tries both on the sample.
        progress: Called as a sample is embedded.
    """
    run = context.run
    target = columns_for(context)
    transformer = transformer_of(context.catalog, run) if run.path else None
    todo = _to_transform(context, transformer)
    chosen = choose_precision(context, transformer, precision, todo)
    possible = _possible(context, transformer, progress)
    # One commit of metadata, no bytes for a row.
    seconds = COMMIT_SECONDS + FRAGMENT_SECONDS * len(list_fragments(context.snapshot))
    expand = Step("expand", 0, 0, seconds, f"add the empty columns {', '.join(target.names)}")
    work = [
        *([] if context.target_record.columns else [expand]),
        *_hop_step(context, transformer and replace(transformer, precision=chosen), target, todo),
        *_index_step(context, target),
        *(_backfill_steps(context, target, possible) if possible else []),
    ]
    steps = [*work, *_closing_steps(context, target, busy=bool(work))]
    warnings = warnings_of(context, transformer, target, possible)
    quality = transformer.artifacts[-1].manifest.figures if transformer else {}
    short = tuple(artifact.short_id for artifact in transformer.artifacts) if transformer else ()
    return Plan(
        source=run.source,
        target=run.target,
        path=short,
        rows=context.count(),
        backfill=run.backfill,
        policy=run.policy,
        steps=tuple(steps),
        quality=dict(quality),
        warnings=tuple(warnings),
        embeddable=None if possible is None else possible.expected,
    )


def _to_transform(context: UpgradeContext, transformer: Transformer | None) -> int:
    """Rows that the hop has left to transform."""
    if transformer is None:
        return 0
    if context.target_record.columns is None:
        return context.count()
    return Hop.of(context, transformer).pending(context.snapshot)


def _closing_steps(context: UpgradeContext, target: VersionColumns, *, busy: bool) -> list[Step]:
    """The steps after every row has a vector: catch up with rows that changed meanwhile, build the index, cut over."""
    steps, run = list[Step](), context.run
    if busy:
        seconds = _seconds_to_look(context)
        steps.append(Step("catch-up", 0, 0, seconds, "look for new and changed rows, and transform them"))
    if context.registry.active != run.target and context.target_record.columns is not None:
        steps += _refresh_step(context, target, busy=busy)
    if context.registry.active != run.target:
        steps.append(Step("cutover", 0, 0, 0.0, f"search {run.target}, when you call cutover"))
    return steps


def _index_step(context: UpgradeContext, target: VersionColumns) -> list[Step]:
    """The step that indexes the target as the source is, where it has no index yet."""
    run, rows = context.run, context.count()
    if context.registry.active == run.target or indexes.describe(context.store, target.vector) is not None:
        return []
    index = as_the_source(context, target)
    if index is None or rows < indexes.MINIMUM_ROWS:
        return []
    seconds, size = build_seconds(index, rows, target.width), index_bytes(index, rows, target.width)
    note = f"build {index.kind} of {index.num_partitions} cells, as {run.source} has, and measure its recall"
    return [Step("index", rows, size, seconds, note)]


def _refresh_step(context: UpgradeContext, target: VersionColumns, *, busy: bool) -> list[Step]:
    """The step that brings an index up to date which the target has already; as long as a build at the most."""
    index = indexes.describe(context.store, target.vector)
    waiting = 0 if index is None else index_status(context.store, context.run.target).unindexed_rows
    if index is None or not (busy or waiting):
        return []
    rows = context.count()
    seconds, size = build_seconds(index, rows, target.width), index_bytes(index, waiting, target.width)
    note = "add new and changed vectors, and retrain if the recall drops, at cutover at the latest"
    return [Step("index", waiting, size, seconds, note)]


def _seconds_to_look(context: UpgradeContext) -> float:
    """Seconds to compare all rows with the input hash of their vectors, from a sample."""
    source, sources = context.source, context.registry.source_column
    started = time.perf_counter()
    read = context.snapshot.to_table(columns=source.hashed_names(sources), limit=SAMPLE_ROWS)
    source.input_hashes(read, sources)
    return (time.perf_counter() - started) * context.count() / max(int(read.num_rows), 1)


def _possible(context: UpgradeContext, transformer: Transformer | None, progress: OnProgress) -> Embeddable | None:
    """The number of embeddable items, by a sample; None if nothing is to be embedded, or all is derived of natives."""
    if not context.run.backfill:
        return None
    if transformer is not None and transformer.exact and context.count(context.source.native) == context.count():
        return None
    budget, (spent, failed) = Budget.of(context.run), read_account(context)
    counted = count_embeddable(context, failed.num_rows)
    done = not budget.share_left(counted.items, counted.native) or counted.native >= counted.most
    if done or budget.ended_by(spent):
        return counted  # nothing is to be embedded any more: no model is loaded to find out how fast it is
    return probe_embeddable(context, failed["id"].combine_chunks(), progress)


def _hop_step(
    context: UpgradeContext, transformer: Transformer | None, target: VersionColumns, todo: int
) -> list[Step]:
    if transformer is None or not todo:
        return []
    chain = " then ".join(f"{artifact.short_id}" for artifact in transformer.artifacts)
    seconds = _per_row(context, transformer) * todo
    note = f"transform {context.run.source} by {chain} in {transformer.precision}"
    if transformer.exact:
        derived = ", then ".join(artifact.manifest.method for artifact in transformer.artifacts)
        note = f"derive of {context.run.source}: {derived}; exact, without an encoder, and natives stay native"
    return [Step("hop", todo, todo * target.row_bytes, seconds, note)]


def _per_row(context: UpgradeContext, transformer: Transformer) -> float:
    """Seconds to transform one row, measured on a sample; 0 without one."""
    usable = sample_source(context, transformer, SAMPLE_ROWS)
    if not len(usable.valid):
        return 0.0
    started = time.perf_counter()
    transformer.apply(usable)
    return (time.perf_counter() - started) / len(usable.valid)


def _backfill_steps(context: UpgradeContext, target: VersionColumns, possible: Embeddable) -> list[Step]:
    run, spent = context.run, read_account(context)[0]
    budget, items = Budget.of(run), possible.items
    price = spent.cost / spent.rows if spent.rows and spent.tokens else possible.price
    left = budget.rows_left(spent, price)
    todo = min(budget.share_left(items, possible.native), possible.expected - possible.native)
    todo = todo if left is None else min(todo, left)
    if todo < 1 or budget.ended_by(spent, price):
        return []
    seconds, time_left = possible.seconds, budget.seconds_left(spent)
    if seconds and time_left is not None:
        todo = min(todo, max(int(time_left / seconds), 1))
    costs = f", costs {budget.price(todo):g}" if budget.price_per_item else ""
    if price is not None:
        why = "as billed so far" if spent.rows and spent.tokens else "by the lengths of a sample of sources"
        costs = f", costs about {price * todo:.4g} ({why})"
    stored = plan_natives(context, target, todo)
    note = f"embed natively in {run.policy} order: {budget}{costs}; {stored}"
    reason = reason_of(context)
    note = f"{reason}; {stored}" if reason else note
    steps = [Step("backfill", todo, stored.bytes, None if seconds is None else seconds * todo, note)]
    if run.teaches and run.full_backfill != CHOSEN:
        note = "train a transform on the embedded items, evaluate it as served, hop the rest; after each wave"
        note += "; or embed everything, if that takes less time" if run.full_backfill == OPEN else ""
        steps.append(Step("learn", items - possible.native - todo, 0, None, note))
    return steps


def warnings_of(
    context: UpgradeContext, transformer: Transformer | None, target: VersionColumns, possible: Embeddable | None
) -> Iterator[str]:
    """Warn, in sentences.

    Args:
        context: The upgrade that is planned.
        transformer: Its hop, or None if nothing is transformed.
        target: Columns of the version that is upgraded to; they need not be in the table yet.
        possible: Embeddable items; None if nothing is to be embedded.
    """
    run = context.run
    if possible is not None and possible.expected < possible.items:
        beyond = native_count(run.backfill, possible.items) > possible.expected
        yield f"{possible}" + (f": a backfill of {run.backfill:.4g} ends before its share is reached" if beyond else "")
    yield from _of_encoders(context, transformer, target)
    yield from _of_transforms(context, transformer)
    if target.width != target.dim:
        yield (
            f"{target.vector} is stored with {target.width - target.dim} zeros behind its {target.dim} values, so that "
            "apps that search without naming a column keep finding theirs"
        )


def _of_encoders(context: UpgradeContext, transformer: Transformer | None, target: VersionColumns) -> Iterator[str]:
    catalog, run = context.catalog, context.run
    if not run.backfill:
        return
    if catalog.encoder(run.target) is None:
        yield f"{run.target} has no encoder here: the backfill cannot run"
        return
    hopped = transformer is not None and transformer.artifacts[-1].manifest.side_target is not None
    if target.side and not hopped and catalog.side_encoder(run.target) is None:
        yield (
            f"{run.target} has no side-information encoder here: embedded items get none, and an artifact "
            f"that reads it cannot transform these items from {run.target} on"
        )


def _of_transforms(context: UpgradeContext, transformer: Transformer | None) -> Iterator[str]:
    run, bridge = context.run, bridge_to(context.registry, context.run.target)
    if not run.path and run.backfill < 1 and bridge is not None:
        yield (
            f"nothing transforms {run.source}: items that are not embedded natively are searched in {bridge.source} by "
            f"queries of {run.target} ({bridge.kind} {bridge.id[:12]}), and it cannot be retired before they are"
        )
    if transformer is not None and transformer.exact and context.source.side:
        yield f"{run.target} keeps no side-information: that of {run.source} goes when {run.source} is retired"
    if len(run.path) > 1 and transformer is not None and not transformer.exact:
        yield f"no direct artifact from {run.source} to {run.target}: each of {len(run.path)} hops loses quality"
    if transformer is not None and transformer.needs_side:
        side = context.source.side
        missing = context.count(f"`{side}` IS NULL") if side else 0
        if missing:
            yield f"{missing} items have no side-information and cannot be transformed"
