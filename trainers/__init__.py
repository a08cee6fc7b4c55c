"""Trainers: what makes artifacts from pairs of embeddings, and models from images."""

from importlib.util import find_spec

from compatstore.errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("torch", "train")

from compatstore.trainers.auto import Auto
from compatstore.trainers.dmu_head import DMUHead
from compatstore.trainers.drift_adapter import DriftAdapter
from compatstore.trainers.fastfill import FastFill
from compatstore.trainers.fct import FCT
from compatstore.trainers.lce import LCE
from compatstore.trainers.mean_shift import MeanShift
from compatstore.trainers.pairs import Pairs
from compatstore.trainers.procrustes import DiagonalScale, Procrustes
from compatstore.trainers.query_adapter import QueryAdapter
from compatstore.trainers.rbt import RBT
from compatstore.trainers.refit import Refit
from compatstore.trainers.residual import Residual
from compatstore.trainers.ridge import LowRankAffine, LowRankRidge, Ridge

__all__ = [
    "FCT",
    "LCE",
    "RBT",
    "Auto",
    "DMUHead",
    "DiagonalScale",
    "DriftAdapter",
    "FastFill",
    "LowRankAffine",
    "LowRankRidge",
    "MeanShift",
    "Pairs",
    "Procrustes",
    "QueryAdapter",
    "Refit",
    "Residual",
    "Ridge",
]
