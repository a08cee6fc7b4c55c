"""The verbs that make a gallery smaller."""

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


def test_versions_and_artifacts_are_forgotten_once_nothing_uses_them(run, linked):
    refused = run("unregister", linked, "v2")
    assert refused.code == 7
    artifact = run("versions", linked, "--json").json["artifacts"][0]["id"]
    assert f"compatstore unlink {linked} {artifact[:12]}" in refused.err
    assert run("unlink", linked, artifact[:8]).code == 0
    assert run("unregister", linked, "v2").code == 0
    left = run("versions", linked, "--json").json
    assert [version["name"] for version in left["versions"]] == ["v1"]
    assert left["artifacts"] == []
