"""Every way to serve a gallery during an upgrade, each ranked for the same queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.evaluation.compatibility import fit_length
from compatstore.evaluation.curve import as_permutation, mixed_galleries, native_rows
from compatstore.evaluation.distances import Distances, Doubles, Positions, measure
from compatstore.evaluation.known import map_alone, put_right, reach
from compatstore.evaluation.mixed import mixed_blocks
from compatstore.evaluation.relevance import Relevance, judge, judge_neighbours
from compatstore.evaluation.sampled import Found, Sampling, find_in_blocks, find_in_galleries
from compatstore.evaluation.trial import DecisionSettings, Trial

FEWEST_NEIGHBOURS = 5
MERGED = "s/s+t/t"


@dataclass(frozen=True, kw_only=True, eq=False)
class Way:
    """One way to serve the gallery and what each query found by it; see `DecisionRow` for the fields' meaning."""

    name: str
    notation: str
    share: float
    found: Found
    note: str = ""


def rank_ways(trial: Trial, settings: DecisionSettings) -> list[Way]:
    """Rank by the status quo, naive swap, rank merge, hop alone, the budgets and the full backfill, in this order."""
    native = measure(trial.target_queries, trial.native, settings.target_metric)
    search = _Search(relevance=_truth(trial, native, settings), ks=settings.ks, sampling=_sampling(trial))
    ways = [*_without_transform(trial, native, search, settings), *_backfills(trial, search, settings)]
    if trial.complete:
        return ways
    founds = [way.found for way in ways]
    if trial.whole is None:
        known = [map_alone(way.found, merged=way.notation == MERGED) for way in ways]
    else:
        asked = np.ones(len(trial.source_queries)) if search.sampling.asked is None else search.sampling.asked
        known = put_right([way.notation for way in ways], founds, trial.whole, asked)
    return [replace(way, found=found) for way, found in zip(ways, known, strict=True)]


def sampled_neighbours(neighbours: int, weight: float) -> int:
    """How many nearest items of a sample, 1 in `weight` of a gallery, stand for so many of the gallery's.

    They are not let go below 5: one neighbour more or less would decide too much.
    """
    return max(round(neighbours / weight), min(FEWEST_NEIGHBOURS, neighbours))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """How all ways are searched: what is correct, the k of CMC, and what the gallery is a sample of."""

    relevance: Relevance
    ks: tuple[int, ...]
    sampling: Sampling

    def galleries(self, distances: Distances, rows: Sequence[Positions]) -> list[Found]:
        return find_in_galleries(distances, self.relevance, rows, self.ks, self.sampling)

    def blocks(self, blocks: Iterable[tuple[int, Doubles]], queries: int, items: int) -> Found:
        return find_in_blocks(blocks, queries, self.relevance, [np.arange(items)], self.ks, self.sampling)[0]


def _truth(trial: Trial, native: Distances, settings: DecisionSettings) -> Relevance:
    if trial.query_labels is None or trial.gallery_labels is None:
        neighbours = sampled_neighbours(settings.neighbours, trial.weight)
        return judge_neighbours(native, neighbours, trial.query_ids, trial.gallery_ids)
    return judge(trial.query_labels, trial.gallery_labels, trial.query_ids, trial.gallery_ids)


def _sampling(trial: Trial) -> Sampling:
    whole, items = trial.whole, len(trial.source)
    return Sampling(
        weight=trial.weight,
        own=1.0 if trial.query_labels is not None else (1.0 + trial.weight) / 2.0,
        asked=None if whole is None else 1.0 / reach(whole.correct, items, trial.population or items),
    )


def _without_transform(trial: Trial, native: Distances, search: _Search, settings: DecisionSettings) -> list[Way]:
    """What the source's vectors are good for: as they are, with the wrong queries, and beside native ones."""
    source = measure(trial.source_queries, trial.source, settings.source_metric)
    swapped = fit_length(trial.target_queries, trial.source.shape[1])
    naive = measure(swapped, trial.source, settings.source_metric)
    rows, share = np.arange(len(trial.source)), settings.merge_share
    filled = native_rows(as_permutation(trial.order, len(rows)), share)
    merged = mixed_blocks(source, native, filled, search.relevance, settings.merge)
    mixed = search.blocks(merged, len(source.left), len(rows))
    status_quo, swap = (search.galleries(distances, [rows])[0] for distances in (source, naive))
    note = _swap_note(trial.target_queries.shape[1], trial.source.shape[1])
    return [
        Way(name="status quo", notation="s/s", share=0.0, found=status_quo),
        Way(name="naive swap", notation="t/s", share=0.0, found=swap, note=note),
        Way(name=f"rank merge {share:.0%}", notation=MERGED, share=share, found=mixed, note=settings.merge),
    ]


def _backfills(trial: Trial, search: _Search, settings: DecisionSettings) -> list[Way]:
    """Hop alone, the budgets and the full backfill, ranked together: their vectors are rows of one table."""
    shares = np.array([0.0, *sorted(settings.shares), 1.0])
    both = measure(trial.target_queries, np.concatenate([trial.transformed, trial.native]), settings.target_metric)
    galleries = mixed_galleries(as_permutation(trial.order, len(trial.source)), shares)
    names = ["hop alone", *(f"backfill {share:.4g}%" for share in 100 * shares[1:-1]), "full backfill"]
    notations = ["t/h", *["t/h+t"] * len(settings.shares), "t/t"]
    return [
        Way(name=name, notation=notation, share=float(share), found=found)
        for name, notation, share, found in zip(
            names, notations, shares, search.galleries(both, galleries), strict=True
        )
    ]


def _swap_note(target: int, source: int) -> str:
    if target == source:
        return ""
    how = "cut" if target > source else "filled up with zeros"
    return f"target queries {how} from {target} to {source} values"
