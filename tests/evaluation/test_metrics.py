"""Retrieval metrics against other people's definitions, and the rules that ours adds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import rank_queries, recall_at_k, retrieval_metrics
from lazily import Lazy
from properties import examples

sklearn_metrics = Lazy("sklearn.metrics")

pytestmark = pytest.mark.kernel

SIMILARITY = {
    "l2": lambda q, g: -np.square(q[:, None] - g[None]).sum(axis=2),
    "cosine": lambda q, g: (q @ g.T) / np.linalg.norm(q, axis=1)[:, None] / np.linalg.norm(g, axis=1),
    "dot": lambda q, g: q @ g.T,
}
seeds = st.integers(0, 2**32 - 1)
metrics = st.sampled_from(sorted(SIMILARITY))


def random_data(seed, queries=23, items=61, dim=5, classes=4):
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((queries + items, dim)).astype(np.float32)
    labels = random.integers(0, classes, queries + items)
    return vectors[:queries], vectors[queries:], labels[:queries], labels[queries:]


def tied_data(seed, queries=9, items=40, classes=5):
    """Small whole numbers: many distances are equal, and all are exact."""
    random = np.random.default_rng(seed)
    vectors = random.integers(-1, 2, (queries + items, 3)).astype(np.float32)
    labels = random.choice([f"class {c}" for c in range(classes)], queries + items)
    ids = random.permutation(items + 5)
    query_ids, gallery_ids = random.choice(ids, queries, replace=False), ids[:items]
    return vectors[:queries], vectors[queries:], labels[:queries], labels[queries:], query_ids, gallery_ids


def plain(similarity, query_labels, gallery_labels, query_ids, gallery_ids, ks):
    """The definitions, one query and one item at a time."""
    hits, precisions, ties, skipped = {k: [] for k in ks}, [], 0, 0
    for query, scores in enumerate(similarity):
        items = [i for i in range(len(scores)) if gallery_ids[i] != query_ids[query]]
        items.sort(key=lambda i: (-scores[i], gallery_ids[i]))
        correct = [gallery_labels[i] == query_labels[query] for i in items]
        if not any(correct):
            skipped += 1
            continue
        ties += sum(scores[a] == scores[b] for a, b in pairwise(items))
        at_hits = [sum(correct[: r + 1]) / (r + 1) for r in range(len(items)) if correct[r]]
        precisions.append(sum(at_hits) / sum(correct))
        for k in ks:
            hits[k].append(any(correct[:k]))
    return {k: np.mean(v) for k, v in hits.items()}, np.mean(precisions), ties, skipped


def market_1501(distances, query_persons, gallery_persons, query_cameras, gallery_cameras, k):
    """Zheng et al., Scalable person re-identification (2015): same person in the same camera is junk."""
    firsts, precisions = [], []
    for row, person, camera in zip(distances, query_persons, query_cameras, strict=True):
        ranked = np.argsort(row)
        junk = (gallery_persons[ranked] == person) & (gallery_cameras[ranked] == camera)
        good = (gallery_persons[ranked] == person)[~junk].astype(int)
        if not good.any():
            continue
        firsts.append(good[:k].any())
        precision = good.cumsum() / np.arange(1, len(good) + 1)
        precisions.append((precision * good).sum() / good.sum())
    return np.mean(firsts), np.mean(precisions)


@pytest.mark.full
@given(seed=seeds, metric=metrics, dim=st.integers(1, 40))
@examples(40)
def test_map_is_sklearns_average_precision(seed, metric, dim):
    queries, gallery, query_labels, gallery_labels = random_data(seed, dim=dim + 1)
    similarity = SIMILARITY[metric](queries.astype(np.float64), gallery.astype(np.float64))
    relevant = query_labels[:, None] == gallery_labels[None]
    expected = [
        sklearn_metrics.average_precision_score(r, s) for r, s in zip(relevant, similarity, strict=True) if r.any()
    ]

    found = rank_queries(queries, gallery, query_labels, gallery_labels, metric=metric)

    assert found.average_precision[found.counted] == pytest.approx(expected, abs=1e-12)


@pytest.mark.full
@given(seed=seeds, metric=st.sampled_from(["l2", "dot"]))
@examples(40)
def test_all_figures_are_the_plain_definitions_among_ties(seed, metric):
    queries, gallery, query_labels, gallery_labels, query_ids, gallery_ids = tied_data(seed)
    ks = (1, 3, 10, 1000)
    cmc, mean_precision, ties, skipped = plain(
        SIMILARITY[metric](queries, gallery), query_labels, gallery_labels, query_ids, gallery_ids, ks
    )

    found = retrieval_metrics(queries, gallery, query_labels, gallery_labels, query_ids, gallery_ids, ks, metric)

    assert found.cmc == pytest.approx(cmc, abs=1e-12)
    assert found.map == pytest.approx(mean_precision, abs=1e-12)
    assert (found.num_ties, found.num_skipped, found.num_queries) == (ties, skipped, len(queries) - skipped)


@pytest.mark.full
@given(seed=seeds, k=st.sampled_from([1, 5, 20]))
@examples(25)
def test_agrees_with_market_1501_where_every_image_has_its_own_camera(seed, k):
    _, vectors, _, persons = random_data(seed, classes=12)
    cameras = np.random.default_rng(seed).permutation(len(vectors))
    distances = -SIMILARITY["l2"](vectors.astype(np.float64), vectors.astype(np.float64))
    cmc, mean_precision = market_1501(distances, persons, persons, cameras, cameras, k)

    found = retrieval_metrics(vectors, vectors, persons, persons, cameras, cameras, ks=(k,))

    assert found.cmc[k] == pytest.approx(cmc)
    assert found.map == pytest.approx(mean_precision, abs=1e-12)


def test_a_case_done_by_hand():
    gallery = [[1.0], [2.0], [3.0], [4.0]]
    found = retrieval_metrics([[0.0], [5.0]], gallery, ["a", "a"], ["b", "a", "b", "a"], ks=(1, 2))

    assert found.cmc == {1: 0.5, 2: 1.0}
    assert found.map == pytest.approx(((1 / 2 + 2 / 4) / 2 + (1 + 2 / 3) / 2) / 2)
    assert (found.num_queries, found.num_skipped, found.num_ties) == (2, 0, 0)


def test_ties_are_ranked_by_row_and_by_id_where_ids_are_given():
    query, gallery, labels = [[0.0]], [[1.0], [-1.0], [1.0]], ["b", "b", "a"]

    by_row = rank_queries(query, gallery, ["a"], labels)
    by_number = rank_queries(query, gallery, ["a"], labels, gallery_ids=[10, 9, 8])
    by_string = rank_queries(query, gallery, ["a"], labels, gallery_ids=["10", "9", "8"])

    assert [by_row.first_match[0], by_number.first_match[0], by_string.first_match[0]] == [3, 1, 2]
    assert by_row.ties[0] == 2


@pytest.mark.parametrize("metric", sorted(SIMILARITY))
def test_equal_vectors_tie_wherever_they_stand(metric):
    random = np.random.default_rng(3)
    gallery = random.standard_normal((20, 127)).astype(np.float32)[random.integers(0, 20, 203)]
    queries = random.standard_normal((65, 127)).astype(np.float32)
    distinct = len(np.unique(gallery, axis=0))

    found = retrieval_metrics(queries, gallery, np.zeros(65, int), np.zeros(203, int), metric=metric)

    assert found.num_ties == 65 * (203 - distinct)


def test_zeros_of_either_sign_are_equal():
    found = retrieval_metrics([[1.0, 1.0]], [[0.0, 1.0], [-0.0, 1.0]], [1], [1, 1], metric="cosine")
    assert found.num_ties == 1


def test_an_item_is_removed_from_its_own_ranking_only_by_id():
    vectors, labels = np.eye(4, dtype=np.float32), [0, 0, 1, 1]
    ids = ["d", "c", "b", "a"]

    with_itself = retrieval_metrics(vectors, vectors, labels, labels)
    one_side = retrieval_metrics(vectors, vectors, labels, labels, query_ids=ids)
    without = retrieval_metrics(vectors, vectors, labels, labels, ids, ids)

    assert with_itself == one_side
    assert with_itself.cmc[1] == 1.0
    assert without.cmc[1] == 0.5  # all others are equally far: "a" and "b" come first
    assert without.num_ties == 4 * 2


def test_a_query_whose_only_match_is_itself_is_skipped():
    vectors = np.eye(3, dtype=np.float32)
    found = retrieval_metrics(vectors, vectors, [0, 0, 7], [0, 0, 7], [1, 2, 3], [1, 2, 3])
    assert (found.num_queries, found.num_skipped) == (2, 1)


def test_skipped_queries_change_no_figure():
    queries, gallery, query_labels, gallery_labels = random_data(8)
    kept = retrieval_metrics(queries, gallery, query_labels, gallery_labels)
    more = np.concatenate([queries, queries[:4]])
    found = retrieval_metrics(more, gallery, np.append(query_labels, [90, 91, 92, -1]), gallery_labels)
    assert found == replace(kept, num_skipped=kept.num_skipped + 4)


def test_no_query_with_a_match_is_refused():
    with pytest.raises(InvalidInput, match="found none among 2"):
        retrieval_metrics(np.eye(2), np.eye(2), ["a", "b"], ["c", "d"])


@pytest.mark.parametrize("side", ["queries", "gallery"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_by_row(side, value):
    vectors = {"queries": np.ones((9, 2)), "gallery": np.ones((9, 2))}
    vectors[side][[2, 3, 4, 5, 6, 8], 1] = value
    with pytest.raises(InvalidInput, match=rf"read {side}.*rows 2, 3, 4, 5, 6 \(and 1 more\)"):
        retrieval_metrics(**vectors, query_labels=[0] * 9, gallery_labels=[0] * 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.ones((2, 3))}, "queries of 2 values; found 3"),
        ({"queries": np.ones(2)}, r"\(n, d\)"),
        ({"queries": [["a", "b"]]}, "array of numbers"),
        ({"gallery": np.ones((0, 2))}, "at least one vector"),
        ({"query_labels": [0]}, "query labels; expected 2"),
        ({"gallery_labels": [0, 0, 0]}, "gallery labels; expected 2"),
        ({"query_ids": [0]}, "query ids"),
        ({"gallery_ids": [0]}, "gallery ids"),
        ({"gallery_ids": ["x", "x"]}, "found x"),
        ({"query_labels": ["0", "0"]}, "one type on both sides"),
        ({"query_labels": [0.0, 1.0]}, "integers or of strings"),
        ({"query_ids": ["0", "1"], "gallery_ids": [0, 1]}, "match ids"),
        ({"metric": "hamming"}, "hamming"),
        ({"metric": "cosine", "gallery": [[0.0, 0.0], [1.0, 0.0]]}, "zero vectors in rows 0"),
        ({"ks": (0,)}, "k >= 1"),
        ({"ks": ()}, "k >= 1"),
        ({"block": 0}, "block >= 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, message):
    fine = {"queries": np.eye(2), "gallery": np.eye(2), "query_labels": [0, 0], "gallery_labels": [0, 0]}
    with pytest.raises(InvalidInput, match=message):
        retrieval_metrics(**{**fine, **change})


def test_labels_of_any_integer_type_and_objects_are_read():
    expected = retrieval_metrics(np.eye(2), np.eye(2), [0, 1], [0, 1])
    small = retrieval_metrics(np.eye(2), np.eye(2), np.array([0, 1], np.uint8), np.array([0, 1], np.int64))
    objects = retrieval_metrics(np.eye(2), np.eye(2), np.array(["a", "b"], object), ["a", "b"])
    assert expected == small == objects


def test_half_precision_and_whole_numbers_are_measured_as_they_are():
    queries, gallery, *labels = random_data(1)
    halves = [queries.astype(np.float16), gallery.astype(np.float16)]
    codes = [np.sign(queries).astype(np.int8), np.sign(gallery).astype(np.int8)]
    for low in (halves, codes):
        assert retrieval_metrics(*low, *labels) == retrieval_metrics(*(v.astype(np.float32) for v in low), *labels)


def test_tiny_vectors_keep_their_direction():
    queries, gallery, *labels = random_data(2)
    expected = retrieval_metrics(queries, gallery, *labels, metric="cosine")
    tiny = gallery.astype(np.float64) * 2.0**-600  # its squares are zero in double precision
    assert retrieval_metrics(queries, tiny, *labels, metric="cosine") == expected


def test_recall_is_the_share_of_true_neighbours_found():
    truth = np.array([[1, 2], [3, 4]])
    assert recall_at_k([[2, 1], [4, 3]], truth) == 1.0
    assert recall_at_k(np.array([[2, 9], [9, 8]]), truth) == 0.25
    assert recall_at_k([["a"], []], [["a", "b"], ["a", "b"]]) == 0.25


@pytest.mark.parametrize(("found", "truth"), [([[1]], [[1], [2]]), ([[1]], [[]])])
def test_recall_without_a_meaning_is_refused(found, truth):
    with pytest.raises(InvalidInput):
        recall_at_k(found, truth)
