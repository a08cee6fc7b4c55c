"""Warnings if the current or planned serving was measured to be below the baseline.

Below means that the whole interval of the difference lies below zero. Looked at are the estimates that are kept: those
of `evaluate(weight="best")`, and of the gates that an upgrade began with. Without a kept estimate nothing is said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from compatstore.evaluation.bootstrap import MeasuredGain
from compatstore.evaluation.decision import SAME_SHARE
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
    if kept.gain is None or not kept.gain.is_loss:
        return ""
    return f"{names[way]} is below the status quo: {MeasuredGain.__str__(kept)}"


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
    return _of_fusion(registry, target, way) or _of_gates(catalog, target, way)


def _of_fusion(registry: Registry, target: str, way: Way) -> MeasuredGain | None:
    """The measurement with which it was chosen."""
    fusion = registry.fusion_of(target)
    weighed = None if fusion is None else fusion.choice
    if weighed is None or way == "fused":
        return weighed if weighed is not None and weighed.gain is not None else None
    return None if weighed.target_gain is None else replace(weighed, gain=weighed.target_gain)


def _of_gates(catalog: Catalog, target: str, way: Literal["fused", "target"]) -> MeasuredGain | None:
    """The measurement that decided the gates with which the upgrade began."""
    estimate = load_estimate(catalog, target)
    if estimate is None:
        return None
    table = estimate.table
    rows = table.served(way)
    gains = (row.gains.get(table.criterion) for row in rows if abs(row.share - estimate.share) < SAME_SHARE)
    gain = next(gains, None)
    if gain is None:
        return None
    return MeasuredGain(
        gain=gain,
        criterion=table.criterion,
        truth=table.truth,
        num_queries=table.num_queries,
        native_share=estimate.share,
    )
