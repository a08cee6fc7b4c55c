"""Search results of an upgrade's two versions side by side, without labels, and the answers in a gallery's history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Literal, TypeAlias

import numpy as np

from compatstore.arrays import Id
from compatstore.errors import UpgradeError
from compatstore.evaluation.advice import Preference
from compatstore.evaluation.sample import SampleQueries
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.registry import Registry, edit
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.details import Search, ShownItem, search_versions, shown_columns, shown_items
from compatstore.upgrade.estimates.queries import ask
from compatstore.upgrade.estimates.sample import query_items, with_vectors
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.states import require_open, steps_since_the_last

STEP = "judge"
Winner: TypeAlias = Literal["target", "source", "same"]
WINNERS: tuple[Winner, ...] = ("target", "source", "same")
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
        request: Digest of the application's queries.
        queries: q queries, embedded in both versions.
        own: Ids of the queries that are items; None for others.
        source: For each query ids of the nearest items in the source.
        target: The same in the target as it is or would be served.
    """

    context: UpgradeContext
    request: str
    queries: SampleQueries
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
        rows = [self.differing[name] for name in names]
        ids = {item for row in rows for item in (*self.source[row], *self.target[row], self.own[row])}
        items = shown_items(self.context, ids, shown_columns(self.context, "label", "caption"))

        def case(name: str, row: int, *, swap: bool) -> Case:
            text = self.queries.texts[row] if self.queries.texts else ""
            query = items.get(self.own[row]) or ShownItem(id=name, source=text)
            lists = [tuple(items[item] for item in found[row] if item in items) for found in (self.source, self.target)]
            left, right = reversed(lists) if swap else lists
            return Case(query=replace(query, id=name), left=left, right=right)

        return tuple(case(name, row, swap=swap) for name, row, swap in zip(names, rows, swapped, strict=True))

    def earlier(self) -> dict[str, Winner]:
        """Answers to the same queries that were given when their lists were the same."""
        entries = steps_since_the_last(self.context.catalog, self.context.run.target, STEP)
        return _answers([entry for entry in entries if entry.data["lists"] == self.digest], self.request)

    def save(self, answers: Mapping[str, Winner]) -> Preference:
        """Add answers to the history, unless they are the last ones there.

        Args:
            answers: Name of a query -> version that is better for it.

        Returns:
            The preference by all answers to these queries so far.

        Raises:
            InvalidInput: There is no answer.
            Interrupted: The upgrade has ended meanwhile.
        """
        run, catalog = self.context.run, self.context.catalog
        data = {
            "digest": self.request,
            "lists": self.digest,
            "queries": len(self.own),
            "differing": len(self.differing),
        }
        names = {winner: [name for name, own in answers.items() if own == winner] for winner in WINNERS}
        entry = HistoryEntry(STEP, run.target, source=run.source, data=data | names)
        entries = steps_since_the_last(catalog, run.target, STEP)
        if entries and dict(entries[-1].data) == entry.data:
            return _preference(entries)
        preference = _preference([*entries, entry])

        def require(registry: Registry) -> Registry:
            require_open(registry, run.target)
            return registry

        edit(catalog.store, require, replace(entry, note=str(preference)))
        return preference


def preference_of(catalog: Catalog, target: str) -> Preference | None:
    """The preference by all answers since the upgrade to a target began, to the queries of the latest; None without."""
    entries = steps_since_the_last(catalog, target, STEP)
    return _preference(entries) if entries else None


def _answers(entries: Sequence[HistoryEntry], queries: str) -> dict[str, Winner]:
    """The latest answer to each of some queries."""
    data = [entry.data for entry in entries if entry.data["digest"] == queries]
    return {name: winner for answers in data for winner in WINNERS for name in answers[winner]}


def _preference(entries: Sequence[HistoryEntry]) -> Preference:
    last = entries[-1]
    answers = list(_answers(entries, last.data["digest"]).values())
    return Preference(
        source=last.source,
        target=last.version,
        queries=last.data["queries"],
        differing=last.data["differing"],
        target_wins=answers.count("target"),
        source_wins=answers.count("source"),
        same=answers.count("same"),
    )


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
    context = with_vectors(catalog, target, f"judge the upgrade to {target}", filled=True)
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
    result = SideBySide(
        context=context, request=queries.digest, queries=embedded, own=own, source=lists[0], target=lists[1]
    )
    if not result.differing:
        raise UpgradeError(
            f"judge the upgrade to {target}",
            expected=f"a query whose top {DEPTH} differ",
            found=f"the top {DEPTH} of all {len(own)} queries are the same in both versions: nothing to judge",
        )
    return result
