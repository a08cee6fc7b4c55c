"""How the two parts of an upgrade without a hop are merged: chosen on a sample, stored beside the upgrade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from compatstore import next_step
from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation.fusion import SAME_SHARE, Fusion
from compatstore.evaluation.merging import Merge
from compatstore.evaluation.strategies import trial_of_merges
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord, MergeRecord, RunRecord
from compatstore.storage.registry import Registry, bridge_to, comparable, edit
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.fusing import SHARES, STEP, choose_fusion, fusable, native_share, save_fusion
from compatstore.upgrade.estimates.sample import Sample, draw_sample
from compatstore.upgrade.estimates.trial import SampleSettings, as_evaluation_sample, decision_settings
from compatstore.upgrade.progress import Progress
from compatstore.upgrade.requests.queries import column_of
from compatstore.upgrade.states import require_open, run_of


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
    merge = choose_merge(context, settings, progress)
    save_merge(catalog, context.run, merge, column_of(settings.labels))
    return merge


def choose_merge(
    context: UpgradeContext, settings: SampleSettings, progress: Callable[[Progress], None] | None = None
) -> Merge:
    """Choose a merge for the native share that the gallery has, and for larger ones; read-only.

    The sample is embedded in the target and not kept, except for items that are native already. Larger native shares
    are of random items.

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
    part_queries = _part_queries(context, bridge, sample)
    found = VectorForm.of(context.registry.record(context.run.source)).searchable(part_queries)
    sample, part_queries = sample.asking(found), part_queries[found]  # a search refuses the others
    native = sample.served.valid & (sample.served.origin == NATIVE)
    urgent = order("random", ArrayRows(ids=sample.ids), context.run.seed)
    trial = trial_of_merges(
        as_evaluation_sample(sample, sample.native, urgent),  # nothing is transformed, and no merge looks at it
        decision_settings(context, settings),
        part_queries,
        comparable=bridge is not None and comparable(context.registry, bridge),
    )
    share = native_share(context)
    shares = (share, *(other for other in SHARES if share + SAME_SHARE < other < 1))
    masks = [native, *(trial.sample.filled(other, native) for other in shares[1:])]
    choices = tuple(replace(trial.fit(mask), native_share=there) for mask, there in zip(masks, shares, strict=True))
    chosen = Merge(
        merge=choices[0].merge,
        calibration=trial.calibration(),
        bridge="" if bridge is None else bridge.id,
        choices=choices,
    )
    return chosen.at(share)


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


def _part_queries(context: UpgradeContext, bridge: ArtifactRecord | None, sample: Sample) -> FloatArray:
    """(q, source dim) float32, what the source's part is searched with."""
    if bridge is None:
        return sample.source_queries
    return context.catalog.artifact(bridge.id).apply(sample.target_queries).vectors


def save_merge(catalog: Catalog, run: RunRecord, merge: Merge, labels: str | None) -> None:
    """Store how the parts of an upgrade are merged, with a step of the history in the same commit.

    Raises:
        Interrupted: The upgrade ended meanwhile.
    """

    def change(registry: Registry) -> Registry:
        open_run = require_open(registry, run.target)
        return registry.with_merging(MergeRecord(run.target, open_run.identity, merge, labels))

    edit(catalog.store, change, HistoryEntry(STEP, run.target, note=f"merge {merge.choice or merge.merge}"))


def follow_parts(catalog: Catalog, target: str) -> None:
    """Take the merge that was chosen for the native share which the gallery has by now; a no-op without a choice."""
    registry = catalog.registry()
    merge, run = registry.merge_of(target), run_of(registry, target)
    if merge is None or run is None:
        return
    context = UpgradeContext.of(catalog, run)
    if not context.has_both:
        return
    now = merge.at(native_share(context))
    if abs(now.native_share - merge.native_share) <= SAME_SHARE and now.merge == merge.merge:
        return
    save_merge(catalog, run, now, registry.merging[target].labels)
