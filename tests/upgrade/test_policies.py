"""The order of a backfill: what each policy puts first, and that a gallery keeps to it through stops and reruns."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.upgrade.backfilling.cells import random_scores
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from galleries import artifact
from tiers import few

SEED = np.random.default_rng(0)
IDS = [f"item-{number}" for number in range(800)]
VECTORS = SEED.normal(size=(800, 24)).astype(np.float32)
NATIVE = SEED.normal(size=(800, 12)).astype(np.float32)
VIEWS = SEED.integers(0, 50, 800)
KIND = [None if number % 9 == 8 else f"kind {number % 9 % 5}" for number in range(800)]


@pytest.fixture
def gallery(tmp_path):
    """A gallery in two fragments, an artifact with a sigma head, and views."""
    source = cs.EmbeddingVersion("v1", dim=24, metric="l2")
    encoder = cs.encoders.Precomputed(dict(zip(IDS, NATIVE, strict=True)))
    target = cs.EmbeddingVersion("v2", dim=12, metric="l2", encoder=encoder)
    gallery = cs.Gallery.create(str(tmp_path / "items.lance"), source)
    for part in (slice(0, 500), slice(500, 800)):
        gallery.add(
            {"id": IDS[part], "vector": VECTORS[part], "views": VIEWS[part], "title": IDS[part], "kind": KIND[part]}
        )
    gallery.register(target)
    gallery.artifacts.link(artifact(source, target))
    return gallery


def transformed(gallery):
    h = artifact(gallery.version("v1"), gallery.version("v2"))
    return h.apply(VECTORS)


def rows_of(gallery):
    """The same items in memory."""
    made = transformed(gallery)
    columns = {"views": VIEWS, "kind": KIND}
    return ArrayRows(ids=IDS, sigma2=made.uncertainty, columns=columns, source=VECTORS)


def native_ids(gallery):
    table = gallery.get(IDS, ["id", "v2__origin"]).to_pylist()
    return {row["id"] for row in table if row["v2__origin"] == "native"}


POLICIES = ["random", "spread", "sigma", "spread-sigma", "column:views"]


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
def test_a_gallery_embeds_what_the_policy_puts_first(gallery, policy):
    chosen = order(policy, rows_of(gallery), seed=3)[:200]
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=0.25, order=policy, seed=3))
    assert report.backfilled == 200
    assert native_ids(gallery) == {IDS[position] for position in chosen}


STOPPED = ["sigma", "column:views", "spread-sigma"]


@pytest.mark.full
@pytest.mark.parametrize("policy", STOPPED)
def test_a_stopped_backfill_ends_with_the_set_of_an_unstopped_one(gallery, policy):
    gallery.upgrade(
        "v2", backfill=cs.Backfill(write_mode="move_rows")
    )  # each batch is in the table at once, so that natives lose their sigma
    chosen = order(policy, rows_of(gallery))[:600]
    calls = []
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade(
            "v2",
            backfill=cs.Backfill(share=0.75, order=policy),
            progress=calls.append,
            should_stop=lambda: len(calls) >= 2,
        )
    assert gallery.upgrade("v2").backfilled > 0
    assert native_ids(gallery) == {IDS[position] for position in chosen}
    assert gallery.upgrade("v2").backfilled == 0, "what became native lost its sigma and is still counted as chosen"


@pytest.mark.full
def test_a_backfill_in_steps_ends_with_the_set_of_one_in_one_go(gallery):
    gallery.upgrade("v2")
    chosen = order("sigma", rows_of(gallery))
    for share, backfilled in ((0.1, 80), (0.25, 120), (0.5, 200)):
        assert gallery.upgrade("v2", backfill=cs.Backfill(share=share, order="sigma")).backfilled == backfilled
        assert native_ids(gallery) == {IDS[position] for position in chosen[: int(800 * share)]}


@pytest.mark.full
@pytest.mark.parametrize(
    "policy",
    ["spread-sigma", "column:views"],
)
def test_an_estimate_goes_by_the_order_of_the_backfill(gallery, policy):
    asked = {"backfill": cs.Backfill(share=0.5, order=policy), "gates": cs.Gates(sample=100)}
    by_policy = gallery.upgrade("v2", **asked, dry_run=True).estimate.table
    at_random = gallery.upgrade("v2", **asked | {"backfill": cs.Backfill(share=0.5)}, dry_run=True).estimate.table
    assert [row.name for row in by_policy.rows] == [row.name for row in at_random.rows]
    assert by_policy != at_random


@pytest.mark.full
def test_an_item_that_cannot_be_embedded_gives_way_to_the_next(gallery):
    gallery.add({"id": ["stranger"], "vector": np.full((1, 24), 30, np.float32), "views": [10**6], "title": ["?"]})
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=0.25, order="column:views"))
    assert (report.backfilled, report.unbackfillable[0][0]) == (200, "stranger")
    first = native_ids(gallery)
    assert gallery.upgrade("v2").backfilled == 0
    assert native_ids(gallery) == first


@pytest.mark.full
def test_items_that_could_not_be_transformed_come_first(tmp_path):
    source = cs.EmbeddingVersion("v1", dim=24, side_dim=8)
    encoder = cs.encoders.Precomputed(dict(zip(IDS, NATIVE, strict=True)))
    target = cs.EmbeddingVersion("v2", dim=12, encoder=encoder)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), source)
    gallery.add({"id": IDS[:700], "vector": VECTORS[:700], "side": VECTORS[:700, :8]})
    gallery.add({"id": IDS[700:], "vector": VECTORS[700:]})
    gallery.register(target)
    gallery.artifacts.link(artifact(source, target))
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=0.125, order="sigma"))
    assert report.missing == 0
    assert native_ids(gallery) == set(IDS[700:])


@pytest.mark.parametrize(
    ("policy", "words"),
    few(
        6,
        [
            ("alphabetical", "random, spread, sigma"),
            ("oracle", "random, spread, sigma"),
            ("sigma*column:views", "random, spread, sigma"),
            ("column:", "random, spread, sigma"),
            ("column:price", "no such column"),
            ("spread-sigma:kind", "random, spread, sigma"),
            ("column:title", "string"),
        ],
    ),
)
def test_a_policy_that_the_gallery_cannot_follow_is_refused_before_anything_is_written(gallery, policy, words):
    before = gallery.status().table_version
    with pytest.raises(InvalidInput, match=words):
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.5, order=policy))
    assert gallery.status().table_version == before


def test_sigma_is_asked_for_only_where_it_exists(tmp_path):
    source = cs.EmbeddingVersion("v1", dim=24)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), source)
    gallery.add({"id": IDS, "vector": VECTORS})
    gallery.register(cs.EmbeddingVersion("v2", dim=12, encoder=cs.encoders.Precomputed({"item-0": NATIVE[0]})))
    with pytest.raises(InvalidInput, match="FastFill"):
        gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, order="sigma"), dry_run=True)


class OfKinds(ArrayRows):
    """Items whose cells are their kinds."""

    def cells(self, seed):
        return np.asarray(self.columns["kind"])


@pytest.mark.full
@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 9) | st.just(float("nan"))), min_size=1, max_size=60),
    st.integers(0, 99),
)
def test_spread_by_sigma_takes_the_most_uncertain_of_each_cell_and_as_many_as_spread_at_random(items, seed):
    kinds, sigma2 = (np.array(values) for values in zip(*items, strict=True))
    chosen = order("spread-sigma", OfKinds(ids=range(len(items)), sigma2=sigma2, columns={"kind": kinds}), seed)
    for kind in range(5):
        found = np.where(np.isnan(sigma2), np.inf, sigma2)[[row for row in chosen if kinds[row] == kind]]
        assert (found[:-1] >= found[1:]).all()
    alike = order("spread-sigma", OfKinds(ids=range(len(items)), sigma2=0 * kinds, columns={"kind": kinds}), seed)
    assert kinds[chosen].tolist() == kinds[alike].tolist(), "sigma does not decide how many are from each cell"


@pytest.mark.full
@given(st.permutations(range(30)), st.integers(0, 2**40))
def test_the_order_does_not_depend_on_where_items_stand(moved, seed):
    scores, ids = np.arange(30) % 3, np.arange(30)
    first = ids[order("column:clicks", ArrayRows(ids=ids, columns={"clicks": scores}), seed)]
    again = ids[moved][order("column:clicks", ArrayRows(ids=ids[moved], columns={"clicks": scores[moved]}), seed)]
    assert first.tolist() == again.tolist()
    assert (np.diff(scores[first]) <= 0).all()


def test_the_random_order_is_what_it_always_was():
    """Galleries in the middle of a backfill rely on it, and so do the figures of the documents."""
    scores = random_scores(IDS, "backfill", 5)
    assert (
        hashlib.sha256(np.argsort(-scores, kind="stable").astype("<i8").tobytes()).hexdigest()[:16]
        == "2ca7564511670a41"
    )
    assert (order("random", ArrayRows(ids=IDS), 5) == np.argsort(-scores, kind="stable")).all()
    assert not (order("random", ArrayRows(ids=IDS), 6) == order("random", ArrayRows(ids=IDS), 5)).all()


def test_the_unknown_come_first_and_an_item_without_a_number_counts_as_0():
    rows = ArrayRows(ids=list("abcd"), sigma2=[0.5, 0.4, np.nan, 0.1], columns={"views": [3, np.nan, 2, 10]})
    assert [rows.ids[position] for position in order("sigma", rows)] == ["c", "a", "b", "d"]
    assert [rows.ids[position] for position in order("column:views", rows)] == ["d", "a", "c", "b"]
    with pytest.raises(InvalidInput, match="none given"):
        order("sigma", ArrayRows(ids=[1, 2]))
