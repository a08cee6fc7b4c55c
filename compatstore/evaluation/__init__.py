"""Measure retrieval before, during and after an upgrade."""

from compatstore.evaluation.contact_sheet import Neighbour, SheetRow, contact_sheet
from compatstore.evaluation.curve import BackfillCurve, backfill_curve
from compatstore.evaluation.metrics import Flips, RetrievalMetrics, flips, recall_at_k, retrieval_metrics, summarise
from compatstore.evaluation.plots import plot_curve
from compatstore.evaluation.ranking import Ranking, rank_queries

__all__ = [
    "BackfillCurve",
    "Flips",
    "Neighbour",
    "Ranking",
    "RetrievalMetrics",
    "SheetRow",
    "backfill_curve",
    "contact_sheet",
    "flips",
    "plot_curve",
    "rank_queries",
    "recall_at_k",
    "retrieval_metrics",
    "summarise",
]
