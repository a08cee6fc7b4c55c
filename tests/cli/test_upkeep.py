"""optimize on the command line; verify and doctor are tested with their package."""

from __future__ import annotations

import pytest


@pytest.fixture
def items(run, gallery, digits):
    """The gallery after some more writes."""
    run("add", gallery, digits / "v1.npz", "--upsert")
    return gallery


def test_optimize_says_what_it_did(run, items):
    said = run("optimize", items, "--dry-run", "--json")
    done = run("optimize", items, "--grace", 0, "--json")
    assert (said.code, done.code) == (0, 0)
    assert said.json["dry_run"]
    assert done.json["after"]["versions"] < done.json["before"]["versions"]
    assert done.json["after"]["files"] < done.json["before"]["files"]
    shown = run("optimize", items, "--dry-run").out
    assert "would be" in shown
    assert "table versions" in shown
    assert "compatstore-v1" in shown
