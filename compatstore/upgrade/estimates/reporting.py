"""The report of an upgrade: history, estimates and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compatstore import next_step
from compatstore.errors import NotFound
from compatstore.evaluation import DecisionTable
from compatstore.evaluation.advice import more
from compatstore.shown import Shown
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.backfilling.account import read_account, read_refusals
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.details import ReportDetails, Search, details_of, require_columns
from compatstore.upgrade.estimates.estimate import SAMPLE, UpgradeEstimate, WaveMeasurement, load_estimate, read_waves
from compatstore.upgrade.estimates.measured import Compared, as_served, called_served, compare, take_measurement
from compatstore.upgrade.estimates.side_by_side import preference_of
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.states import CUTOVER, EXPAND


@dataclass(frozen=True, kw_only=True)
class UpgradeReport(Shown):
    """All there is to say of an upgrade.

    Args:
        gallery: Its address.
        source: Version upgraded from.
        target: Version upgraded to.
        state: State of the upgrade.
        path: Short ids of the artifacts that the hop applied.
        policy: Order of the backfill.
        backfill: Requested share.
        rows: Items.
        native: Items with a native vector in the target.
        transformed: Items with a transformed one.
        missing: Items without a vector in the target.
        embedded: Items that the backfill embedded, over all calls.
        seconds: Time of all steps.
        cost: Cost of embedding, at the given prices; 0 without one.
        embeddable: Items that can be embedded natively, as far as is known.
        unbackfillable: Items that cannot be: how many.
        reasons: Some of them, with why.
        history: The steps of this upgrade, oldest first.
        estimate: The estimate, or None without one.
        measured: The measurement, on items that the estimate has not seen, or None without one.
        compared: Estimate and measurement, figure by figure.
        served: Name of the measured row of the upgrade: "as served", or "after a cutover" before one.
        waves: Results and estimates of each training round of a self-training upgrade, oldest first.
        advice: Advice by the measurement, or else by the estimate; "" without either.
        details: Details query by query, if requested.
    """

    views_in: ClassVar[str] = "compatstore.report.content"
    gallery: str
    source: str
    target: str
    state: str
    path: tuple[str, ...]
    policy: str
    backfill: float
    rows: int
    native: int
    transformed: int
    missing: int
    embedded: int
    seconds: float
    cost: float
    embeddable: int
    unbackfillable: int
    reasons: tuple[tuple[str, str], ...]
    history: tuple[HistoryEntry, ...]
    estimate: UpgradeEstimate | None
    measured: DecisionTable | None
    compared: tuple[Compared, ...]
    served: str
    waves: tuple[WaveMeasurement, ...]
    advice: str
    details: ReportDetails | None = None


def report_upgrade(
    catalog: Catalog,
    target: str | None = None,
    terms: Gates | None = None,
    *,
    measure: bool = True,
    details: Details | None = None,
    search: Search,
    progress: OnProgress = None,
) -> UpgradeReport:
    """Report on an upgrade, and measure it where there is something to measure; read-only.

    Args:
        catalog: The gallery.
        target: Its target; the last upgrade by default.
        terms: Sample, labels and figure of the measurement; by default those of the estimate, and without one nothing
            is measured.
        measure: Whether to measure.
        details: Details to report query by query; None for none.
        search: `Gallery.search`.
        progress: Called as the measurement goes on.

    Raises:
        NotFound: There was no such upgrade.
        UpgradeError: Too few items can be measured with.
        InvalidInput: There is no column that the details name.
    """
    snapshot = catalog.store.snapshot()
    if details is not None:
        require_columns(details, snapshot.schema.names)
    run = _run(catalog.registry(snapshot), target)
    context = UpgradeContext.of(catalog, run, snapshot)
    estimate = load_estimate(catalog, run.target)
    criteria = terms if terms is not None and terms.asked else None if estimate is None else estimate.terms
    drew = estimate is not None and not run.teaches  # training rounds use natives, and draw nothing
    seen = (estimate.terms.sample or SAMPLE) if estimate is not None and drew else 0
    both = context.has_both
    promised = None if estimate is None else estimate.table
    measurement = None
    if measure and criteria is not None and both:
        measurement = take_measurement(context, criteria, seen, promised, progress)
    measured = None if measurement is None else measurement.table
    served = called_served(context)
    compared = () if estimate is None or measured is None else compare(estimate, measured, served)
    counts, steps = _counts(context), _steps(catalog, run)
    spent, failed = read_account(context) if both else context.ledger.load()
    refusals = read_refusals(context, failed)
    return UpgradeReport(
        gallery=catalog.store.location.uri,
        source=run.source,
        target=run.target,
        state=run.state,
        path=tuple(artifact[:12] for artifact in run.path),
        policy=run.policy,
        backfill=run.backfill,
        rows=sum(counts),
        native=counts[0],
        transformed=counts[1],
        missing=counts[2],
        embedded=spent.rows,
        seconds=sum(step.seconds for step in steps),
        cost=spent.cost,
        embeddable=refusals.embeddable,
        unbackfillable=refusals.count,
        reasons=refusals.reasons,
        history=steps,
        estimate=estimate,
        measured=measured,
        compared=compared,
        served=served,
        waves=read_waves(catalog, run.target) if run.teaches else (),
        advice=_advice(context, counts, spent.rows, estimate, measured, compared),
        details=None if details is None else details_of(context, measurement, criteria, details, search),
    )


def _advice(
    context: UpgradeContext,
    counts: tuple[int, int, int],
    embedded: int,
    estimate: UpgradeEstimate | None,
    measured: DecisionTable | None,
    compared: tuple[Compared, ...],
) -> str:
    """The verdict, from the very rows that are shown."""
    target, (native, transformed, missing) = context.run.target, counts
    if missing:
        return f"{missing} items have no vector in {target}: run the upgrade."
    if measured is None:
        return "" if estimate is None else estimate.table.advice.text
    served, criterion = as_served(measured), measured.criterion
    kept, preference = served.kept.get(criterion), preference_of(context.catalog, target)
    quality = None if estimate is None else estimate.terms.target_quality
    against = []
    if quality is not None and kept is not None and kept.low < quality:
        certainty = "is kept" if kept.high < quality else "may be kept"
        against.append(f"less than {quality:.0%} of the full backfill's {criterion} {certainty} ({kept.percent} %)")
        if kept.high < quality:
            return f"Backfill more: {'; '.join(against)}."
    if not measured.has_ground_truth:
        share = f"{100 * served.figures[criterion].value:.0f} %"
        return (
            f"Quality is not measurable without ground truth: {share} of the new model's first results are served, "
            f"{native} of {native + transformed} items native, {embedded} embedded. {more(preference)}"
        )
    gain, change = served.gains[criterion], f"{measured.change(served)}, {embedded} items embedded"
    if gain.is_loss:
        return f"Do not cut over, or roll back: {change}."
    if not gain.is_gain:
        against.append("the gain is not significant")
    apart = [row.what for row in compared if not row.agrees]
    if apart:
        against.append(f"not as estimated: {', '.join(apart)}; rely on the measurement")
    if against:
        return f"Look before you cut over: {change}; {'; '.join(against)}."
    return f"{f'Keep {target}' if context.run.state == CUTOVER else 'Cut over'}: {change}."


def _run(registry: Registry, target: str | None) -> RunRecord:
    """The upgrade to a target, or the last one that began."""
    runs = registry.runs
    if target is None and runs:
        return max(runs.values(), key=lambda run: run.started_at)
    if target is None or target not in runs:
        raise NotFound(
            f"report on the upgrade to {target}" if target else "report on an upgrade",
            expected=f"one of {', '.join(runs)}" if runs else "an upgrade",
            found="none",
            fix=f"Begin one: {next_step.call('upgrade', target or 'TARGET')}",
            kind="version",
        )
    return runs[target]


def _counts(context: UpgradeContext) -> tuple[int, int, int]:
    """Native, transformed and missing rows in the target."""
    columns, rows = context.target_record.columns, context.count()
    if columns is None:
        return 0, 0, rows
    native, present = context.count(columns.native), context.count(columns.present)
    return native, present - native, rows - present


def _steps(catalog: Catalog, run: RunRecord) -> tuple[HistoryEntry, ...]:
    """Steps of the run's versions since it began; before it, its links and estimates."""
    steps = [entry for entry in registry_module.history(catalog.store) if entry.version == run.target]
    began = max((entry.number for entry in steps if entry.step == EXPAND), default=0)  # two may begin in one second
    ended = [entry.number for entry in steps if entry.number < began and entry.step in ("retire", "abort")]
    return tuple(entry for entry in steps if entry.number > max(ended, default=0))
