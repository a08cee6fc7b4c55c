"""Refit while filling: correct the transform by what the backfill has gathered."""
