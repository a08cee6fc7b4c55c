"""How both versions of an upgrade are searched as one: chosen on a sample, stored beside the upgrade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from compatstore import next_step
from compatstore.arrays import BoolArray, Positions
from compatstore.errors import UpgradeError
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.fusion import SAME_SHARE, Fusion, Serving
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord, ServingRecord
from compatstore.storage.registry import Registry, edit
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.sample import draw_sample
from compatstore.upgrade.estimates.trial import (
    TRUST,
    SampleSettings,
    as_evaluation_sample,
    decision_settings,
    factors_of,
    made_of,
    order_of_sample,
)
from compatstore.upgrade.progress import Monitor, Progress
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import column_of
from compatstore.upgrade.states import require_open, run_of

STEP = "fuse"
SAMPLE = 1000
SHARES = (0.25, 0.5, 0.75, 1.0)  # native shares that weights are chosen for, beside the gallery's own


def choose_fusion(
    context: UpgradeContext,
    settings: SampleSettings,
    weight: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Fusion:
    """Choose a weight for the native share that the gallery has, and for larger ones; read-only.

    The sample is embedded in the target and not kept, except for items that are native already.

    Args:
        context: The upgrade.
        settings: Sample and criterion.
        weight: Take this weight; the sample gives the constants, and what the weight gains.
        progress: Called as items are embedded, and after each native share that a weight is chosen for.

    Raises:
        UpgradeError: Too few items can be embedded natively.
        InvalidInput: There is no such column of labels, or the criterion is CMC and the sample not the whole gallery.
    """
    sample = draw_sample(context, settings.sample, labels=settings.labels, seed=settings.seed, progress=progress)
    native = sample.served.valid & (sample.served.origin == NATIVE)
    made = made_of(context, sample)
    urgent = order_of_sample(context, sample, made) if context.run.path else np.arange(len(sample.places))
    stored = sample.served.valid & ~native
    made.put(stored, sample.served.take(stored))
    by_both = decision_settings(context, replace(settings, trust=TRUST))
    transformed = replace(as_evaluation_sample(sample, made.vectors, urgent), factors=factors_of(context, made))
    trial = trial_of_fusions(transformed, by_both)
    constants = trial.constants()
    share = native_share(context)
    if weight is not None:
        named = replace(constants.named(weight), native_share=share)
        return replace(named, choices=(trial.measure(native, named),))
    larger = [other for other in SHARES if other > share + SAME_SHARE]
    masks = [native, *(trial.sample.filled(other, native) for other in larger)]
    fitted, monitor = list[Fusion](), Monitor("choose", len(masks), progress)
    for mask in masks:
        fitted.append(trial.fit(mask, constants, against_target=True).fusion)
        monitor.advance(1)
    choices = tuple(
        replace(choice, native_share=there)
        for fusion, there in zip(fitted, (share, *larger), strict=True)
        for choice in fusion.choices
    )
    return replace(constants, choices=choices).at(share)


def native_share(context: UpgradeContext) -> float:
    """Share of the gallery that is native in the target, from 0 to 1."""
    columns, items = context.target_record.columns, context.count()
    return 0.0 if columns is None or not items else context.count(columns.native) / items


def filled(native: BoolArray, order: Positions, share: float) -> BoolArray:
    """(n,) bool, natives when the backfill has reached a share: those of now, then the first of the order."""
    first = order[np.argsort(~native[order], kind="stable")]
    filled = native.copy()
    filled[first[: native_count(share, len(native))]] = True
    return filled


def fusable(catalog: Catalog, target: str) -> UpgradeContext:
    """The upgrade whose versions can be fused.

    Raises:
        NotFound: There is no such version.
        UpgradeError: No upgrade to it is under way, or one of its versions has no vectors.
    """
    registry = catalog.registry()
    registry.record(target)
    run = run_of(registry, target)
    if run is None or not UpgradeContext.of(catalog, run).has_both:
        raise UpgradeError(
            f"fuse {target} with the version before it",
            expected="an upgrade whose both versions have vectors",
            found="none" if run is None else f"an upgrade in state {run.state} that lacks one",
            fix=f"Begin it: {next_step.call('upgrade', target)}",
        )
    return UpgradeContext.of(catalog, run)


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

    choice = fusion.choice
    note = f"weight {fusion.weight if choice is None else choice}"
    edit(catalog.store, change, HistoryEntry(STEP, run.target, note=note))


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


def require_servable(registry: Registry, target: str, serving: Serving | None) -> None:
    """Refuse to serve both versions of an upgrade as one if no fusion was chosen for it.

    Raises:
        UpgradeError: None was.
    """
    if serving == "fused" and registry.fusion_of(target) is None:
        raise UpgradeError(
            f"serve the upgrade to {target} by both of its versions",
            expected="a fusion that was chosen for it",
            found="none",
            fix=f"Choose one: {next_step.call('evaluate', target, weight='best')}",
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
        serving: How; None as before.
        run: The open upgrade's record, to be written in the same commit.

    Raises:
        UpgradeError: It is to be fused, and no fusion was chosen for it.
        Interrupted: The fusion ended meanwhile.
    """
    registry = catalog.registry()
    require_servable(registry, target, serving)
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


def serve_as_asked(catalog: Catalog, target: str, asked: Gates) -> None:
    """Serve an upgrade as its gates ask for: choose a fusion where none was chosen yet, or follow the native share.

    Raises:
        UpgradeError: Too few items can be embedded natively.
        Interrupted: The upgrade ended meanwhile.
    """
    registry = catalog.registry()
    if not asked.fused or registry.fusion_of(target) is not None:
        follow_natives(catalog, target)
    else:
        context = fusable(catalog, target)
        settings = SampleSettings(
            sample=asked.sample or SAMPLE, labels=asked.labels, criterion=asked.criterion, seed=context.run.seed
        )
        save_fusion(catalog, context.run, choose_fusion(context, settings), column_of(asked.labels))
    if asked.serving is not None:
        serve(catalog, target, asked.serving)
