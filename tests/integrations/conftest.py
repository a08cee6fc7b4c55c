"""Which files are read: the suites of frameworks, which import them whole, where the full tier is asked for."""

from __future__ import annotations


def pytest_ignore_collect(collection_path, config):
    """A suite's classes are bases of ours, and so load with the file; all its tests are of the full tier."""
    skipped = "not full" in config.getoption("markexpr")
    return True if skipped and collection_path.name.endswith("_suite.py") else None
