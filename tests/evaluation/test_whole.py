"""A gallery that passes by in batches is searched as one that is held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import rank_queries, whole
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.evaluation.whole import Passing, WholeSearch
from properties import examples

KS = (1, 5)


def passing(gallery, places, there):
    """A batch whose items have the same vectors in both versions."""
    both = {"source": gallery, "target": gallery, "in_source": there, "in_target": there}
    return Passing(places=places, native=there, **both)


def searching(queries, relevance, metric="l2"):
    return WholeSearch(source=queries, target=queries, metrics=(metric, metric), relevance=relevance)


def search(queries, gallery, query_classes, classes, itself, *, batch=37, there=None):
    """Search whole numbers, so that distances tie, in batches."""
    there = np.ones(len(gallery), bool) if there is None else there

    def batches():
        for start in range(0, len(gallery), batch):
            places = np.arange(start, min(start + batch, len(gallery)))
            yield passing(gallery[places], places, there[places])

    relevance = relevance_from_labels(query_classes, classes, itself, np.arange(len(gallery)))
    return searching(queries, relevance).run(batches, KS)


@pytest.mark.full
@examples(30)
@given(seed=st.integers(0, 10**6), batch=st.integers(1, 120), spread=st.sampled_from([2, 50]))
def test_queries_from_outside_find_what_they_find_in_memory(seed, batch, spread):
    random = np.random.default_rng(seed)
    gallery, queries = (random.integers(0, spread, (n, 3)).astype(np.float32) for n in (100, 20))
    classes, query_classes = random.integers(-1, 4, 100), random.integers(0, 6, 20)
    found = search(queries, gallery, query_classes, classes, np.full(20, -1), batch=batch)
    expected = rank_queries(queries, gallery, query_classes, classes)
    np.testing.assert_array_equal(found.correct > 0, expected.counted)
    some = expected.counted
    np.testing.assert_array_equal(found.values["t/h"][0, some], expected.first_match[some] <= 1)
    np.testing.assert_array_equal(found.values["t/h"][1, some], expected.first_match[some] <= 5)
    np.testing.assert_allclose(found.values["t/h"][2], expected.average_precision)


def test_of_large_classes_a_random_part_stands_for_all(monkeypatch):
    random = np.random.default_rng(0)
    gallery, queries = (random.normal(size=(n, 4)).astype(np.float32) for n in (2000, 60))
    classes, query_classes = (gallery[:, 0] > 0).astype(int), (queries[:, 0] > 0).astype(int)
    expected = rank_queries(queries, gallery, query_classes, classes)
    monkeypatch.setattr(whole, "MOST_PROBES", 200)
    found = search(queries, gallery, query_classes, classes, np.full(60, -1), batch=500).values["t/h"]
    np.testing.assert_array_equal(found[0], expected.first_match <= 1)
    assert found[2].mean() == pytest.approx(expected.average_precision.mean(), abs=0.01)


def test_items_that_ask_do_not_find_themselves():
    random = np.random.default_rng(1)
    gallery, classes, ids = random.integers(0, 4, (90, 3)).astype(np.float32), np.arange(90) % 7, np.arange(90)
    found = search(gallery, gallery, classes, classes, ids)
    expected = rank_queries(gallery, gallery, classes, classes, ids, ids)
    np.testing.assert_array_equal(found.values["t/h"][0], expected.first_match <= 1)
    np.testing.assert_allclose(found.values["t/h"][2], expected.average_precision)


def test_what_a_way_cannot_find_counts_as_never_found():
    gallery, classes = np.arange(6, dtype=np.float32)[:, None], np.array([0, 0, 1, 1, 0, 1])
    there = np.array([False, True, True, True, True, False])
    found = search(gallery[:1], gallery, classes[:1], classes, np.array([-1]), batch=4, there=there)
    assert found.correct.tolist() == [3]
    assert found.values["t/h"][2, 0] == pytest.approx((1 + 2 / 4) / 3)
    nothing = search(gallery[:1], gallery, classes[:1], classes, np.array([-1]), there=np.zeros(6, bool))
    assert nothing.values["t/h"][:, 0].tolist() == [0.0, 0.0, 0.0]


def test_a_gallery_that_changes_between_the_passes_is_refused():
    gallery, passes = np.ones((4, 1), np.float32), iter([4, 3])

    def batches():
        places = np.arange(next(passes))
        yield passing(gallery[places], places, places >= 0)

    relevance = relevance_from_labels([0], [0] * 4, [0], np.arange(4))
    changed = searching(gallery[:1], relevance)
    with pytest.raises(InvalidInput, match="4 items in both passes"):
        changed.run(batches, KS)


def test_queries_of_another_model_without_a_direction_find_nothing():
    random = np.random.default_rng(4)
    gallery, queries = random.normal(size=(60, 3)).astype("f4"), random.normal(size=(12, 3)).astype("f4")
    queries[::4] = 0.0
    classes, everything = np.arange(60) % 3, np.ones(60, bool)

    batch = passing(gallery, np.arange(60), everything)
    relevance = relevance_from_labels(classes[:12], classes)
    with pytest.raises(InvalidInput, match="zero vectors"):
        searching(queries, relevance, "cosine").run(lambda: iter([batch]), KS)
    given = np.where(queries.any(axis=1)[:, None], queries, 1)
    search = WholeSearch(
        source=given, target=np.c_[np.zeros_like(queries), given], metrics=("cosine", "l2"), relevance=relevance
    )
    wide = Passing(**{**vars(batch), "target": np.c_[gallery, gallery]})
    assert not search.run(lambda: iter([wide]), KS).values["t/s"].any()
    search = WholeSearch(source=given, target=np.c_[queries, given], metrics=("cosine", "l2"), relevance=relevance)
    values = search.run(lambda: iter([wide]), KS).values["t/s"]
    assert not values[:, ::4].any()
    assert (values[-1, 1::4] > 0).all()
