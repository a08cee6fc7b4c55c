"""How the two parts of an upgrade without a hop are merged: measured on a sample, stored beside the upgrade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from compatstore import next_step
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation import Estimate
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Merge, calibrate, find_merged
from compatstore.evaluation.sampled import find_in_galleries
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord, MergeRecord
from compatstore.storage.registry import Registry, bridge_to, comparable, edit
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.fusing import STEP, choose_fusion, fusable, native_share, save_fusion
from compatstore.upgrade.estimates.sample import Sample, draw_sample
from compatstore.upgrade.estimates.trial import SampleSettings, as_evaluation_sample, decision_settings
from compatstore.upgrade.progress import Progress
from compatstore.upgrade.requests.queries import column_of
from compatstore.upgrade.states import require_open


def choose_serving(
    catalog: Catalog,
    target: str,
    settings: SampleSettings,
    weight: float | None,
    progress: Callable[[Progress], None] | None = None,
) -> Fusion | Merge:
    """Choose how both versions of an upgrade under way are searched as one, and store it.

    Raises:
        UpgradeError: No upgrade to the target is under way, or too few items can be embedded natively.
        InvalidInput: A weight is given, and nothing was transformed.
        Interrupted: The upgrade ended meanwhile.
    """
    context = fusable(catalog, target)
    whole = not context.count(f"({context.source.present}) AND ({context.target.native}) IS NOT TRUE")
    if context.run.path or whole:
        fusion = choose_fusion(context, settings, weight, progress)
        save_fusion(catalog, context.run, fusion, column_of(settings.labels))
        return fusion
    if weight is not None:
        asked = f"weigh {context.run.source} and {target}"
        raise InvalidInput(asked, expected="an upgrade with a hop", found="one that transforms nothing")
    merge = measure_merge(context, settings, progress)

    def change(registry: Registry) -> Registry:
        began = require_open(registry, target).identity
        return registry.with_merging(MergeRecord(target, began, merge))

    edit(catalog.store, change, HistoryEntry(STEP, target, note=f"merge {merge}"))
    return merge


def measure_merge(
    context: UpgradeContext, settings: SampleSettings, progress: Callable[[Progress], None] | None = None
) -> Merge:
    """Calibrate the merge where distances do not compare, and measure it at the native share of now; read-only.

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
    part_queries = sample.source_queries
    if bridge is not None:
        part_queries = context.catalog.artifact(bridge.id).apply(sample.target_queries).vectors
    found = VectorForm.of(context.registry.record(context.run.source)).searchable(part_queries)
    sample, part_queries = sample.asking(found), part_queries[found]  # a search refuses the others
    every = np.arange(len(sample.places))
    chosen = decision_settings(context, settings)
    # Nothing is transformed, and no merge looks at it.
    trial = trial_of_fusions(as_evaluation_sample(sample, sample.native, every), chosen)
    source = measure(sample.source_queries, sample.source.vectors, chosen.source_metric)
    others = measure(part_queries, sample.source.vectors, chosen.source_metric)
    target = measure(sample.target_queries, sample.native, chosen.target_metric)
    calibrated = bridge is None or not comparable(context.registry, bridge)
    native = sample.served.valid & (sample.served.origin == NATIVE)
    merged = find_merged(trial, others, target, native, calibrated=calibrated)
    before = find_in_galleries(source, trial.relevance, [every], chosen.ks, trial.sampling)[0]
    queries = np.arange(len(part_queries))
    return Merge(
        bridge="" if bridge is None else bridge.id,
        calibration=calibrate(others, target, trial.relevance, queries) if calibrated else None,
        gain=trial.over(merged, before) or Estimate(value=0.0, low=0.0, high=0.0),
        criterion=settings.criterion,
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
