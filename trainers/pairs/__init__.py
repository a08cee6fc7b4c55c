"""Trainers on pairs of embeddings: what makes transforms, query adapters and corrections of them."""
