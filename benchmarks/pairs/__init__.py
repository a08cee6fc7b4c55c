"""Transforms that are learned from pairs of embeddings."""
