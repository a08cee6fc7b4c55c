"""Answers to side-by-side comparisons, in the history of a gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from compatstore.evaluation.preference import Preference
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.registry import Registry, edit
from compatstore.upgrade.estimates.side_by_side import SideBySide
from compatstore.upgrade.states import require_open, steps_since_the_last

STEP = "judge"
Winner: TypeAlias = Literal["target", "source", "same"]
WINNERS: tuple[Winner, ...] = ("target", "source", "same")


def save_answers(catalog: Catalog, found: SideBySide, queries: str, answers: Mapping[str, Winner]) -> Preference:
    """Add answers to the history, unless they are the last ones there.

    Args:
        catalog: The gallery.
        found: What was compared.
        queries: Digest of the application's queries.
        answers: Name of a query -> version that is better for it.

    Returns:
        The preference by all answers to these queries so far.

    Raises:
        InvalidInput: There is no answer.
        Interrupted: The upgrade has ended meanwhile.
    """
    run = found.context.run
    data = {"digest": queries, "lists": found.digest, "queries": len(found.queries), "differing": len(found.differing)}
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


def earlier_answers(catalog: Catalog, found: SideBySide, queries: str) -> dict[str, Winner]:
    """Answers to the same queries that were given when their lists were the same."""
    entries = steps_since_the_last(catalog, found.context.run.target, STEP)
    return _answers([entry for entry in entries if entry.data["lists"] == found.digest], queries)


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
