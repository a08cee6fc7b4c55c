"""index create, status, refresh and drop on the command line."""

from __future__ import annotations

import pytest

from compatstore.storage import recall


@pytest.fixture(autouse=True)
def few_queries(monkeypatch):
    monkeypatch.setattr(recall, "QUERIES", 20)


@pytest.mark.full
def test_an_index_is_created_shown_refreshed_and_dropped(run, gallery, digits):
    assert run("index", "status", gallery).out.split()[-7:] == ["v1", "none", "0", "0", "0.0", "0", "300"]
    made = run("index", "create", gallery, "--kind", "IVF_FLAT", "--num-partitions", 4)
    assert made.code == 0
    assert "IVF_FLAT" in made.out
    assert "searches of v1 use nprobes" in made.out
    assert "index: build" in made.err
    assert "index: measure recall" in made.err
    (shown,) = run("index", "status", gallery, "--json").json
    assert (shown["version"], shown["kind"], shown["cells"], shown["indexed_rows"]) == ("v1", "IVF_FLAT", 4, 300)
    assert shown["recall"] >= recall.GOAL
    run("add", gallery, digits / "v1.npz", "--upsert")
    refreshed = run("index", "refresh", gallery, "v1")
    assert refreshed.code == 0
    assert "300 vectors came into the index of v1" in refreshed.out
    assert run("index", "drop", gallery).out == "dropped: v1_idx\n"
    assert run("index", "drop", gallery, "--json").json == {"version": "v1", "dropped": []}


def test_what_cannot_be_is_refused_with_a_way_out(run, gallery, empty):
    nothing = run("index", "refresh", gallery)
    assert nothing.code == 2
    assert f"compatstore index create {gallery} v1" in nothing.err
    assert "registered only" in run("index", "status", gallery, "v2").err
    assert "at least 256 vectors; found 0" in run("index", "create", empty).err
    assert run("index", "create", gallery, "--kind", "LSH").code == 2
    assert run("index", "create", gallery, "--num-partitions", 0).code == 2
