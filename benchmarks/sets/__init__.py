"""Labelled sets, embedded by two models or more: what benchmarks of quality read."""
