"""Upkeep: merges, indexing and clean-up, so that a gallery stays fast and small after thousands of writes."""
