"""What a report tells beside figures of all queries: single queries, groups of them, and predicted errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compatstore.errors import InvalidInput
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.measured import Measurement
from compatstore.upgrade.estimates.query_changes import QueryChanges, Search, changes_of
from compatstore.upgrade.estimates.subgroups import Subgroups, subgroups_of
from compatstore.upgrade.estimates.uncertainty import Uncertainty, uncertainty_of
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import column_of


@dataclass(frozen=True, kw_only=True)
class ReportDetails:
    """What was seen query by query.

    Args:
        changes: Queries before and after; None where nothing was measured.
        groups: Groups of queries; None where nothing was measured, or no column groups them.
        uncertainty: Predicted errors of transformed vectors; None where there are none.
    """

    changes: QueryChanges | None
    groups: Subgroups | None
    uncertainty: Uncertainty | None


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
        return ReportDetails(changes=None, groups=None, uncertainty=uncertainty_of(context, None))
    return ReportDetails(
        changes=changes_of(context, measurement, labels, details, search),
        groups=None if by is None else subgroups_of(context, measurement, by),
        uncertainty=uncertainty_of(context, measurement.sample),
    )


def require_columns(details: Details, columns: Sequence[str]) -> None:
    """Refuse columns that the table has not, before anything is measured.

    Raises:
        InvalidInput: There is no such column.
    """
    for name in (details.by, details.caption):
        if name is not None and name not in columns:
            raise InvalidInput("report on an upgrade", expected=f"a column of {', '.join(columns)}", found=name)
