"""Details of a report: queries that changed most, and groups of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from compatstore.arrays import ArrowTable, Doubles, FloatArray, Id, Positions
from compatstore.errors import InvalidInput
from compatstore.evaluation import Estimate
from compatstore.evaluation.bootstrap import figures_together, resample
from compatstore.evaluation.fusion import Serving
from compatstore.storage.ids import find
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.measured import before_and_after
from compatstore.upgrade.estimates.sample import Sample
from compatstore.upgrade.estimates.trial import SampleResults
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import Queries, column_of


@dataclass(frozen=True, kw_only=True)
class ReportDetails:
    """Measured details, query by query.

    Args:
        changes: Queries before and after; None if nothing was measured.
        groups: Groups of queries; None if nothing was measured, or no column groups them.
    """

    changes: QueryChanges | None
    groups: Subgroups | None


def details_of(
    context: UpgradeContext, measurement: SampleResults | None, terms: Gates | None, details: Details, search: Search
) -> ReportDetails:
    """Collect the requested details; read-only.

    Args:
        context: The upgrade.
        measurement: The measurement; None without one.
        terms: The terms of the measurement.
        details: Details to show.
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


FEWEST = 5  # minimum queries of a group for a mean
MOST = 12  # maximum number of reported groups: those that gain least


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
        column: Column that groups them.
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


def subgroups_of(context: UpgradeContext, measurement: SampleResults, column: str) -> Subgroups | None:
    """Compare groups of the query items; None if queries are no items, or no group is large enough."""
    key, sample = context.registry.id_column, measurement.sample
    if sample.queries.names:
        return None
    before, after = before_and_after(measurement)
    ids = sample.query_ids(np.arange(len(sample.queries)))
    found = find(context.store, key, ids, list(dict.fromkeys([key, column])), context.snapshot)
    values: dict[Any, str] = {item[key]: text_of(item[column]) for item in found.to_pylist()}
    rows: dict[str, list[int]] = {}
    for row in np.flatnonzero(np.isfinite(before) & np.isfinite(after)):
        rows.setdefault(values.get(ids[row], ""), []).append(int(row))
    large = {name: own for name, own in rows.items() if len(own) >= FEWEST}
    if not large:
        return None
    shown = sorted(_groups(large, before, after, measurement.table.confidence), key=lambda group: group.gain.value)
    return Subgroups(
        column=column,
        criterion=measurement.table.criterion,
        gain=float(np.nanmean(after - before)),
        groups=tuple(shown[:MOST]),
        others=max(len(shown) - MOST, 0),
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


SAME = 1e-9  # figures that are not farther apart are one


class Search(Protocol):
    """Search results of `Gallery.search` with queries of one version, or of both."""

    def __call__(  # noqa: D102
        self, query: Mapping[str, FloatArray], k: int, *, columns: Sequence[str], serving: Any
    ) -> ArrowTable: ...


@dataclass(frozen=True, kw_only=True)
class ShownItem:
    """An item, or a query that is none, as people know it.

    Args:
        id: Its id.
        source: Source that it is embedded from, a text, path or URI; "" if unknown.
        label: Its label, "" without one.
        caption: Value of the caption's column, "" without one.
        correct: True if it is correct for the query that found it, by labels or judgements; None if unknown.
    """

    id: str
    source: str = ""
    label: str = ""
    caption: str = ""
    correct: bool | None = None


@dataclass(frozen=True, kw_only=True)
class QueryChange:
    """One query, before and after.

    Args:
        query: The query.
        before: The figure that decides, by the status quo.
        after: The same, as the gallery is served now.
        found_before: The nearest items of the whole gallery by the status quo; () if it was not searched.
        found_after: The same, as it is served now.
    """

    query: ShownItem
    before: float
    after: float
    found_before: tuple[ShownItem, ...] = ()
    found_after: tuple[ShownItem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueryChanges:
    """All queries, before and after.

    Args:
        criterion: The figure that decides.
        risen: Queries whose figure rose.
        fallen: Queries whose figure fell.
        same: Queries whose figure stayed.
        worst: Those that fell most, the worst first.
        best: Those that rose most, the best first.
    """

    criterion: str
    risen: int
    fallen: int
    same: int
    worst: tuple[QueryChange, ...]
    best: tuple[QueryChange, ...]


def changes_of(
    context: UpgradeContext, measurement: SampleResults, labels: str | Queries | None, details: Details, search: Search
) -> QueryChanges:
    """Compare the results of each query before and after, and let some search the whole gallery; read-only.

    Args:
        context: The upgrade.
        measurement: The measurement.
        labels: Labels or judgements that define the correct items.
        details: Number of queries and neighbours, and fields of an item to show.
        search: `Gallery.search`.
    """
    before, after = before_and_after(measurement)
    change = np.nan_to_num(after - before)
    order = np.argsort(change, kind="stable")
    risen, fallen = int((change > SAME).sum()), int((change < -SAME).sum())
    worst, best = order[: min(fallen, details.worst)], order[::-1][: min(risen, details.best)]
    rows = np.concatenate([worst, best])
    found = _searched(context, measurement.sample, rows, labels, details, search) if len(rows) else []
    shown = [
        QueryChange(query=query, before=float(before[row]), after=float(after[row]), found_before=was, found_after=now)
        for row, (query, was, now) in zip(rows, found, strict=True)
    ]
    return QueryChanges(
        criterion=measurement.table.criterion,
        risen=risen,
        fallen=fallen,
        same=int(np.isfinite(before).sum()) - risen - fallen,
        worst=tuple(shown[: len(worst)]),
        best=tuple(shown[len(worst) :]),
    )


def _searched(
    context: UpgradeContext,
    sample: Sample,
    rows: Positions,
    labels: str | Queries | None,
    details: Details,
    search: Search,
) -> list[tuple[ShownItem, tuple[ShownItem, ...], tuple[ShownItem, ...]]]:
    """Some queries, with their results by the status quo and as the gallery is served."""
    key, queries = context.registry.id_column, sample.queries
    own: Sequence[Id | None] = [None] * len(rows)
    columns = shown_columns(context, column_of(labels), details.caption)
    if queries.names:
        asking = [ShownItem(id=queries.names[row], source=queries.texts[row] if queries.texts else "") for row in rows]
    else:
        own = sample.query_ids(rows)
        items = shown_items(context, own, columns)
        asking = [items[name] for name in own]
    judgements = labels.judgements if isinstance(labels, Queries) else None

    def judged(item: Mapping[str, Any], query: ShownItem) -> ShownItem:
        shown = shown_item(item, key, columns)
        if judgements is not None:
            gain = judgements.get(query.id, {}).get(shown.id)
            return replace(shown, correct=None if gain is None else gain > 0)
        return replace(shown, correct=shown.label == query.label) if query.label and "label" in columns else shown

    read = list(dict.fromkeys([key, *columns.values()]))
    found = search_versions(context, queries.source[rows], queries.target[rows], own, details.neighbours, search, read)
    was, now = (
        [tuple(judged(item, query) for item in near) for near, query in zip(lists, asking, strict=True)]
        for lists in found
    )
    return list(zip(asking, was, now, strict=True))


def search_versions(
    context: UpgradeContext,
    source: FloatArray,
    target: FloatArray,
    own: Sequence[Id | None],
    k: int,
    search: Search,
    columns: Sequence[str],
) -> tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]]:
    """The k nearest items of q queries in the source alone, and in the target as it is or would be served.

    Args:
        context: The upgrade.
        source: (q, source dim) float32.
        target: (q, target dim) float32, the same queries.
        own: Ids of queries that are items, which do not find themselves; None for others.
        k: Items of a query.
        search: `Gallery.search`.
        columns: Columns to read, the ids' among them.
    """
    run, key = context.run, context.registry.id_column
    fused = context.registry.fusion_served(run.target) is not None
    served = {run.source: source, run.target: target} if fused else {run.target: target}

    def nearest(query: Mapping[str, FloatArray], serving: Serving | None) -> list[list[dict[str, Any]]]:
        lists: list[list[dict[str, Any]]] = [[] for _ in own]
        for item in search(query, k + 1, columns=columns, serving=serving).to_pylist():
            row = item.get("_query", 0)
            if item[key] != own[row] and len(lists[row]) < k:
                lists[row].append(item)
        return lists

    return nearest({run.source: source}, None), nearest(served, "fused" if fused else None)


def shown_columns(context: UpgradeContext, label: str | None, caption: str | None) -> dict[str, str]:
    """Field of a shown item -> its column, of those that the table has."""
    known = {"source": context.registry.source_column, "label": label, "caption": caption}
    return {field: column for field, column in known.items() if column and column in context.snapshot.schema.names}


def shown_items(
    context: UpgradeContext, ids: Iterable[Id | None], columns: Mapping[str, str]
) -> dict[Id | None, ShownItem]:
    """Items by their ids, as people know them."""
    key, wanted = context.registry.id_column, [item for item in ids if item is not None]
    table = find(context.store, key, wanted, list(dict.fromkeys([key, *columns.values()])), context.snapshot)
    return {item[key]: shown_item(item, key, columns) for item in table.to_pylist()}


def shown_item(item: Mapping[str, Any], key: str, columns: Mapping[str, str]) -> ShownItem:
    """An item of a table for people; `columns` maps source, label and caption to columns."""
    texts: dict[str, Any] = {name: text_of(item[column]) for name, column in columns.items()}
    return ShownItem(id=text_of(item[key]), **texts)


def text_of(value: object) -> str:
    """A value of a column as text; "" for none, and for bytes."""
    return "" if value is None or isinstance(value, bytes) else str(value)
