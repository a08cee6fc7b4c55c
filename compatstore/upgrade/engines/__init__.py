"""Execution engines for the jobs of an upgrade: this process, or a Ray cluster."""
