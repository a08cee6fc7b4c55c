"""Measure retrieval before, during and after an upgrade, and decide on it."""

import compatstore.evaluation.views  # noqa: F401  (registers what people see of these)
from compatstore.evaluation.acceptance import true_acceptance
from compatstore.evaluation.advice import Advice
from compatstore.evaluation.agreement import kendall_tau, linear_cka, subgroup_gap
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.compatibility import (
    CompatibilityMatrix,
    compatibility_matrix,
    degradation,
    upgrade_gain,
)
from compatstore.evaluation.contact_sheet import Neighbour, SheetRow, contact_sheet
from compatstore.evaluation.curve import BackfillCurve, backfill_curve
from compatstore.evaluation.decision import DecisionRow, DecisionTable, decide
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.judgements import Judgements
from compatstore.evaluation.merging import Calibration, Merge
from compatstore.evaluation.metrics import Flips, RetrievalMetrics, flips, recall_at_k, retrieval_metrics, summarise
from compatstore.evaluation.plots import plot_budgets, plot_curve, plot_decision
from compatstore.evaluation.ranking import Ranking, rank_queries
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample

__all__ = [
    "Advice",
    "BackfillCurve",
    "Calibration",
    "CompatibilityMatrix",
    "DecisionRow",
    "DecisionSettings",
    "DecisionTable",
    "Estimate",
    "EvaluationSample",
    "Flips",
    "Fusion",
    "Judgements",
    "Merge",
    "Neighbour",
    "Ranking",
    "RetrievalMetrics",
    "SheetRow",
    "backfill_curve",
    "compatibility_matrix",
    "contact_sheet",
    "decide",
    "degradation",
    "flips",
    "kendall_tau",
    "linear_cka",
    "plot_budgets",
    "plot_curve",
    "plot_decision",
    "rank_queries",
    "recall_at_k",
    "retrieval_metrics",
    "subgroup_gap",
    "summarise",
    "true_acceptance",
    "upgrade_gain",
]
