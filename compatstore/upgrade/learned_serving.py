"""How an upgrade that teaches itself is searched by what it has learned, until its cutover and after it."""

from __future__ import annotations

from dataclasses import replace

from compatstore import next_step
from compatstore.evaluation import Estimate
from compatstore.evaluation.fusion import Fusion, Served
from compatstore.evaluation.strategies import is_expected
from compatstore.storage.doubts import can_doubt
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import load_estimate, save_estimate
from compatstore.upgrade.estimates.fusing import serve
from compatstore.upgrade.requests.gates import Gates


def serve_as_learned(context: UpgradeContext, asked: Gates) -> RunRecord:
    """Serve by both versions as one where that was found to be sure of a gain, else as before.

    Where the target alone is to be searched by expected distances, searches go on as before until the cutover. A
    transform that says nothing of its errors was judged without them, and is searched so. What the caller has chosen
    since the last lesson stays, unless gates ask for expected distances and those of that lesson did not.

    Args:
        context: The upgrade, with all items hopped by what the last lesson learned.
        asked: How it is to be served.

    Returns:
        The run.
    """
    catalog, run, record = context.catalog, context.run, context.target_record
    fusion = catalog.registry().fusion_of(run.target)
    if fusion is None or (run.served_at == run.learned_at and not _promised_otherwise(context, asked)):
        return run
    way: Served = "fused" if fusion.weight > 0 else "single"
    if asked.serving == "expected":
        way = "expected" if can_doubt(catalog, record, run.path) else "single"
    run = replace(run, served_at=run.learned_at)
    serve(catalog, run.target, way, run)
    return run


def _promised_otherwise(context: UpgradeContext, asked: Gates) -> bool:
    """Promise what the last lesson found of searches by expected distances, where it was made for others; if it was."""
    estimate = load_estimate(context.catalog, context.run.target)
    if asked.serving != "expected" or estimate is None:
        return False
    known = any(is_expected(row.notation) for row in estimate.table.rows)
    serving: Served = "expected" if known else "single"  # of a transform that says nothing of its errors
    if estimate.terms.serving == serving:
        return False
    best = estimate.table.best_of(serving).share
    save_estimate(
        context.catalog, context.run.target, replace(estimate, terms=replace(asked, serving=serving), best=best)
    )
    return True


def has_no_gain(context: UpgradeContext) -> bool:
    """True if an upgrade measured all ways to serve what it learned, and none is significantly better."""
    run, registry = context.run, context.catalog.registry()
    served = registry.fusion_served(run.target) is not None or registry.record(run.target).expected is not None
    return bool(run.learned_at) and not served and _better_alone(registry, run.target) is None


def how_searched(context: UpgradeContext) -> str:
    """How searches use the upgrade until its cutover, as a sentence."""
    run, registry = context.run, context.catalog.registry()
    fusion = registry.fusion_served(run.target)
    if registry.record(run.target).expected is not None:
        later = "" if registry.active == run.target else f" alone; after a cutover in {run.target}"
        gain = _expected_gain(registry, run.target)
        unsure = "" if gain is None or gain.low > 0 else ", which is not sure to be better"
        return f"searches go on in {registry.active}{later} alone, by expected distances{unsure}"
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
        return f"searches with queries of both versions rank by {run.source} and {run.target} as one{still}"
    if alone:
        return f"searches go on in {registry.active} alone: {alone[0]} is sure to be better, but only {alone[1]}"
    return f"searches go on in {registry.active} alone: nothing that was learned is sure to be better"


def _expected_gain(registry: Registry, target: str) -> Estimate | None:
    """What the target alone gains over the status quo by expected distances; None where nobody knows."""
    fusion = registry.fusion_of(target)
    return None if fusion is None or fusion.choice is None else fusion.choice.expected_gain


def _better_alone(registry: Registry, target: str) -> tuple[str, str] | None:
    """How the target alone is sure to find more than searches do now, and when: by expected distances, or as it is."""
    fusion = registry.fusion_of(target)
    choice = None if fusion is None else fusion.choice
    if choice is not None and choice.over_expected is not None and choice.over_expected.high < 0:
        return f"{target} alone by expected distances", "after a cutover with serving expected"
    if choice is not None and choice.over_target is not None and choice.over_target.high < 0:
        return f"{target} alone", "after a cutover"
    return None


def in_words(fusion: Fusion, target: str, asked: Gates) -> str:
    """What a lesson's choice gives, as it is served."""
    choice = fusion.choice
    assert choice is not None, "each lesson chooses a weight"
    gain = choice.expected_gain
    if asked.serving != "expected" or gain is None:
        return f"weight {choice}"
    low, value, high = (f"{100 * end:+.1f}" for end in (gain.low, gain.value, gain.high))
    return (
        f"{target} alone by expected distances gains {value} points ({low} to {high}) of {choice.criterion} over the "
        f"status quo, by {choice.num_queries} queries, correct by {choice.truth}, at a native share of "
        f"{choice.native_share:.4g}"
    )
