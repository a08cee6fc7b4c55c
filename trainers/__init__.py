"""Trainers: what makes artifacts from pairs of embeddings, and models from images."""

from compatstore.trainers.fct import FCT
from compatstore.trainers.pairs import Pairs

__all__ = ["FCT", "Pairs"]
