"""Content of the report of an upgrade, section by section; Markdown and the page show the same.

A section without anything to show is left out, or says in a sentence why it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import TypeAlias

from compatstore import next_step
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.advice import MORE, metric_name
from compatstore.evaluation.decision import SAME_SHARE
from compatstore.evaluation.sample import AGREEMENT
from compatstore.evaluation.views import truth_line
from compatstore.report.charts import Curves, Drawing, Intervals, Line, Point
from compatstore.shown import Table, table, view, wrapped
from compatstore.upgrade.estimates.details import QueryChange
from compatstore.upgrade.estimates.estimate import WaveMeasurement
from compatstore.upgrade.estimates.measured import SERVED, as_served, what_matters
from compatstore.upgrade.estimates.reporting import UpgradeReport
from compatstore.upgrade.views import budgets_view, gate_lines, waves_view

WHEN = ("before", "now")
NOTE = 30  # characters of a step's note in a terminal: the history has the rest


@dataclass(frozen=True, kw_only=True)
class ShownQueries:
    """Queries with their results before and after.

    Args:
        heading: Common property of these queries.
        changes: The queries.
        criterion: The figure that decides.
    """

    heading: str
    changes: tuple[QueryChange, ...]
    criterion: str

    @property
    def table(self) -> Table:
        """The queries without their results."""
        labelled = any(change.query.label for change in self.changes)
        columns = ("query", *(["label"] if labelled else []), *(f"{self.criterion} {when} %" for when in WHEN))
        return table(
            (*columns, "change, points"),
            [
                (
                    change.query.id,
                    *([change.query.label] if labelled else []),
                    f"{100 * change.before:.1f}",
                    f"{100 * change.after:.1f}",
                    f"{100 * (change.after - change.before):+.1f}",
                )
                for change in self.changes
            ],
            caption=self.heading,
        )


SectionPart: TypeAlias = str | Table | Drawing | ShownQueries


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report.

    Args:
        title: Its heading.
        parts: Paragraphs, tables, drawings and queries, in their order.
    """

    title: str
    parts: tuple[SectionPart, ...]


@view.register
def _(report: UpgradeReport) -> Iterator[str | Table]:
    """An upgrade as a whole, in a terminal: without drawings, and without the results of single queries."""
    yield f"{report.source} -> {report.target}: {report.state}"
    yield from wrapped(report.advice)
    if MORE in report.advice:
        yield f"next: {next_step.call('judge', report.target, queries=next_step.FILE)}"
    yield from wrapped(facts(report))
    steps = [
        (step.at[:16], step.step, step.rows, round(step.seconds, 1), shorten(step.note, NOTE, placeholder=" ..."))
        for step in report.history
    ]
    yield table(("at", "step", "rows", "seconds", "note"), steps)
    if report.estimate is not None:
        yield from budgets_view(report.estimate)
    parts: list[SectionPart] = []
    if report.measured is not None:
        parts += [report.measured.provenance, *_compared(report)]
        if not report.compared or report.measured.served("fused"):
            parts.append(_rows_that_matter(report.measured, report.served))
    elif report.estimate is None:
        yield from (part for part in _decision(report) if isinstance(part, str))
    for part in (*parts, *_changes(report), *_groups(report), *_refusals(report)):
        if isinstance(part, str):
            yield from wrapped(part)
        elif isinstance(part, Table | ShownQueries):
            yield ""
            yield replace(part if isinstance(part, Table) else part.table, caption="")


def _rows_that_matter(result: DecisionTable, called: str) -> Table:
    """A measurement after the fact."""
    found = what_matters(result, called)
    names = list(dict.fromkeys(name for _, row in found for name in row.figures))
    rows = [(what, *(row.percent_of(name) for name in names)) for what, row in found]
    return table(("way", *(f"{name} %" for name in names)), rows)


def title_of(report: UpgradeReport) -> str:
    """The report's heading."""
    return f"Upgrade of {report.source} to {report.target}: {report.state}"


def sections(report: UpgradeReport) -> tuple[Section, ...]:
    """All sections that have something to say."""
    candidates = (
        ("Decision", _decision(report)),
        ("Curve of the backfill", _curve(report)),
        ("Estimated and measured", _comparison(report)),
        ("Waves", _waves(report)),
        ("Queries that rise and fall", _changes(report)),
        ("Groups of queries", _groups(report)),
        ("Cost", _costs(report)),
        ("Steps", _steps(report)),
        ("Items that cannot be embedded", _refusals(report)),
    )
    made = (Section(title=title, parts=tuple(parts)) for title, parts in candidates)
    return tuple(section for section in made if section.parts)


def key_figures(report: UpgradeReport) -> tuple[tuple[str, str], ...]:
    """Four figures of the first screen: quality, agreement without ground truth, or counts if nothing was measured."""
    measured = report.measured
    if measured is None:
        counts = {
            "items": report.rows,
            "native": report.native,
            "transformed": report.transformed,
            "missing": report.missing,
        }
        return tuple((name, f"{count:,}") for name, count in counts.items())
    before, served, criterion = measured.rows[0], as_served(measured), measured.criterion
    native = ("native", f"{100 * report.native / max(report.rows, 1):.1f} %")
    if not measured.has_ground_truth:
        shares = [(f"{name} {report.served}", _figure(served, name)) for name in AGREEMENT]
        return (*shares, native, ("embedded", f"{report.embedded:,}"))
    name = metric_name(criterion)
    flips = served.flips
    fixed = native if flips is None else ("fixed, broken", f"{flips.positive:.1%}, {flips.negative:.1%}")
    return (
        (f"{name} before", _figure(before, criterion)),
        (f"{name} {report.served}", _figure(served, criterion)),
        fixed,
        ("embedded", f"{report.embedded:,}"),
    )


def _figure(row: DecisionRow, name: str) -> str:
    return f"{100 * row.figures[name].value:.1f} %"


def facts(report: UpgradeReport) -> str:
    """The work of the upgrade, in a paragraph."""
    by = f" by {' then '.join(report.path)}" if report.path else ""
    possible = f"; {report.embeddable} can be embedded at all" if report.unbackfillable else ""
    return (
        f"Gallery {report.gallery}: {report.rows} items, of which {report.native} are native, "
        f"{report.transformed} transformed{by} and {report.missing} missing in {report.target}. "
        f"A backfill of {report.backfill:.4g} in {report.policy} order embedded {report.embedded} items{possible}. "
        f"All steps took {report.seconds:.1f} s" + (f" and cost {report.cost:.4g}." if report.cost else ".")
    )


def _decision(report: UpgradeReport) -> Iterator[SectionPart]:
    """Every way to serve the gallery, as measured, or else as estimated."""
    if report.measured is not None:
        yield from _ways(report.measured, "measured now", as_served(report.measured).name, report.served)
        return
    if report.estimate is not None:
        estimated = report.estimate.table
        yield from _ways(estimated, "estimated beforehand", estimated.advice.row or "")
        return
    yield f"Nothing was estimated or measured: {next_step.call('report', report.target, sample=500)} measures."


def _ways(decided: DecisionTable, when: str, marked: str, served: str = "") -> Iterator[SectionPart]:
    """A decision table, and the gains as a drawing; `served` is the name of the row that searches use, if any."""
    if decided.provenance:
        yield decided.provenance
    yield f"Every way to serve the gallery, {when}: {truth_line(decided)}"
    criterion, names = decided.criterion, list(dict.fromkeys(name for row in decided.rows for name in row.figures))
    called = {row.name: what for what, row in what_matters(decided, served)} if served else {}
    yield table(
        ("way", "query/gallery", *(f"{name} %" for name in names), f"{criterion} gained", "of full backfill %"),
        [
            (
                called.get(row.name, row.name),
                row.notation,
                *(row.percent_of(name) for name in names),
                _percent(row.gains.get(criterion)),
                _percent(row.kept.get(criterion)),
            )
            for row in decided.rows
            if row.figures
        ],
        caption=f"Ways to serve the gallery, {when}",
    )
    gains = tuple(
        (called.get(row.name, row.name), _points(row.gains[criterion]))
        for row in decided.rows[1:]
        if criterion in row.gains
    )
    if gains:
        yield Intervals(
            title=f"{criterion} gained over the status quo by each way to serve the gallery",
            unit=f"{criterion} gained, points",
            rows=gains,
            marked=called.get(marked, marked),
        )


def _comparison(report: UpgradeReport) -> Iterator[SectionPart]:
    """The estimate, compared with the measurement."""
    if report.estimate is None:
        return
    yield report.estimate.promise
    yield from gate_lines(report.estimate.gates)
    if report.measured is None:
        yield "Nothing was measured afterwards."
        return
    yield (
        f"Measured with {report.measured.num_queries} items that the estimate has not seen; intervals of "
        f"{report.measured.confidence:.0%}."
    )
    yield from _compared(report)


def _compared(report: UpgradeReport) -> Iterator[Table]:
    if report.compared:
        yield table(
            ("figure", "estimated %", "measured %", "agree"),
            [(c.what, c.estimated.percent, c.measured.percent, "yes" if c.agrees else "no") for c in report.compared],
            caption="Estimated beside measured",
        )


def _curve(report: UpgradeReport) -> Iterator[SectionPart]:
    """The estimate of each budget, and the measurement at the actual one."""
    if report.estimate is None:
        return
    promised, name = report.estimate.table, report.estimate.table.criterion
    most = 1.0 if promised.has_ground_truth else 1.0 - SAME_SHARE  # a full backfill agrees with itself
    rows = promised.served(report.estimate.terms.way)
    budgets = [row for row in rows if name in row.figures and row.share <= most]
    points = tuple(Point(100 * row.share, _points(row.figures[name])) for row in budgets)
    if not points:
        return
    measured: tuple[Line, ...] = ()
    served = None if report.measured is None else as_served(report.measured).figures.get(report.measured.criterion)
    if served is not None and report.rows:
        taken = Point(100 * report.native / report.rows, _points(served))
        measured = (Line(name="measured afterwards", points=(taken,)),)
    yield (
        "Expected quality by share of native vectors, by the estimate beforehand"
        + (", and the measurement at the current share." if measured else ".")
        + ("" if promised.has_ground_truth else " A full backfill is left out: it agrees with itself.")
    )
    yield Curves(
        title="The curve of the backfill as estimated, and as measured" if measured else "The curve as estimated",
        file="budgets.svg",
        x="Gallery embedded natively, %",
        span=(0.0, 100.0),
        y=f"{name}, %",
        lines=(Line(name="estimated", points=points, promised=True, band=True), *measured),
        level=100 * promised.rows[0].figures[name].value,
        level_name="status quo, estimated",
    )


def _waves(report: UpgradeReport) -> Iterator[SectionPart]:
    """Results and estimates of each training round of a self-training upgrade."""
    if not report.waves:
        return
    last, terms = report.waves[-1], None if report.estimate is None else report.estimate.terms
    later = "the target alone is searched after a cutover"
    served = later if terms is not None and terms.serving == "target" else "the gallery was searched from then on"
    yield (
        f"Measurements after each wave, by {last.criterion}{f', correct by {last.truth}' * bool(last.truth)}: "
        f"before, and as {served}."
    )
    yield from (replace(part, caption="Results of the waves") for part in waves_view(report.waves))
    if not last.truth:
        return  # agreement is no gain
    yield Curves(
        title="Gain of each wave over its own status quo, and its estimates",
        file="waves.svg",
        x="Gallery embedded natively, %",
        span=(0.0, 100.0),
        y=f"{last.criterion} gained over the wave's own status quo, points",
        lines=(
            Line(name="as it went", points=tuple(map(_at_share, report.waves))),
            *(
                _promises(number, wave, last=number == len(report.waves))
                for number, wave in enumerate(report.waves, start=1)
                if wave.ahead
            ),
        ),
        level=0.0,
        level_name="status quo of each wave",
    )


def _at_share(wave: WaveMeasurement) -> Point:
    gained = Estimate(value=0.0, low=0.0, high=0.0) if wave.gain is None else _points(wave.gain)
    return Point(100 * wave.native_share, gained)


def _promises(number: int, wave: WaveMeasurement, *, last: bool) -> Line:
    """A wave's estimates; the interval of the last one is drawn."""
    ahead = tuple(Point(100 * at.native_share, _points(at.gain)) for at in wave.ahead if at.gain is not None)
    points = (_at_share(wave), *ahead)
    return Line(name=f"estimated by wave {number}", points=points, promised=True, band=last)


def _changes(report: UpgradeReport) -> Iterator[SectionPart]:
    """Flips, and the queries that changed most."""
    changes = None if report.details is None else report.details.changes
    if changes is None or report.measured is None:
        return
    served, when = as_served(report.measured), "After a cutover"
    lacks = "a sample of the whole gallery" if report.measured.has_ground_truth else "labels or qrels"
    flips = f"Queries that flip are not counted, which needs {lacks}."
    if report.served == SERVED:
        when = "As the gallery is served now"
    if served.flips is not None and served.broken is not None:
        flips = f"By the first result, {served.flips.positive:.1%} of queries are fixed and {served.broken.percent} % "
        flips += "are broken (negative flips)."
    yield (
        f"{when}, {changes.criterion} of {changes.risen} queries is above that of the status "
        f"quo, of {changes.fallen} below, of {changes.same} the same. {flips}"
    )
    for which, shown in (("fell most", changes.worst), ("rose most", changes.best)):
        if shown:
            yield ShownQueries(
                heading=f"Results of the queries that {which}", changes=shown, criterion=changes.criterion
            )


def _groups(report: UpgradeReport) -> Iterator[SectionPart]:
    groups = None if report.details is None else report.details.groups
    if groups is None:
        return
    others = f" {groups.others} more groups gain more." if groups.others else ""
    small = f" {groups.small} groups have too few queries to be measured." if groups.small else ""
    yield (
        f"Queries by {groups.column}, those that gain least first; over all queries {groups.criterion} gains "
        f"{100 * groups.gain:.1f} points. Intervals hold for all groups together.{others}{small}"
    )
    yield table(
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
    yield Intervals(
        title=f"{groups.criterion} gained by each group of {groups.column}",
        unit=f"{groups.criterion} gained, points",
        rows=tuple((group.name or "(none)", _points(group.gain)) for group in groups.groups),
    )


def _refusals(report: UpgradeReport) -> Iterator[SectionPart]:
    if not report.unbackfillable:
        return
    yield table(("item", "reason"), report.reasons, caption="Items that cannot be embedded, and why")
    if report.unbackfillable > len(report.reasons):
        more = report.unbackfillable - len(report.reasons)
        yield f"And {more} more: {next_step.call('unbackfillable', report.target)}"


def _costs(report: UpgradeReport) -> Iterator[SectionPart]:
    """Time by step, and money."""
    money = f", at a cost of {report.cost:.4g}" if report.cost else "; no price was given"
    yield f"{report.embedded} items were embedded{money}. All steps took {report.seconds:.1f} s."
    took: list[tuple[str, int, int, str]] = []
    for name in dict.fromkeys(step.step for step in report.history):
        own = [step for step in report.history if step.step == name]
        rows, seconds = sum(step.rows for step in own), sum(step.seconds for step in own)
        if rows or seconds:
            took.append((name, len(own), rows, f"{seconds:.1f}"))
    if took:
        yield table(("step", "times", "rows", "seconds"), took, caption="Time and rows by step")


def _steps(report: UpgradeReport) -> Iterator[SectionPart]:
    yield table(
        ("at (UTC)", "step", "rows", "seconds", "who", "note"),
        [
            (step.at[:19], step.step, f"{step.rows or ''}", f"{step.seconds or ''}", step.who, step.note)
            for step in report.history
        ],
        caption="Steps, oldest first",
    )


def _percent(estimate: Estimate | None) -> str:
    return "-" if estimate is None else estimate.percent


def _points(estimate: Estimate) -> Estimate:
    """The same in percent."""
    return Estimate(value=100 * estimate.value, low=100 * estimate.low, high=100 * estimate.high)
