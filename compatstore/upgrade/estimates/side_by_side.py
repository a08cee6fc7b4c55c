"""Search results of an upgrade's two versions side by side, for application queries without labels; read-only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256

import numpy as np

from compatstore import next_step
from compatstore.arrays import Id
from compatstore.errors import UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import find
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.asked import AskedQueries, ask
from compatstore.upgrade.estimates.details import Search, ShownItem, search_versions, shown_item
from compatstore.upgrade.estimates.sample import query_items
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.states import run_of

DEPTH = 10
ROUND = 10  # cases that are shown by decreasing disagreement; every round is a random draw
BATCH = 200  # queries of one search


@dataclass(frozen=True, kw_only=True)
class Case:
    """A query with the results of both versions, without their names.

    Args:
        query: The query.
        left: Results of one version, nearest first.
        right: Results of the other version.
    """

    query: ShownItem
    left: tuple[ShownItem, ...]
    right: tuple[ShownItem, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SideBySide:
    """The 10 nearest items of q queries in both versions of an upgrade.

    Args:
        context: The upgrade.
        queries: q queries, embedded in both versions.
        own: Ids of the queries that are items; None for others.
        source: For each query ids of the nearest items in the source.
        target: The same in the target as it is or would be served.
    """

    context: UpgradeContext
    queries: AskedQueries
    own: Sequence[Id | None]
    source: list[list[Id]]
    target: list[list[Id]]

    @cached_property
    def differing(self) -> dict[str, int]:
        """Name -> row of each query whose lists differ, in items or in order."""
        pairs = enumerate(zip(self.queries.names, self.source, self.target, strict=True))
        return {name: row for row, (name, source, target) in pairs if source != target}

    @property
    def digest(self) -> str:
        """Digest of the queries' names and lists."""
        return sha256(json.dumps([self.queries.names, self.source, self.target]).encode()).hexdigest()[:32]

    def draw(self, num: int, seed: int) -> list[str]:
        """Names of `num` differing queries, drawn at random.

        Each round of 10 is a random draw as well, so that the answers of an early stop stand for all differing
        queries. Within a round the lists with the least overlap come first.
        """
        drawn = np.random.default_rng(seed).permutation(list(self.differing.values()))[:num]
        rounds = [drawn[start : start + ROUND] for start in range(0, len(drawn), ROUND)]
        return [self.queries.names[row] for rows in rounds for row in sorted(rows, key=self._overlap)]

    def _overlap(self, row: int) -> int:
        return len({*self.source[row]} & {*self.target[row]})

    def cases(self, names: Sequence[str], swapped: Sequence[bool]) -> tuple[Case, ...]:
        """Cases of differing queries, with the source on the left, or on the right if swapped."""
        registry, key = self.context.registry, self.context.registry.id_column
        rows = [self.differing[name] for name in names]
        known = {"source": registry.source_column or "", "label": "label", "caption": "caption"}
        columns = {name: column for name, column in known.items() if column in self.context.snapshot.schema.names}
        ids = {item for row in rows for item in (*self.source[row], *self.target[row], self.own[row])}
        wanted = [item for item in ids if item is not None]
        table = find(self.context.store, key, wanted, list(dict.fromkeys([key, *columns.values()])))
        items: dict[Id | None, ShownItem] = {item[key]: shown_item(item, key, columns) for item in table.to_pylist()}

        def case(name: str, row: int, *, swap: bool) -> Case:
            text = self.queries.texts[row] if self.queries.texts else ""
            query = items.get(self.own[row]) or ShownItem(id=name, source=text)
            lists = [tuple(items[item] for item in found[row] if item in items) for found in (self.source, self.target)]
            left, right = reversed(lists) if swap else lists
            return Case(query=replace(query, id=name), left=left, right=right)

        return tuple(case(name, row, swap=swap) for name, row, swap in zip(names, rows, swapped, strict=True))


def search_side_by_side(catalog: Catalog, target: str, queries: Queries, seed: int, search: Search) -> SideBySide:
    """Search both versions of the upgrade to a target.

    Args:
        catalog: The gallery.
        target: Version upgraded to.
        queries: The application's queries.
        seed: Seed of the draw of 2,000 queries if there are more.
        search: `Gallery.search`.

    Raises:
        UpgradeError: There is no upgrade, a version has no vectors, or no query has different results.
        InvalidInput: The queries do not fit the gallery.
    """
    context = _context(catalog, target)
    key = context.registry.id_column
    ids = context.snapshot.to_table(columns=[key], filter=context.source.present).column(key).combine_chunks()
    embedded = ask(context, queries, ids, seed, len(ids), partial(query_items, context))
    own = [ids[place].as_py() if place >= 0 else None for place in embedded.itself.tolist()]
    lists: tuple[list[list[Id]], list[list[Id]]] = [], []
    for start in range(0, len(own), BATCH):
        batch = slice(start, start + BATCH)
        vectors = embedded.source[batch], embedded.target[batch]
        found = search_versions(context, *vectors, own[batch], DEPTH, search, [key])
        for ranked, rows in zip(lists, found, strict=True):
            ranked += [[item[key] for item in row] for row in rows]
    result = SideBySide(context=context, queries=embedded, own=own, source=lists[0], target=lists[1])
    if not result.differing:
        raise UpgradeError(
            f"judge the upgrade to {target}",
            expected=f"a query whose top {DEPTH} differ",
            found=f"the top {DEPTH} of all {len(own)} queries are the same in both versions: nothing to judge",
        )
    return result


def _context(catalog: Catalog, target: str) -> UpgradeContext:
    """The upgrade to a target, which has vectors in both versions."""
    snapshot = catalog.store.snapshot()
    registry = catalog.registry(snapshot)
    registry.record(target)
    run = run_of(registry, target)
    operation, fix = f"judge the upgrade to {target}", f"Run it: {next_step.call('upgrade', target)}"
    if run is None:
        raise UpgradeError(operation, expected="an upgrade under way", found="none", fix=fix)
    context = UpgradeContext.of(catalog, run, snapshot)
    for name in (run.source, target):
        if registry.record(name).columns is None or not context.count(registry.columns(name).present):
            raise UpgradeError(operation, expected=f"items with a vector in {name}", found="none", fix=fix)
    return context
