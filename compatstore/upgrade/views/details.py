"""What a report tells query by query, as sentences and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compatstore.evaluation import DecisionTable
from compatstore.tables import Table, table
from compatstore.upgrade.estimates.details import ReportDetails
from compatstore.upgrade.estimates.measured import as_served
from compatstore.upgrade.estimates.query_changes import QueryChange, QueryChanges
from compatstore.upgrade.estimates.subgroups import Subgroups


def details_view(details: ReportDetails, measured: DecisionTable) -> Iterator[str | Table]:
    """Queries that changed most, and groups of them."""
    if details.changes is not None:
        yield ""
        yield flips_line(measured, details.changes)
        for shown in (details.changes.worst, details.changes.best):
            if shown:
                yield changes_table("", shown, details.changes.criterion)
    if details.groups is not None:
        yield ""
        yield groups_line(details.groups)
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


def flips_line(measured: DecisionTable, changes: QueryChanges) -> str:
    """How many queries rise, fall and flip."""
    served = as_served(measured)
    text = (
        f"As the gallery is served now, {changes.criterion} of {changes.risen} queries is above that of the status "
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
