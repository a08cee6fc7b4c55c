"""Estimates of an upgrade on a sample, and measurements after the fact."""
