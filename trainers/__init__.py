"""Trainers: what makes artifacts from pairs of embeddings, and models from images."""

from compatstore.trainers.dmu_head import DMUHead
from compatstore.trainers.drift_adapter import DriftAdapter
from compatstore.trainers.fastfill import FastFill
from compatstore.trainers.fct import FCT
from compatstore.trainers.lce import LCE
from compatstore.trainers.pairs import Pairs
from compatstore.trainers.rbt import RBT

__all__ = ["FCT", "LCE", "RBT", "DMUHead", "DriftAdapter", "FastFill", "Pairs"]
