"""The report and the estimate of an upgrade as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten

from compatstore import next_step
from compatstore.evaluation import DecisionRow, DecisionTable
from compatstore.shown import Table, table, view, wrapped
from compatstore.upgrade.estimates.details import ReportDetails, Subgroups
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.estimates.gates import Gate
from compatstore.upgrade.estimates.measured import SERVED, as_served, what_matters
from compatstore.upgrade.estimates.query_changes import QueryChange, QueryChanges
from compatstore.upgrade.estimates.reporting import UpgradeReport

NOTE = 44  # characters of a step's note: the history has the rest


@view.register
def _(result: UpgradeReport) -> Iterator[str | Table]:
    """An upgrade as a whole."""
    yield f"{result.source} -> {result.target}: {result.state}"
    yield (
        f"{result.rows} items: {result.native} native, {result.transformed} transformed, {result.missing} missing; "
        f"{result.embedded} embedded, {result.seconds:.1f} s" + (f", cost {result.cost:.4g}" if result.cost else "")
    )
    yield table(
        ("at", "step", "rows", "seconds", "note"),
        [
            (step.at, step.step, step.rows, round(step.seconds, 1), shorten(step.note, NOTE, placeholder=" ..."))
            for step in result.history
        ],
    )
    if result.estimate is not None:
        yield from estimate_view(result.estimate)
    if result.measured is not None and result.measured.provenance:
        yield from wrapped(result.measured.provenance)
    if result.compared:
        yield ""
        yield table(
            ("figure", "estimated %", "measured %", "agree"),
            [(c.what, c.estimated.percent, c.measured.percent, "yes" if c.agrees else "no") for c in result.compared],
        )
    if result.measured is not None and (not result.compared or result.measured.served("fused")):
        yield ""
        yield from _measured(result.measured, result.served)
    if result.measured is not None and result.details is not None:
        yield from details_view(result.details, result.measured, result.served)
    if result.unbackfillable:
        yield f"{result.embeddable} items can be embedded natively, {result.unbackfillable} cannot:"
    for item, reason in result.reasons:
        yield f"not embedded: {item}: {reason}"
    if result.advice:
        yield from wrapped(result.advice)
    if result.measured is None and result.estimate is None:
        yield f"nothing was estimated or measured; measure it: {next_step.call('report', 'TARGET', sample=500)}"


def _measured(result: DecisionTable, called: str) -> Iterator[Table]:
    """What is measured where nothing was estimated."""
    found = what_matters(result, called)
    names = list(dict.fromkeys(name for _, row in found for name in row.figures))
    rows = [(what, *(row.percent_of(name) for name in names)) for what, row in found]
    yield table(("way", *(f"{name} %" for name in names)), rows)


@view.register
def estimate_view(result: UpgradeEstimate) -> Iterator[str | Table]:
    """What an upgrade is expected to give."""
    measured, criterion = result.table, result.table.criterion
    rows = [
        (_mark(row.share, result), row.name, row.percent_of(criterion), _kept(row, criterion))
        for row in measured.served(result.terms.way)
    ]
    before = measured.rows[0]
    yield ""
    if measured.provenance:
        yield from wrapped(measured.provenance)
    yield table(
        ("", "way", f"{criterion} %", "of full backfill %"),
        [("", before.name, before.percent_of(criterion), _kept(before, criterion)), *rows],
    )
    yield from wrapped(
        f"{measured.num_queries} queries, correct by {measured.truth}, intervals of {measured.confidence:.0%}; "
        "> budget taken, * best figure"
    )
    yield from wrapped(result.promise)
    yield from wrapped(f"{measured.advice.verdict}: {measured.advice.text}")
    yield from gate_lines(result.gates)


def gate_lines(judged: Sequence[Gate]) -> Iterator[str]:
    """Which gates are passed."""
    for gate in judged:
        yield f"{'passed' if gate.passed else 'FAILED'}: {gate.name}, estimated {gate.estimate.percent} %"


def _kept(row: DecisionRow, criterion: str) -> str:
    return row.kept[criterion].percent if criterion in row.kept else "-"


def _mark(share: float, result: UpgradeEstimate) -> str:
    return (">" if share == result.share else "") + ("*" if share == result.best else "")


def details_view(details: ReportDetails, measured: DecisionTable, called: str) -> Iterator[str | Table]:
    """Queries that changed most, and groups of them."""
    if details.changes is not None:
        yield ""
        yield from wrapped(flips_line(measured, details.changes, called))
        for shown in (details.changes.worst, details.changes.best):
            if shown:
                yield changes_table("", shown, details.changes.criterion)
    if details.groups is not None:
        yield ""
        yield from wrapped(groups_line(details.groups))
        yield groups_table(details.groups)


def changes_table(caption: str, changes: Sequence[QueryChange], criterion: str) -> Table:
    """Queries with the figure that decides, before and now."""
    labelled = any(change.query.label for change in changes)
    return table(
        ("query", *(["label"] if labelled else []), f"{criterion} before %", f"{criterion} now %", "change, points"),
        [
            (
                change.query.id,
                *([change.query.label] if labelled else []),
                f"{100 * change.before:.1f}",
                f"{100 * change.after:.1f}",
                f"{100 * (change.after - change.before):+.1f}",
            )
            for change in changes
        ],
        caption=caption,
    )


def flips_line(measured: DecisionTable, changes: QueryChanges, called: str) -> str:
    """How many queries rise, fall and flip; `called` is of `called_served`."""
    served, when = as_served(measured), "As the gallery is served now" if called == SERVED else "After a cutover"
    text = (
        f"{when}, {changes.criterion} of {changes.risen} queries is above that of the status "
        f"quo, of {changes.fallen} below, of {changes.same} the same."
    )
    if served.flips is None or served.broken is None:
        return text + " Flips are not told: a sample cannot say what comes first in the whole gallery."
    return (
        f"{text} By what comes first, {served.flips.positive:.1%} of queries are mended and {served.broken.percent} % "
        "are broken (negative flips)."
    )


def groups_line(groups: Subgroups) -> str:
    """What groups the queries, and what is left out."""
    text = (
        f"Queries by {groups.column}, those that gain least first; over all queries {groups.criterion} gains "
        f"{100 * groups.gain:.1f} points. Intervals hold for all groups together."
    )
    others = f" {groups.others} more groups gain more." if groups.others else ""
    return text + others + (f" {groups.small} groups have too few queries to be told." if groups.small else "")


def groups_table(groups: Subgroups) -> Table:
    """What each group gains."""
    return table(
        (groups.column, "queries", "before %", "now %", f"{groups.criterion} gained", "gap to all, points"),
        [
            (
                group.name or "(none)",
                group.queries,
                f"{100 * group.before:.1f}",
                f"{100 * group.after:.1f}",
                group.gain.percent,
                f"{100 * (group.gain.value - groups.gain):+.1f}",
            )
            for group in groups.groups
        ],
        caption=f"Groups of queries by {groups.column}",
    )
