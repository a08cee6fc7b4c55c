"""Every way to serve a gallery during an upgrade, each ranked for the same queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore.evaluation.compatibility import fit_length
from compatstore.evaluation.curve import as_permutation, mixed_galleries, native_rows
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.mixed import rank_mixed
from compatstore.evaluation.ranking import Ranking, rank_galleries
from compatstore.evaluation.relevance import Relevance, judge, judge_neighbours
from compatstore.evaluation.trial import DecisionSettings, Trial


@dataclass(frozen=True, kw_only=True, eq=False)
class Way:
    """One way to serve the gallery and what each query found by it; see `DecisionRow` for the fields' meaning."""

    name: str
    notation: str
    share: float
    ranking: Ranking
    note: str = ""


def rank_ways(trial: Trial, settings: DecisionSettings) -> list[Way]:
    """Rank by the status quo, naive swap, rank merge, hop alone, the budgets and the full backfill, in this order."""
    native = measure(trial.target_queries, trial.native, settings.target_metric)
    relevance = _truth(trial, native, settings)
    return [*_without_transform(trial, native, relevance, settings), *_backfills(trial, relevance, settings)]


def _truth(trial: Trial, native: Distances, settings: DecisionSettings) -> Relevance:
    if trial.query_labels is None or trial.gallery_labels is None:
        return judge_neighbours(native, settings.neighbours, trial.query_ids, trial.gallery_ids)
    return judge(trial.query_labels, trial.gallery_labels, trial.query_ids, trial.gallery_ids)


def _without_transform(trial: Trial, native: Distances, relevance: Relevance, settings: DecisionSettings) -> list[Way]:
    """What the source's vectors are good for: as they are, with the wrong queries, and beside native ones."""
    source = measure(trial.source_queries, trial.source, settings.source_metric)
    swapped = fit_length(trial.target_queries, trial.source.shape[1])
    naive = measure(swapped, trial.source, settings.source_metric)
    rows, share = np.arange(len(trial.source)), settings.merge_share
    filled = native_rows(as_permutation(trial.order, len(rows)), share)
    mixed = rank_mixed(source, native, filled, relevance, settings.merge)
    status_quo, swap = (rank_galleries(distances, relevance, [rows])[0] for distances in (source, naive))
    note = _swap_note(trial.target_queries.shape[1], trial.source.shape[1])
    return [
        Way(name="status quo", notation="s/s", share=0.0, ranking=status_quo),
        Way(name="naive swap", notation="t/s", share=0.0, ranking=swap, note=note),
        Way(name=f"rank merge {share:.0%}", notation="s/s+t/t", share=share, ranking=mixed, note=settings.merge),
    ]


def _backfills(trial: Trial, relevance: Relevance, settings: DecisionSettings) -> list[Way]:
    """Hop alone, the budgets and the full backfill, ranked together: their vectors are rows of one table."""
    shares = np.array([0.0, *sorted(settings.shares), 1.0])
    both = measure(trial.target_queries, np.concatenate([trial.transformed, trial.native]), settings.target_metric)
    galleries = mixed_galleries(as_permutation(trial.order, len(trial.source)), shares)
    names = ["hop alone", *(f"backfill {share:.0%}" for share in shares[1:-1]), "full backfill"]
    notations = ["t/h", *["t/h+t"] * len(settings.shares), "t/t"]
    rankings = rank_galleries(both, relevance, galleries)
    return [
        Way(name=name, notation=notation, share=float(share), ranking=ranking)
        for name, notation, share, ranking in zip(names, notations, shares, rankings, strict=True)
    ]


def _swap_note(target: int, source: int) -> str:
    if target == source:
        return ""
    how = "cut" if target > source else "filled up with zeros"
    return f"target queries {how} from {target} to {source} values"
