"""The backfill: selection and order of items, budget, pace, and native embedding."""
