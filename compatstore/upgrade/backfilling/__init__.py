"""The backfill: what is embedded natively, in which order, within which budget, at which pace."""
