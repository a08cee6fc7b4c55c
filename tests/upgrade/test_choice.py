"""The first items of an order, found a stretch of the gallery at a time, are those of the whole order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import ADDRESS, read_rows
from compatstore.storage.location import locate
from compatstore.storage.store import Store
from compatstore.upgrade.backfilling import policies
from compatstore.upgrade.backfilling.policies import Choice, earliest, order
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.context import UpgradeContext
from galleries import make, split

POLICIES = ["random", "sigma", "column:number", "spread", "spread-sigma"]


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Five fragments with deleted rows and equal numbers, hopped."""
    path = str(tmp_path_factory.mktemp("earliest") / "g.lance")
    gallery = make(path, fragments=5, rows=40)
    gallery.upgrade("v2", backfill=cs.Backfill(order="sigma"))
    gallery.update({"id": [f"item-{number:06d}" for number in range(1, 51)], "number": [7] * 50})
    split(path, 5)
    catalog = Catalog(Store.open(locate(path)))
    return UpgradeContext.of(catalog, catalog.registry().runs["v2"])


@pytest.mark.parametrize("policy", POLICIES)
def test_they_are_those_of_the_whole_order(context, monkeypatch, policy):
    monkeypatch.setattr(TableRows.parts, "__defaults__", (90,))
    rows = TableRows(context)
    assert len(list(rows.parts())) > 2
    free = np.random.default_rng(0).random(len(rows)) < 0.7
    whole = order(policy, rows, 3)
    for count in (1, 30, 1_000):
        np.testing.assert_array_equal(earliest(policy, rows, 3, count, free), whole[free[whole]][:count])


def test_rounds_of_few_items_choose_what_one_round_chooses(context, monkeypatch):
    run = replace(context.run, policy="sigma")
    chosen = []
    for most in (1_000, 16):
        monkeypatch.setattr(policies, "ROUND_ROWS", most)
        rows = TableRows(context.with_run(run))
        choice, rounds = Choice(rows, 0.5, rows.none(), rows.none()), []
        while len(round_ := choice.next_round(rows.none())):
            rounds.append(round_.ids)
            found = read_rows(rows.context.snapshot, "id", round_.ids.to_pylist(), round_.addresses, ["id"])
            assert found.column(ADDRESS).to_pylist() == sorted(round_.addresses.tolist())
        chosen.append(pa.concat_arrays(rounds).to_pylist())
        assert all(len(ids) <= most for ids in rounds)
    assert len(chosen[0]) == len(set(chosen[0])) == len(TableRows(context)) // 2
    assert chosen[0] == chosen[1]


def test_an_empty_gallery_has_no_first_items(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=4))
    gallery.register(cs.EmbeddingVersion("v2", dim=4, encoder=cs.encoders.Precomputed({"a": np.ones(4, np.float32)})))
    assert gallery.upgrade("v2", backfill=1.0, learn=None).backfilled == 0
