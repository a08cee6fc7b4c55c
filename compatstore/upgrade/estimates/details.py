"""Details of a report: queries that changed most, and groups of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compatstore.arrays import Doubles
from compatstore.errors import InvalidInput
from compatstore.evaluation import Estimate
from compatstore.evaluation.bootstrap import figures_together, resample
from compatstore.storage.ids import find
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.measured import Measurement
from compatstore.upgrade.estimates.query_changes import QueryChanges, Search, changes_of, text_of
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import column_of


@dataclass(frozen=True, kw_only=True)
class ReportDetails:
    """What was seen query by query.

    Args:
        changes: Queries before and after; None where nothing was measured.
        groups: Groups of queries; None where nothing was measured, or no column groups them.
    """

    changes: QueryChanges | None
    groups: Subgroups | None


def details_of(
    context: UpgradeContext,
    measurement: Measurement | None,
    terms: Gates | None,
    *,
    details: Details,
    search: Search,
) -> ReportDetails:
    """See what was asked for; read-only.

    Args:
        context: The upgrade.
        measurement: What was measured; None where nothing was.
        terms: What it was measured by.
        details: What to show.
        search: `Gallery.search`.

    Raises:
        InvalidInput: There is no such column.
    """
    labels = None if terms is None else terms.labels
    by = details.by or column_of(labels)
    if measurement is None:
        return ReportDetails(changes=None, groups=None)
    return ReportDetails(
        changes=changes_of(context, measurement, labels, details, search),
        groups=None if by is None else subgroups_of(context, measurement, by),
    )


def require_columns(details: Details, columns: Sequence[str]) -> None:
    """Refuse columns that the table has not, before anything is measured.

    Raises:
        InvalidInput: There is no such column.
    """
    for name in (details.by, details.caption):
        if name is not None and name not in columns:
            raise InvalidInput("report on an upgrade", expected=f"a column of {', '.join(columns)}", found=name)


FEWEST = 5  # queries of a group whose mean is told
MOST = 12  # groups that are told: those that gain least


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """Queries of one value.

    Args:
        name: The value.
        queries: Queries, 5 or more.
        before: Mean of the figure that decides, by the status quo.
        after: The same, as the gallery is served now.
        gain: Difference, query by query, with an interval that holds for all groups together.
    """

    name: str
    queries: int
    before: float
    after: float
    gain: Estimate


@dataclass(frozen=True, kw_only=True)
class Subgroups:
    """Groups of queries, the ones that gain least first.

    Args:
        column: What groups them.
        criterion: The figure that decides.
        gain: Difference over all queries.
        groups: At most 12 of the groups.
        others: Groups that are left out, because others gain less.
        small: Groups of fewer than 5 queries.
    """

    column: str
    criterion: str
    gain: float
    groups: tuple[Subgroup, ...]
    others: int
    small: int


def subgroups_of(context: UpgradeContext, measurement: Measurement, column: str) -> Subgroups | None:
    """Compare groups of the items that ask; None where queries are no items, or no group is large enough."""
    key, sample = context.registry.id_column, measurement.sample
    if sample.queries is not None:
        return None
    before, after = measurement.before_and_after
    ids = sample.ids.take(np.flatnonzero(sample.asks)).to_pylist()
    found = find(context.store, key, ids, list(dict.fromkeys([key, column])), context.snapshot)
    values: dict[Any, str] = {item[key]: text_of(item[column]) for item in found.to_pylist()}
    rows: dict[str, list[int]] = {}
    for row in np.flatnonzero(np.isfinite(before) & np.isfinite(after)):
        rows.setdefault(values.get(ids[row], ""), []).append(int(row))
    large = {name: own for name, own in rows.items() if len(own) >= FEWEST}
    if not large:
        return None
    told = sorted(_groups(large, before, after, measurement.table.confidence), key=lambda group: group.gain.value)
    return Subgroups(
        column=column,
        criterion=measurement.table.criterion,
        gain=float(np.nanmean(after - before)),
        groups=tuple(told[:MOST]),
        others=max(len(told) - MOST, 0),
        small=len(rows) - len(large),
    )


def _groups(rows: dict[str, list[int]], before: Doubles, after: Doubles, confidence: float) -> list[Subgroup]:
    """One for each group; queries of a group are drawn again among themselves."""
    drawn = [
        resample((after[own] - before[own])[None], seed=number, confidence=confidence)[0]
        for number, own in enumerate(rows.values())
    ]
    return [
        Subgroup(
            name=name,
            queries=len(own),
            before=float(before[own].mean()),
            after=float(after[own].mean()),
            gain=gain.within(-1.0, 1.0),
        )
        for (name, own), gain in zip(rows.items(), figures_together(drawn), strict=True)
    ]
