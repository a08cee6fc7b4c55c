"""Maintenance: compaction, indexing and clean-up, which keep a gallery fast and small after thousands of writes."""
