"""Trainers of side-information, which is stored beside each embedding for later transforms."""
