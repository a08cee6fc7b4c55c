"""Warnings if the current or planned serving was measured to be below the baseline.

Below means that the whole interval of the difference lies below zero. Looked at are the estimates that are kept: those
of `evaluate(weight="best")`, and of the gates that an upgrade began with. Without a kept estimate nothing is said.
"""

from __future__ import annotations

from typing import Literal

from compatstore.evaluation.bootstrap import Estimate, MeasuredGain
from compatstore.evaluation.decision import SAME_SHARE, DecisionTable
from compatstore.evaluation.fusion import WeightChoice
from compatstore.storage.catalog import Catalog
from compatstore.storage.registry import Registry
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import load_estimate
from compatstore.upgrade.states import run_of

Way = Literal["fused", "merged", "target"]


def warning_of(catalog: Catalog, registry: Registry, target: str, way: Way) -> str:
    """The warning of one way to serve the open upgrade to a version; "" if there is nothing to say."""
    run = run_of(registry, target)
    kept = None if run is None else _kept_gain(catalog, registry, target, way)
    if run is None or kept is None:
        return ""
    names = {
        "fused": f"the fused search over {run.source} and {run.target}",
        "merged": f"{run.target} merged with {run.source}",
        "target": f"{run.target} alone",
    }
    return f"{names[way]} is below the status quo: {kept}" if kept.gain is not None and kept.gain.high < 0 else ""


def warnings_of_run(context: UpgradeContext) -> tuple[str, ...]:
    """Warnings about the current serving."""
    registry, run = context.registry, context.run
    merge, ways = registry.merge_of(run.target), list[Way]()
    if registry.fusion_served(run.target) is not None:
        ways.append("fused")
    if merge is not None and (registry.active == run.target or (not merge.bridge and merge.worth)):
        ways.append("merged")
    elif registry.active == run.target:
        ways.append("target")
    said = (warning_of(context.catalog, registry, run.target, way) for way in ways)
    return tuple(text for text in said if text)


def _kept_gain(catalog: Catalog, registry: Registry, target: str, way: Way) -> MeasuredGain | None:
    """The last measurement of a strategy to serve an upgrade: of the choice of its fusion, or of its gates."""
    if way == "merged":
        return registry.merge_of(target)
    fusion, gain = registry.fusion_of(target), None
    measured: WeightChoice | DecisionTable | None = None if fusion is None else fusion.choice
    share = 0.0
    if isinstance(measured, WeightChoice) and measured.gain is not None and measured.low is not None:
        # The intervals are as wide on both sides.
        chosen = Estimate(value=measured.gain, low=measured.low, high=2 * measured.gain - measured.low)
        gain, share = measured.target_gain if way == "target" else chosen, measured.native_share
    estimate = load_estimate(catalog, target) if gain is None else None
    if estimate is not None:
        measured, share = estimate.table, estimate.share
        rows = (row for row in measured.served(way) if abs(row.share - share) < SAME_SHARE)
        gain = next((row.gains.get(measured.criterion) for row in rows), None)
    if gain is None or measured is None:
        return None
    return MeasuredGain(
        gain=gain,
        criterion=measured.criterion,
        truth=measured.truth,
        num_queries=measured.num_queries,
        native_share=share,
    )
