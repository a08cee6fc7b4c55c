"""Trainers on images: models that are compatible with an earlier one, and models trained alone."""
