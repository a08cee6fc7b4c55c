"""Trainers on pairs of embeddings: transforms, query adapters and corrections of them."""
