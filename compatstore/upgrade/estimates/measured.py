"""Measurement of an upgrade after the fact, on items that its estimate has not seen, compared with the estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compatstore import next_step
from compatstore.arrays import Doubles
from compatstore.errors import UpgradeError
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import SAMPLE, UpgradeEstimate
from compatstore.upgrade.estimates.queries import SMALLEST_SAMPLE
from compatstore.upgrade.estimates.sample import REPORT_DRAW, draw_sample
from compatstore.upgrade.estimates.trial import SampleResults, SampleSettings, rank_on_sample
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import Queries

AS_SERVED = "t/h"  # a trial's row for the vectors that it is given; here they are the table's own
SERVED, AFTER = "as served", "after a cutover"  # name of the row of the current, or future, serving


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One figure, estimated before the upgrade and measured after it on other items.

    Args:
        what: Figure and strategy, such as "map of a full backfill".
        estimated: The estimate.
        measured: After.
        agrees: Whether the two differ by no more than their intervals together explain.
    """

    what: str
    estimated: Estimate
    measured: Estimate
    agrees: bool

    @classmethod
    def of(cls, what: str, estimated: Estimate, measured: Estimate) -> Compared:
        """Compare the two."""
        halves = ((one.high - one.low) / 2 for one in (estimated, measured))
        agrees = abs(measured.value - estimated.value) <= math.hypot(*halves)
        return cls(what=what, estimated=estimated, measured=measured, agrees=agrees)


def take_measurement(
    context: UpgradeContext,
    terms: Gates,
    estimated: int,
    promised: DecisionTable | None = None,
    progress: OnProgress = None,
) -> SampleResults:
    """Measure the current table with items that the estimate has not seen, or application queries; read-only.

    The draw has a domain of its own, so that native and transformed rows are in it as they are in the gallery. With
    labels its queries search the whole gallery as it is served. Items without a native vector are embedded to know
    the quality of a full backfill, and not kept.

    Args:
        context: The upgrade.
        terms: Sample, labels and figure.
        estimated: Items that the estimate has drawn.
        promised: The estimate; without ground truth as many first results are compared here as there.
        progress: Called as items are embedded, and as queries search the gallery and the sample.

    Returns:
        The result. The rows of its table are the status quo ("s/s"), the target's vectors as the table has them
        (`AS_SERVED`), the fusion that the gallery is served with, where there is one, and a full backfill, among
        others.

    Raises:
        UpgradeError: The gallery has too few other items, or too few of them can be queries.
        InvalidInput: The criterion is CMC, and there are no labels.
    """
    run, size = context.run, terms.sample or SAMPLE
    if isinstance(terms.labels, Queries):
        terms.labels.require_same()
    left = context.count(context.source.present) - estimated
    if left < SMALLEST_SAMPLE and not isinstance(terms.labels, Queries):
        raise UpgradeError(
            f"measure the upgrade to {run.target}",
            expected=f"{SMALLEST_SAMPLE} items that the estimate has not seen",
            found=f"{max(left, 0)} beside its sample of {estimated}",
            fix=f"Report without measuring: {next_step.call('report', measure=False)}",
        )
    fresh = draw_sample(
        context, size, labels=terms.labels, seed=run.seed, domain=REPORT_DRAW, estimated=estimated, progress=progress
    )
    fresh = fresh.only(fresh.served.valid)  # a search in the target finds no others
    if not fresh.has_ground_truth and not fresh.embedded.all() and context.catalog.encoder(run.target) is None:
        raise UpgradeError(
            f"measure agreement with {run.target}",
            expected="an encoder that embeds the sample, labels or qrels",
            found=f"no encoder, and {int(fresh.embedded.sum())} of {len(fresh.embedded)} items native",
            fix=f"Give its model: {next_step.encoder(run.target)}; name labels or qrels; or report without measuring: "
            f"{next_step.call('report', measure=False)}",
        )
    settings = replace(SampleSettings.of(terms, run, SAMPLE), fused_shares=())
    if promised is not None:
        settings = replace(settings, neighbours=promised.neighbours)
    return rank_on_sample(context, fresh, settings, served=True, progress=progress)


def compare(estimate: UpgradeEstimate, measured: DecisionTable, called: str = SERVED) -> tuple[Compared, ...]:
    """Compare the estimated figures of the actual budget with the measured ones, as far as both are known.

    The estimate of the fused search is compared with the current serving, and the estimate of the target
    alone with the target alone. `called` is of `called_served`.
    """
    served = as_served(measured) if estimate.terms.fused else measured.row(AS_SERVED)
    pairs = (
        ("status quo", estimate.table.row("s/s"), measured.row("s/s")),
        (called if served is as_served(measured) else "target alone", estimate.row, served),
        *(("full backfill", row, measured.row("t/t")) for row in estimate.table.rows if row.notation == "t/t"),
    )
    figures = (
        Compared.of(f"{name}: {metric}", before.figures[metric], after.figures[metric])
        for name, before, after in pairs
        for metric in before.figures
        if metric in after.figures and before.figures[metric].low < before.figures[metric].high  # as of itself
    )
    changes = _shares(estimate.table.criterion, estimate.row, served) if estimate.table.has_ground_truth else ()
    return (*figures, *changes)


def as_served(measured: DecisionTable) -> DecisionRow:
    """The row of the current serving: the stored fusion, or the target's vectors."""
    return next(iter(measured.served("fused")), measured.row(AS_SERVED))


def before_and_after(measurement: SampleResults) -> tuple[Doubles, Doubles]:
    """The figure that decides of each query, by the status quo and as served: (q,) float64 each."""
    table = measurement.table
    before, after = (table.rows.index(row) for row in (table.row("s/s"), as_served(table)))
    return measurement.figures[before], measurement.figures[after]


def called_served(context: UpgradeContext) -> str:
    """Name of the row of `as_served`: before a cutover searches use it only through a fusion of both versions."""
    registry, target = context.registry, context.run.target
    now = registry.active == target or registry.fusion_served(target) is not None
    return SERVED if now else AFTER


def what_matters(measured: DecisionTable, called: str = SERVED) -> tuple[tuple[str, DecisionRow], ...]:
    """The rows of a measurement after the fact, with their meaning; `called` is of `called_served`."""
    served, alone = as_served(measured), measured.row(AS_SERVED)
    return (
        ("status quo", measured.row("s/s")),
        (called, served),
        *(() if served is alone else (("target alone", alone),)),
        ("full backfill", measured.row("t/t")),
    )


def _shares(criterion: str, before: DecisionRow, after: DecisionRow) -> Iterator[Compared]:
    for what, named in (("gained", "gains"), ("kept of a full backfill", "kept")):
        estimated, measured = getattr(before, named), getattr(after, named)
        if criterion in estimated and criterion in measured:
            yield Compared.of(f"{criterion} {what}", estimated[criterion], measured[criterion])
    if before.broken is not None and after.broken is not None:
        yield Compared.of("negative flips", before.broken, after.broken)
