"""The estimate of an upgrade: its decision table, the budget that a target quality needs, and the expected quality.

The guarantee: served with that budget, the gallery keeps at least the target quality of a full backfill's figure,
by the figure and the truth of the estimate, for queries like the gallery's own items. The interval allows for the draw
of the sample, and for the choice among budgets. Only items that can be embedded can become native: a target quality
that needs more of them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from compatstore import next_step
from compatstore.documents import read_record
from compatstore.errors import GateFailed, InvalidInput
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.fusion import Serving
from compatstore.evaluation.sample import AGREEMENT
from compatstore.shown import Shown
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord, Spent
from compatstore.storage.registry import edit
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.embeddable import ask_embeddable
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.fusing import SHARES
from compatstore.upgrade.estimates.trial import FUSED_SHARES, SampleSettings, try_upgrade
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.requests.gates import Gates, read_requirement, require_ground_truth
from compatstore.upgrade.requests.queries import Queries, has_ground_truth
from compatstore.upgrade.states import run_of, steps_since_the_last

STEP = "estimate"
SAMPLE = 2000
_DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class UpgradeEstimate(Shown):
    """The expected result of an upgrade.

    Args:
        terms: Requested gates and sample.
        path: Ids of the artifacts that are applied.
        policy: Order of the backfill.
        seed: Seed of the order and the sample.
        share: Budget that is checked: the smallest one for the target quality, otherwise the requested one.
        best: Budget with the best figure, which is not always the largest.
        gates: Gates, checked at `share`.
        table: Every way to serve the gallery.
    """

    terms: Gates
    path: tuple[str, ...]
    policy: str
    seed: int
    share: float
    best: float
    gates: tuple[Gate, ...]
    table: DecisionTable

    @classmethod
    def of(
        cls, run: RunRecord, terms: Gates, table: DecisionTable, share: float, gates: tuple[Gate, ...] = ()
    ) -> UpgradeEstimate:
        """The estimate of a run by a table; arguments as of the class."""
        return cls(
            terms=terms,
            path=run.path,
            policy=run.policy,
            seed=run.seed,
            share=share,
            best=table.best_of(terms.way).share,
            gates=gates,
            table=table,
        )

    @property
    def passed(self) -> bool:
        """True if all gates pass."""
        return all(gate.passed for gate in self.gates)

    @property
    def row(self) -> DecisionRow:
        """The estimate at `share`."""
        return self.table.budget(self.share, self.terms.way)

    def holds_for(self, run: RunRecord, terms: Gates, *, begun: bool) -> bool:
        """True if it was made for such a run. A run that has begun keeps its path, except for refits."""
        path = begun or self.path == run.path
        return path and (self.terms, self.policy, self.seed) == (terms, run.policy, run.seed)

    @property
    def promise(self) -> str:
        """The expected quality as a sentence: "A backfill of 0.25 keeps 98.4% (97.1% to 99.2%) of the full ..."."""
        table, kept = self.table, self.row.kept.get(self.table.criterion)
        served = f"A backfill of {self.share:.4g}{', by fused search,' * self.terms.fused}"
        if not table.has_ground_truth:
            agreement, unchanged = (self.row.percent_of(name) for name in AGREEMENT)
            return (
                f"{served} serves {agreement} % of the first results of a full backfill, and {unchanged} % of those "
                "of now."
            )
        if kept is None:
            return f"{served} has {table.criterion} {self.row.percent_of(table.criterion)} %."
        queries = "the given ones" if isinstance(self.terms.labels, Queries) else "the gallery's items"
        return (
            f"{served} keeps {kept.value:.1%} ({kept.low:.1%} to {kept.high:.1%}) of the full "
            f"backfill's {table.criterion}, correct by {table.truth}, for queries like {queries}."
        )


def estimate_upgrade(context: UpgradeContext, terms: Gates, progress: OnProgress = None) -> UpgradeEstimate:
    """Estimate every budget on a sample and choose the smallest that significantly meets the target quality; read-only.

    Raises:
        UpgradeError: There is nothing to transform with, or too few items can be queries.
        InvalidInput: There is no such column of labels, the sample is too small, or a term is of a figure that a sample
            cannot tell.
    """
    run, requested_share = context.run, asked_share(context)
    settings = replace(
        SampleSettings.of(terms, run, SAMPLE),
        shares=(requested_share,) if 0 < requested_share < 1 else (),
        fused_shares=tuple(sorted({0.0, *SHARES, requested_share})) if terms.fused else FUSED_SHARES,
    )
    items = context.count(context.source.present)
    checked = requested_share if terms.target_quality is None else None
    require_measurable(terms, checked, complete=settings.sample >= items)
    table = try_upgrade(context, settings, progress)
    share = requested_share
    if terms.target_quality is not None:
        smallest = table.smallest_share(terms.target_quality, terms.way)
        share = 1.0 if smallest is None else smallest
    return UpgradeEstimate.of(run, terms, table, share, check_gates(table.budget(share, terms.way), terms))


def agree(context: UpgradeContext, terms: Gates, progress: OnProgress = None) -> UpgradeEstimate:
    """Estimate an upgrade, or load the estimate that it began with, and refuse to go on where a gate fails.

    Raises:
        GateFailed: A gate failed, or nothing beats the status quo and the budget was to be picked.
    """
    run = context.run
    known = load_estimate(context.catalog, run.target)
    if known is not None and known.holds_for(run, terms, begun=run_of(context.registry, run.target) is not None):
        return known
    estimate = estimate_upgrade(context, terms, progress)
    table, picked = estimate.table, tuple[Gate, ...]()
    if terms.target_quality is not None and table.has_ground_truth:
        picked = (gate_of_advice(table, terms.way),)
    require_passed(run.target, (*estimate.gates, *picked))
    return estimate


def save_estimate(
    catalog: Catalog, target: str, estimate: UpgradeEstimate, figures: Mapping[str, float] | None = None
) -> None:
    """Enter an estimate into the history, unless it is the last one there; `figures` says when it was made."""
    values, labels = asdict(estimate), estimate.terms.labels
    if isinstance(labels, Queries):
        values["terms"]["labels"] = labels.record()
    data = _rounded(values)
    entry = HistoryEntry(STEP, target, note=estimate.promise, data=data, figures=figures or {})
    known = steps_since_the_last(catalog, target, STEP)
    if not known or dict(known[-1].data) != data:
        edit(catalog.store, lambda registry: registry, entry)


def load_estimate(catalog: Catalog, target: str) -> UpgradeEstimate | None:
    """The last estimate of the upgrade to a target; None if there is none."""
    known = steps_since_the_last(catalog, target, STEP)
    return _read(known[-1].data) if known else None


def estimates_of(catalog: Catalog, target: str) -> tuple[tuple[UpgradeEstimate, Mapping[str, float]], ...]:
    """All estimates of the upgrade to a target, oldest first, each with the figures that it was saved with."""
    return tuple((_read(entry.data), entry.figures) for entry in steps_since_the_last(catalog, target, STEP))


def _read(data: Mapping[str, Any]) -> UpgradeEstimate:
    stored = data["terms"]
    labels = Queries(**stored["labels"]) if isinstance(stored["labels"], Mapping) else stored["labels"]
    terms = Gates(**{**stored, "require": tuple(stored["require"]), "labels": labels})
    return read_record(UpgradeEstimate, dict(data), "estimate", {"terms": terms})


def asked_share(context: UpgradeContext) -> float:
    """The share that a run may embed, by its own limits of items and money."""
    run, items = context.run, context.count()
    rows = Budget.of(run).rows_left(Spent())
    return run.backfill if rows is None or not items else min(run.backfill, rows / items)


def _rounded(value: Any) -> Any:
    """The same, with floats as short as is enough, and lists for tuples, as JSON gives it back."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def gate_of_reach(context: UpgradeContext, estimate: UpgradeEstimate) -> tuple[Gate, ...]:
    """The gate of a target quality whose backfill needs more items than can be embedded; none otherwise."""
    share, refused = estimate.share, read_account(context)[1]["id"].combine_chunks()
    possible, _ = ask_embeddable(context, refused)
    if estimate.terms.target_quality is None or native_count(share, possible.items) <= possible.most:
        return ()
    name = f"a backfill of {possible.most / possible.items:.4g} at most, as {possible}"
    return (Gate(name=name, estimate=Estimate(value=share, low=share, high=share), passed=False),)


def require_within_reach(context: UpgradeContext, estimate: UpgradeEstimate) -> None:
    """Refuse a target quality that the embeddable items cannot reach.

    Raises:
        GateFailed: The backfill that the target quality needs exceeds the embeddable items.
    """
    for gate in gate_of_reach(context, estimate):
        raise GateFailed(
            f"upgrade to {context.run.target} with a target quality of {estimate.terms.target_quality}",
            expected=gate.name,
            found=f"{estimate.share:.4g} needed",
            fix=f"Nothing was written. Lower the target quality, or set the backfill: {next_step.option('backfill')}.",
        )


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One gate.

    Args:
        name: Name of the gate, "map>=0.6" or "negative flips<=0.02".
        estimate: The figure; its worse end decides.
        passed: Whether that end is within the bound.
    """

    name: str
    estimate: Estimate
    passed: bool


def require_measurable(gates: Gates, share: float | None, *, complete: bool) -> None:
    """Refuse gates that no estimate measures, before anything is embedded for it.

    Without ground truth that is agreement alone. With it a sample gives mAP of every budget, and the other figures of
    a hop alone, which needs no native vector that does not exist yet.

    Args:
        gates: The gates.
        share: The budget that is checked; None if the estimate is to pick it.
        complete: Whether the sample is the whole gallery.

    Raises:
        InvalidInput: A figure is required that the sample does not give.
    """
    require_ground_truth(gates.figures, gates.labels)
    if not has_ground_truth(gates.labels):
        return
    wanted = [text for text in gates.require if read_requirement(text)[0] != "map"]
    if gates.max_negative_flips is not None:
        wanted.append(f"negative flips<={gates.max_negative_flips:g}")
    hop_alone = not share and not gates.fused
    if gates.criterion != "map" and gates.target_quality is not None:
        wanted, hop_alone = [f"the criterion {gates.criterion}"], False
    if wanted and not complete and not hop_alone:
        needs = "a full backfill" if share is None else f"a backfill of {share:g}"
        raise _not_measurable(wanted[0], "a fused search" if gates.fused else needs)


def _not_measurable(wanted: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"estimate {wanted}",
        expected="a figure that a sample can give: map of any budget; cmc@k and negative flips of a hop alone "
        "(backfill 0) with labels or qrels, or of a sample that is the whole gallery",
        found=f"{found}, which cannot be measured on a sample",
        fix=f"Use map, take a sample of the whole gallery ({next_step.option('sample')}), or measure it after the "
        f"upgrade: {next_step.call('report')}",
    )


def check_gates(row: DecisionRow, gates: Gates) -> tuple[Gate, ...]:
    """Check the gates of one strategy to serve the gallery by the worse ends of its intervals.

    Raises:
        InvalidInput: A gate is of a figure that is not known of this way.
    """
    checked = []
    for text in gates.require:
        metric, bound = read_requirement(text)
        if metric not in row.figures:
            raise _not_measurable(f"{metric} of a {row.name}", f"a backfill of {row.share:g}")
        figure = row.figures[metric]
        checked.append(Gate(name=f"{metric}>={bound:g}", estimate=figure, passed=figure.low >= bound))
    most = gates.max_negative_flips
    if most is not None:
        if row.broken is None:
            raise _not_measurable(f"negative flips of a {row.name}", f"a backfill of {row.share:g}")
        checked.append(Gate(name=f"negative flips<={most:g}", estimate=row.broken, passed=row.broken.high <= most))
    return tuple(checked)


def gate_of_advice(table: DecisionTable, serving: Serving) -> Gate:
    """The gate of an upgrade that picks its own budget: something must beat the status quo."""
    gain = table.best_of(serving).gains[table.criterion]
    passed = table.advice.verdict == "upgrade" if serving == "target" else gain.is_gain
    return Gate(name=f"{table.criterion} above the status quo", estimate=gain, passed=passed)


def require_passed(target: str, gates: Sequence[Gate], *, fix: str | None = None) -> None:
    """Refuse to go on where a gate failed.

    Args:
        target: Version upgraded to.
        gates: The gates.
        fix: The fix; by default for an upgrade that has not begun.

    Raises:
        GateFailed: One did.
    """
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        raise GateFailed(
            f"upgrade to {target}",
            expected=" and ".join(gate.name for gate in failed) + ", for the whole confidence interval",
            found=", ".join(_in_words(gate.estimate) for gate in failed),
            fix=fix
            or f"Nothing was written. A larger sample narrows the intervals, and a table of all budgets shows what can "
            f"be reached: {next_step.call('evaluate', target)}",
        )


def _in_words(estimate: Estimate) -> str:
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"
