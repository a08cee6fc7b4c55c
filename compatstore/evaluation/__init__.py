"""Measure retrieval before, during and after an upgrade, and decide on it."""

import compatstore.evaluation.views  # noqa: F401  (registers their rendering)
from compatstore.evaluation.advice import Advice
from compatstore.evaluation.agreement import kendall_tau, linear_cka
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.curve import BackfillCurve, backfill_curve, flips
from compatstore.evaluation.decision import DecisionRow, DecisionTable, decide
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.judgements import Judgements
from compatstore.evaluation.merging import Calibration, Merge
from compatstore.evaluation.metrics import Flips, RetrievalMetrics, recall_at_k, retrieval_metrics, summarise
from compatstore.evaluation.preference import Preference
from compatstore.evaluation.ranking import Ranking, rank_queries
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample

__all__ = [
    "Advice",
    "BackfillCurve",
    "Calibration",
    "DecisionRow",
    "DecisionSettings",
    "DecisionTable",
    "Estimate",
    "EvaluationSample",
    "Flips",
    "Fusion",
    "Judgements",
    "Merge",
    "Preference",
    "Ranking",
    "RetrievalMetrics",
    "backfill_curve",
    "decide",
    "flips",
    "kendall_tau",
    "linear_cka",
    "rank_queries",
    "recall_at_k",
    "retrieval_metrics",
    "summarise",
]
