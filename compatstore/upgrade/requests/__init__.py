"""Requests of a caller: limits of the backfill, gates, and settings of the run."""
