"""Fused search over both versions of an upgrade: the fusion is chosen on a sample and stored with the upgrade.

With a hop, or once all is native, both are fused. Without one their parts of the gallery are merged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compatstore import next_step
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import SAME_SHARE, Fusion, Serving
from compatstore.evaluation.fusion_choice import NO_GAIN
from compatstore.evaluation.merging import Merge, calibrate, find_merged
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import rows_at
from compatstore.storage.moves import addresses
from compatstore.storage.records import ArtifactRecord, MergeRecord, RunRecord, ServingRecord
from compatstore.storage.registry import Registry, bridge_to, comparable, edit
from compatstore.storage.vector_form import VectorForm, to_matrix
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.sample import Sample, draw_sample, with_vectors
from compatstore.upgrade.estimates.trial import (
    SampleSettings,
    as_evaluation_sample,
    decision_settings,
    factors_of,
    order_of_sample,
)
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import Queries, column_of
from compatstore.upgrade.states import require_open, run_of

STEP = "fuse"
SAMPLE = 1000
SHARES = (0.25, 0.5, 0.75, 1.0)  # native shares that weights are chosen for, beside the gallery's own


def choose_fusion(
    context: UpgradeContext,
    settings: SampleSettings,
    weight: float | None = None,
    progress: OnProgress = None,
) -> Fusion:
    """Choose a weight for the native share that the gallery has, and for larger ones; read-only.

    The sample is embedded in the target and not kept, except for items that are native already.

    Args:
        context: The upgrade.
        settings: Sample and criterion.
        weight: Use this weight; the sample gives the constants, and the gain of the weight.
        progress: Called as items are embedded, and after each native share that a weight is chosen for.

    Raises:
        UpgradeError: Too few items can be embedded natively.
        InvalidInput: There is no such column of labels, or the criterion is CMC and the sample not the whole gallery.
    """
    try:
        sample = draw_sample(context, settings.sample, labels=settings.labels, seed=settings.seed, progress=progress)
    except UpgradeError:
        if weight is None or settings.labels is not None or context.catalog.can_embed(context.run.target):
            raise
        queries = _items_as_queries(context, settings)
        sample = draw_sample(context, settings.sample, labels=queries, seed=settings.seed, embed=False)
    native, made, urgent = sample.is_native, sample.made, order_of_sample(context, sample)
    stored = sample.served.valid & ~native
    made.put(stored, sample.served.take(stored))
    transformed = as_evaluation_sample(sample, made.vectors, urgent, factors_of(context, made))
    trial = trial_of_fusions(transformed, decision_settings(context, settings))
    constants = trial.constants()
    share = native_share(context)
    if weight is not None:
        named = replace(constants.named(weight), native_share=share)
        return replace(named, choices=(trial.measure(native, named),))
    larger = [other for other in SHARES if other > share + SAME_SHARE]
    natives = {share: native} | {other: trial.sample.filled(other, native) for other in larger}
    return trial.fit_shares(natives, constants, Monitor("choose", len(natives), progress).advance)


def _items_as_queries(context: UpgradeContext, settings: SampleSettings) -> Queries:
    """Items of the gallery as queries, by their vectors in both versions as the table has them.

    They give the constants of a fusion if the target's model is not here and few items are native. A named weight needs
    no more; the gain of one cannot be measured so.
    """
    columns, present = (context.source, context.target), context.source.present
    there = addresses(context.snapshot, f"({present}) AND ({context.target.present})")
    drawn = np.random.default_rng(seed_of(STEP, settings.seed)).permutation(there)[: settings.sample]
    rows = rows_at(context.snapshot, drawn, [own.vector for own in columns])
    vectors = {
        name: to_matrix(rows[own.vector], own.dim)[0]
        for name, own in zip((context.run.source, context.run.target), columns, strict=True)
    }
    return Queries(queries={"id": [f"{number}" for number in range(len(drawn))], **vectors})


def native_share(context: UpgradeContext) -> float:
    """Share of the gallery that is native in the target, from 0 to 1."""
    columns, items = context.target_record.columns, context.count()
    return 0.0 if columns is None or not items else context.count(columns.native) / items


def save_fusion(
    catalog: Catalog, run: RunRecord, fusion: Fusion, labels: str | None, serving: Serving = "fused"
) -> None:
    """Store how an upgrade is served, with a step of the history in the same commit.

    Raises:
        Interrupted: The upgrade ended meanwhile.
    """

    def change(registry: Registry) -> Registry:
        open_run = require_open(registry, run.target)
        return registry.with_serving(ServingRecord(run.target, open_run.identity, fusion, labels, serving))

    edit(catalog.store, change, HistoryEntry(STEP, run.target, note=fusion.weighed))


def follow_natives(catalog: Catalog, target: str) -> None:
    """Take the weight that was chosen for the native share which the gallery has by now; a no-op without a fusion."""
    registry = catalog.registry()
    fusion, run = registry.fusion_of(target), run_of(registry, target)
    if fusion is None or run is None:
        return
    context = UpgradeContext.of(catalog, run)
    if not context.has_both:
        return
    now = fusion.at(native_share(context))
    near = abs(now.native_share - fusion.native_share) <= SAME_SHARE
    if near and replace(now, native_share=fusion.native_share) == fusion:
        return
    known = registry.serving[target]
    save_fusion(catalog, run, now, known.labels, known.serving)


def require_servable(catalog: Catalog, target: str, serving: Serving | None) -> None:
    """Refuse fused search over both versions of an upgrade if no fusion was chosen for it.

    Raises:
        UpgradeError: None was.
    """
    if serving == "fused" and catalog.registry().fusion_of(target) is None:
        raise without_fusion(catalog, target)


def without_fusion(catalog: Catalog, target: str) -> UpgradeError:
    """The error of a fused search over an upgrade that no weight was chosen for.

    A weight is chosen by native vectors. If nothing makes them, the caller names one.
    """
    if catalog.can_embed(target):
        fix = f"Choose its weight: {next_step.call('evaluate', target, weight='best')}"
    else:
        fix = f"Name its weight: {next_step.call('cutover', target, serving='fused', weight=0.5)}"
    return UpgradeError(
        f"search the fusion of {target} and the other version of its upgrade",
        expected="an upgrade under way that a fusion was chosen for",
        found="none",
        fix=fix,
    )


def served_as(registry: Registry, target: str, serving: Serving | None) -> Registry:
    """A copy that says whether searches use the fusion that was chosen for an upgrade; None as before."""
    if serving is None or registry.fusion_of(target) is None:
        return registry
    return registry.with_serving(replace(registry.serving[target], serving=serving))


def serve(catalog: Catalog, target: str, serving: Serving | None, run: RunRecord | None = None) -> bool:
    """Say how searches use the versions of an upgrade, and whether that is a change.

    Args:
        catalog: The gallery.
        target: Version upgraded to.
        serving: Serving mode; None for no change.
        run: The open upgrade's record, to be written in the same commit.

    Raises:
        UpgradeError: It is to be fused, and no fusion was chosen for it.
        Interrupted: The fusion ended meanwhile.
    """
    require_servable(catalog, target, serving)
    registry = catalog.registry()
    changed = served_as(registry, target, serving) != registry
    if not changed and run is None:
        return False

    def change(state: Registry) -> Registry:
        if serving == "fused" or run is not None:
            require_open(state, target)
        served = served_as(state, target, serving)
        return served if run is None else served.with_run(run)

    edit(catalog.store, change, HistoryEntry(STEP, target, note=f"searches are {serving}") if changed else None)
    return changed


def serve_as_asked(catalog: Catalog, target: str, gates: Gates) -> None:
    """Serve an upgrade as its gates require: choose a fusion if none was chosen yet, or follow the native share.

    Raises:
        UpgradeError: Too few items can be embedded natively.
        Interrupted: The upgrade ended meanwhile.
    """
    registry = catalog.registry()
    if not gates.fused or registry.fusion_of(target) is not None:
        follow_natives(catalog, target)
    else:
        context = with_vectors(catalog, target, f"fuse {target} with the version before it")
        settings = SampleSettings.of(gates, context.run, SAMPLE)
        save_fusion(catalog, context.run, choose_fusion(context, settings), column_of(gates.labels))
    if gates.serving is not None:
        serve(catalog, target, gates.serving)


def choose_serving(
    catalog: Catalog,
    target: str,
    settings: SampleSettings,
    weight: float | None,
    progress: OnProgress = None,
) -> Fusion | Merge:
    """Choose the fusion of both versions of an upgrade under way, and store it.

    Raises:
        UpgradeError: No upgrade to the target is under way, or too few items can be embedded natively.
        InvalidInput: A weight is given, and nothing was transformed.
        Interrupted: The upgrade ended meanwhile.
    """
    context = with_vectors(catalog, target, f"fuse {target} with the version before it")
    whole = not context.count(f"({context.source.present}) AND ({context.target.native}) IS NOT TRUE")
    if context.run.path or whole:
        fusion = choose_fusion(context, settings, weight, progress)
        save_fusion(catalog, context.run, fusion, column_of(settings.labels))
        return fusion
    if weight is not None:
        operation = f"weigh {context.run.source} and {target}"
        raise InvalidInput(operation, expected="an upgrade with a hop", found="one that transforms nothing")
    merge = measure_merge(context, settings, progress)

    def change(registry: Registry) -> Registry:
        began = require_open(registry, target).identity
        return registry.with_merging(MergeRecord(target, began, merge))

    edit(catalog.store, change, HistoryEntry(STEP, target, note=f"merge {merge}"))
    return merge


def measure_merge(context: UpgradeContext, settings: SampleSettings, progress: OnProgress = None) -> Merge:
    """Calibrate the merge if distances do not compare, and measure it at the current native share; read-only.

    The sample is embedded in the target and not kept, except for items that are native already.

    Args:
        context: The upgrade, without a hop.
        settings: Sample and criterion.
        progress: Called as items are embedded.

    Raises:
        UpgradeError: Too few items can be embedded natively, or queries are adapted to another version than the source.
        InvalidInput: There is no such column of labels, or the criterion is CMC and the sample not the whole gallery.
    """
    bridge = _bridge(context)
    drawn = draw_sample(context, settings.sample, labels=settings.labels, seed=settings.seed, progress=progress)
    sample = _usable(context, drawn)
    part_queries = sample.queries.source
    if bridge is not None:
        part_queries = context.catalog.artifact(bridge.id).apply(sample.queries.target).vectors
    found = VectorForm.of(context.registry.record(context.run.source)).searchable(part_queries)
    # A search refuses the others.
    sample, part_queries = replace(sample, queries=sample.queries.only(found)), part_queries[found]
    every = np.arange(len(sample.places))
    chosen = decision_settings(context, settings)
    # Nothing is transformed, and no merge looks at it.
    trial = trial_of_fusions(as_evaluation_sample(sample, sample.native, every), chosen)
    source = measure(sample.queries.source, sample.source.vectors, chosen.source_metric)
    others = measure(part_queries, sample.source.vectors, chosen.source_metric)
    target = measure(sample.queries.target, sample.native, chosen.target_metric)
    calibrated = bridge is None or not comparable(context.registry, bridge)
    merged = find_merged(trial, others, target, sample.is_native, calibrated=calibrated)
    (before,) = trial.galleries(source, [every])
    queries = np.arange(len(part_queries))
    return Merge(
        bridge="" if bridge is None else bridge.id,
        calibration=calibrate(others, target, trial.relevance, queries) if calibrated else None,
        gain=(trial.over(merged, before) or NO_GAIN) if trial.truth else None,
        criterion=trial.settings.criterion,
        truth=trial.truth,
        num_queries=int(before.counted.sum()),
        native_share=native_share(context),
    )


def _bridge(context: UpgradeContext) -> ArtifactRecord | None:
    """The artifact that adapts the target's queries to the source, where there is one.

    Raises:
        UpgradeError: It adapts them to another version.
    """
    run = context.run
    bridge = bridge_to(context.registry, run.target)
    if bridge is not None and bridge.source != run.source:
        raise UpgradeError(
            f"choose how items of {run.source} and {run.target} are merged",
            expected=f"an artifact that adapts queries of {run.target} to {run.source}",
            found=f"{bridge.id[:12]}, which adapts them to {bridge.source}",
            fix=f"Unlink it: {next_step.call('unlink', bridge.id[:12])}",
        )
    return bridge


def _usable(context: UpgradeContext, sample: Sample) -> Sample:
    """Items with a vector in both spaces that a search can find; they stand for as large a part of the gallery."""
    forms = [VectorForm.of(context.registry.record(name)) for name in (context.run.source, context.run.target)]
    found = [form.searchable(rows) for form, rows in zip(forms, (sample.source.vectors, sample.native), strict=True)]
    rows = sample.embedded & found[0] & found[1]
    return replace(sample.only(rows), population=round(sample.population * float(rows.mean())))
