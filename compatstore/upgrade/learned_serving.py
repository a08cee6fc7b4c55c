"""Serving of a self-training upgrade with its fitted transform, until its cutover and after it."""

from __future__ import annotations

from dataclasses import replace

from compatstore import next_step
from compatstore.evaluation.fusion import Serving
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import UpgradeEstimate, load_estimate, save_estimate
from compatstore.upgrade.estimates.fusing import serve
from compatstore.upgrade.requests.gates import Gates


def serve_as_learned(context: UpgradeContext, gates: Gates) -> RunRecord:
    """Enable fused serving if its gain is significant; otherwise keep the current serving.

    If the target alone is to be searched, searches stay unchanged until the cutover. A choice of the caller since the
    last training round stays, unless gates require the target alone and those of that round did not.

    Args:
        context: The upgrade, with all items hopped by the transform of the last training round.
        gates: The gates, with the serving mode.

    Returns:
        The run.
    """
    catalog, run = context.catalog, context.run
    fusion = catalog.registry().fusion_of(run.target)
    if fusion is None or (run.served_at == run.learned_at and not _resave_for_target(context, gates)):
        return run
    way: Serving = "fused" if fusion.weight > 0 and gates.serving != "target" else "target"
    run = replace(run, served_at=run.learned_at)
    serve(catalog, run.target, way, run)
    return run


def _resave_for_target(context: UpgradeContext, gates: Gates) -> bool:
    """Re-save the last round's estimate for the target alone if it was saved for fused searches; True if it was."""
    estimate = load_estimate(context.catalog, context.run.target)
    if gates.serving != "target" or estimate is None or estimate.terms.serving == "target":
        return False
    best = estimate.table.best_of("target").share
    save_estimate(context.catalog, context.run.target, replace(estimate, terms=gates, best=best, round=None))
    return True


def has_no_gain(context: UpgradeContext) -> bool:
    """True if all ways to serve the fitted transform were measured, and none is significantly better."""
    run, registry = context.run, context.catalog.registry()
    served = registry.fusion_served(run.target) is not None or _estimate_of_target(context) is not None
    return bool(run.learned_at) and not served and _better_alone(registry, run.target) is None


def how_searched(context: UpgradeContext) -> str:
    """Serving of the upgrade until its cutover, as a sentence."""
    run, registry = context.run, context.catalog.registry()
    fusion, estimate = registry.fusion_served(run.target), _estimate_of_target(context)
    if estimate is not None:
        later = "" if registry.active == run.target else f" alone; after a cutover in {run.target}"
        gain = estimate.row.gains.get(estimate.table.criterion)
        measured = "not measured without ground truth" if gain is None else "no significant gain"
        unsure = "" if gain is not None and gain.is_gain else f" ({measured})"
        return f"searches go on in {registry.active}{later} alone{unsure}"
    alone = _better_alone(registry, run.target)
    source = run.source
    if fusion is None and not context.catalog.can_ask_both(source, run.target):
        known = next_step.made("EmbeddingVersion", source, dim=next_step.DIM_FOUND, encoder=next_step.ENCODER)
        return (
            f"{source} has no encoder here, so a text is searched by {run.target} alone once it is cut over; by both "
            f"models after: {next_step.call('register', known)}"
        )
    if fusion is not None:
        still = f"; {alone[0]} is better still, {alone[1]}" if alone else ""
        rule = fusion.choice is not None and not fusion.choice.truth
        unsure = f" (weight {fusion.weight:g} by rule, not measured without ground truth)" if rule else ""
        both = f"{run.source} and {run.target}"
        return f"queries that carry both embeddings are ranked by the fusion of {both}{unsure}{still}"
    if alone:
        return f"searches go on in {registry.active} alone: {alone[0]} is significantly better, but only {alone[1]}"
    return f"searches go on in {registry.active} alone: no learned transform is significantly better"


def _estimate_of_target(context: UpgradeContext) -> UpgradeEstimate | None:
    """The estimate of the last round if the upgrade is to be served by the target alone; None otherwise."""
    estimate = load_estimate(context.catalog, context.run.target)
    if not context.run.learned_at or estimate is None or estimate.terms.serving != "target":
        return None
    return estimate


def _better_alone(registry: Registry, target: str) -> tuple[str, str] | None:
    """The target alone, and when searches use it, if it is significantly better than what they use now."""
    fusion = registry.fusion_of(target)
    choice = None if fusion is None else fusion.choice
    if choice is not None and choice.over_target is not None and choice.over_target.is_loss:
        return f"{target} alone", "after a cutover"
    return None
