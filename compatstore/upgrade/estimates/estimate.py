"""The estimate of an upgrade, before it and after each training round, as its history keeps it.

The guarantee: served with that budget, the gallery keeps at least the target quality of a full backfill's figure,
by the figure and the truth of the estimate, for queries like the gallery's own items. The interval allows for the draw
of the sample, and for the choice among budgets. Only items that can be embedded can become native: a target quality
that needs more of them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from compatstore import next_step
from compatstore.documents import read_record
from compatstore.errors import GateFailed
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.decision import SAME_SHARE
from compatstore.evaluation.fusion import Measurement, Serving
from compatstore.evaluation.sample import AGREEMENT
from compatstore.shown import Shown
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord, Spent
from compatstore.storage.registry import Registry, edit
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.embeddable import ask_embeddable
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.fusing import SHARES
from compatstore.upgrade.estimates.trial import FUSED_SHARES, SampleSettings, try_upgrade
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.requests.gates import (
    Gate,
    Gates,
    check_gates,
    gate_of_advice,
    require_measurable,
    require_passed,
)
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.states import run_of, steps_since_the_last

STEP, LEARN = "estimate", "learn"  # a training round keeps its estimate with its own step
SAMPLE = 2000
_DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a training round adds to its estimate.

    Args:
        native: Native items.
        cost: Money spent on embedding so far, 0 where no price is known.
        seconds: Time spent on embedding so far.
        weight: Weight of the target in how the gallery is searched from then on, from 0, as before, to below 1. If the
            target alone is to be searched, after a cutover, 1.
    """

    native: int
    cost: float
    seconds: float
    weight: float


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
        round: The training round that measured it; None for an estimate before the upgrade.
    """

    terms: Gates
    path: tuple[str, ...]
    policy: str
    seed: int
    share: float
    best: float
    gates: tuple[Gate, ...]
    table: DecisionTable
    round: Round | None = None

    @classmethod
    def of(
        cls,
        run: RunRecord,
        terms: Gates,
        table: DecisionTable,
        share: float,
        gates: tuple[Gate, ...] = (),
        round: Round | None = None,
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
            round=round,
        )

    @property
    def passed(self) -> bool:
        """True if all gates pass."""
        return all(gate.passed for gate in self.gates)

    @property
    def row(self) -> DecisionRow:
        """The estimate at `share`."""
        return self.table.budget(self.share, self.terms.way)

    def measured(self, way: Serving) -> Measurement | None:
        """One way to serve the gallery at `share`; None if it was not measured."""
        rows = (row for row in self.table.served(way) if abs(row.share - self.share) < SAME_SHARE)
        return next(map(self.table.measurement, rows), None)

    @property
    def wave(self) -> WaveMeasurement | None:
        """The training round that measured it, as it is reported; None without one."""
        if self.round is None:
            return None
        table = self.table
        way: Serving = "target" if self.terms.serving == "target" else "fused"
        most = 1.0 if table.has_ground_truth else 1.0 - SAME_SHARE
        ahead = [row for row in table.served(way) if self.share + SAME_SHARE < row.share <= most]
        found = table.measurement(table.budget(self.share, way) if self.round.weight else table.row("s/s"))
        changed = {"native_share": self.share, "gain": found.gain if self.round.weight else None}
        promised = tuple(map(table.measurement, sorted(ahead, key=lambda row: row.share)))
        return WaveMeasurement(**vars(found) | vars(self.round) | changed, ahead=promised)

    def entry(self, target: str, step: str = STEP, note: str = "", artifact: str = "", rows: int = 0) -> HistoryEntry:
        """The step of the history that keeps it; its note is the promise by default."""
        values, labels = asdict(self), self.terms.labels
        if isinstance(labels, Queries):
            values["terms"]["labels"] = labels.record()
        data, note = _rounded(values), note or self.promise
        return HistoryEntry(step, target, artifact=artifact, rows=rows, note=note, data=data)

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


def save_estimate(catalog: Catalog, target: str, estimate: UpgradeEstimate) -> None:
    """Enter an estimate into the history, unless it is the last one there."""
    entry = estimate.entry(target)
    known = _entries(catalog, target)
    if not known or known[-1].data != entry.data:
        edit(catalog.store, lambda registry: registry, entry)


def load_estimate(catalog: Catalog, target: str) -> UpgradeEstimate | None:
    """The last estimate of the upgrade to a target; None if there is none."""
    known = _entries(catalog, target)
    return _read(known[-1].data) if known else None


def _entries(catalog: Catalog, target: str) -> list[HistoryEntry]:
    """Entries of the history that hold an estimate, since the upgrade to a target began; oldest first."""
    return [entry for entry in steps_since_the_last(catalog, target, STEP, LEARN) if entry.data]


def _read(data: Mapping[str, Any]) -> UpgradeEstimate:
    stored = data["terms"]
    labels = Queries(**stored["labels"]) if isinstance(stored["labels"], Mapping) else stored["labels"]
    terms = Gates(**{**stored, "require": tuple(stored["require"]), "labels": labels})
    return read_record(UpgradeEstimate, dict(data), "estimate", {"terms": terms})


@dataclass(frozen=True, kw_only=True)
class WaveMeasurement(Round, Measurement):
    """The result of the training round at the end of a wave: how the gallery is searched from then on.

    Args:
        status_quo: The figure of the source alone.
        served: The figure of how the gallery is searched from then on, or is to be searched after a cutover.
        ahead: Estimates for larger native shares, ascending. Without ground truth a full backfill is not among them: it
            agrees with itself.
    """

    status_quo: Estimate
    served: Estimate
    ahead: tuple[Measurement, ...]

    def __str__(self) -> str:
        """Returns "40 native (2 %): map 61.2 (58.9 to 63.4), 55.8 (53.0 to 58.1) before"."""
        return ": ".join(self.lines)

    @property
    def lines(self) -> tuple[str, str]:
        """Natives, and figures: "40 native (2 %)", "map 61.2 (58.9 to 63.4), 55.8 (53.0 to 58.1) before"."""
        cost, before = f", {self.cost:g} in cost" if self.cost else "", self.status_quo.percent
        now = f"{self.served.percent}, {before} before" if self.weight else f"{before} as before"
        return f"{self.native} native ({self.native_share:.1%}){cost}", f"{self.criterion} {now}"


class Waves(tuple[WaveMeasurement, ...], Shown):
    """Training rounds of an upgrade, oldest first."""

    __slots__ = ()


def read_waves(catalog: Catalog, target: str) -> Waves:
    """All training rounds of the upgrade to a target, oldest first; read-only."""
    return Waves(wave for entry in _entries(catalog, target) if (wave := _read(entry.data).wave) is not None)


Way = Literal["fused", "merged", "target"]


def warning_of(catalog: Catalog, registry: Registry, target: str, way: Way) -> str:
    """The warning of one way to serve the open upgrade to a version, if it was measured to be below the status quo.

    Below means that the whole interval of the difference lies below zero, in the last measurement that is kept: of
    `evaluate(weight="best")`, or of the gates that an upgrade began with. "" without one.
    """
    run, kept = run_of(registry, target), _kept(catalog, registry, target, way)
    if run is None or kept is None or kept.gain is None or not kept.gain.is_loss:
        return ""
    names = {
        "fused": f"the fused search over {run.source} and {target}",
        "merged": f"{target} merged with {run.source}",
        "target": f"{target} alone",
    }
    return f"{names[way]} is below the status quo: {Measurement.__str__(kept)}"


def _kept(catalog: Catalog, registry: Registry, target: str, way: Way) -> Measurement | None:
    """The last measurement of a way to serve an upgrade: of the choice of its fusion or merge, or of its gates."""
    if way == "merged":
        return registry.merge_of(target)
    fusion = registry.fusion_of(target)
    kept = None if fusion is None else fusion.choice
    kept = kept.alone if kept is not None and way == "target" else kept
    if kept is not None and kept.gain is not None:
        return kept
    estimate = load_estimate(catalog, target)
    return None if estimate is None else estimate.measured(way)


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
    return tuple(filter(None, (warning_of(context.catalog, registry, run.target, way) for way in ways)))


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
