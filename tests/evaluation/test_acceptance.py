"""TAR@FAR against scikit-learn's ROC curve, and what it says of ties, ids, rates at the ends and wrong input."""

from __future__ import annotations

import numpy as np
import pytest
from digit_galleries import DIGITS, LABELS
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.errors import InvalidInput
from lazily import Lazy

metrics = Lazy("sklearn.metrics")

RATES = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0)


def reference(queries, gallery, query_labels, gallery_labels, rates, metric, pairs=None):
    """The best true rate of scikit-learn's curve at or below each false rate."""
    apart = {"l2": "sqeuclidean", "cosine": "cosine"}
    if metric == "dot":
        distances = -(queries.astype(float) @ gallery.T.astype(float))
    else:
        distances = metrics.pairwise_distances(queries, gallery, apart[metric])
    pairs = np.ones(distances.shape, bool) if pairs is None else pairs
    same = (np.asarray(query_labels)[:, None] == np.asarray(gallery_labels))[pairs]
    false, true, _ = metrics.roc_curve(same, -distances[pairs], drop_intermediate=False)
    return {rate: true[false <= rate].max() for rate in rates}


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("block", [None, 1, 7])
def test_it_is_scikit_learns(metric, block):
    queries, gallery = DIGITS[:80] + 0.5, DIGITS[80:500] + 0.5
    found = cs.evaluation.true_acceptance(
        queries, gallery, LABELS[:80], LABELS[80:500], rates=RATES, metric=metric, block=block
    )
    expected = reference(queries, gallery, LABELS[:80], LABELS[80:500], RATES, metric)
    assert found == pytest.approx(expected, abs=2e-4)


def test_an_item_is_no_pair_with_itself():
    rows = np.arange(100)
    found = cs.evaluation.true_acceptance(
        DIGITS[:100], DIGITS[:100], LABELS[:100], LABELS[:100], rows, rows, RATES, "l2"
    )
    pairs = ~np.eye(100, dtype=bool)
    expected = reference(DIGITS[:100], DIGITS[:100], LABELS[:100], LABELS[:100], RATES, "l2", pairs)
    assert found == pytest.approx(expected)
    with_itself = cs.evaluation.true_acceptance(
        DIGITS[:100], DIGITS[:100], LABELS[:100], LABELS[:100], rates=RATES, metric="l2"
    )
    assert with_itself[0.0] > found[0.0]


@pytest.mark.full
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=4, max_size=20), st.integers(0, 100))
def test_pairs_at_one_distance_are_accepted_together(items, percent):
    values, labels = np.array([[value] for value, _ in items], float), [label for _, label in items]
    if len(set(labels)) < 2:
        return
    rate = percent / 100
    found = cs.evaluation.true_acceptance(values, values, labels, labels, rates=(rate,), metric="l2")
    expected = reference(values, values, labels, labels, (rate,), "l2")
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rates": (2.0,)}, "rates from 0 to 1"),
        ({"rates": ()}, "none"),
        ({"rates": (float("nan"),)}, "rates from 0 to 1"),
        ({"gallery_labels": [5, 5, 5]}, "a pair of one class"),
        ({"query_labels": [1, 1], "gallery_labels": [1, 1, 1]}, "a pair of two classes"),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong, said):
    given_ = {"queries": np.eye(3)[:2], "gallery": np.eye(3), "query_labels": [0, 1], "gallery_labels": [0, 1, 1]}
    with pytest.raises(InvalidInput, match=said):
        cs.evaluation.true_acceptance(**{**given_, **wrong})
