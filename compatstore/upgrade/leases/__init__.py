"""Leases of upgrades: one manager at a time."""
