"""The exact nearest neighbours of batches: as their definition says, and as Lance finds them."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.in_memory.nearest import SPARE
from properties import examples

METRICS = ("l2", "cosine", "dot")


def drawn(seed, rows, dim, *, whole, equal):
    """Vectors of length above 0; whole numbers are compared without rounding, and equal ones lie at one distance."""
    rng = np.random.default_rng(seed)
    found = rng.integers(-3, 4, (rows, dim)) + (0.5 if whole else rng.normal(size=(rows, dim)))
    return found[rng.integers(0, rows, rows)].astype(np.float32) if equal else found.astype(np.float32)


def defined(queries, vectors, metric):
    """(q, n) distances in float64, rounded to float32."""
    q, x = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return ((q[:, None] - x) ** 2).sum(axis=2).astype(np.float32)
    if metric == "cosine":
        lengths = np.sqrt((q**2).sum(axis=1))[:, None] * np.sqrt((x**2).sum(axis=1))
        return (1 - (q @ x.T) / lengths).astype(np.float32)
    return (1 - q @ x.T).astype(np.float32)


@examples(60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 400),
    queries=st.integers(1, 40),
    k=st.integers(1, 60),
    metric=st.sampled_from(METRICS),
    whole=st.booleans(),
    equal=st.booleans(),
)
def test_neighbours_are_as_defined_and_ties_are_in_the_order_of_the_rows(seed, rows, queries, k, metric, whole, equal):
    vectors = drawn(seed, rows, 5, whole=whole, equal=equal)
    asked = drawn(seed + 1, queries, 5, whole=whole, equal=False)
    found = cs.nearest_neighbours(asked, vectors, k, metric=metric)
    distances = defined(asked, vectors, metric)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :k]
    assert np.allclose(found.distances, np.take_along_axis(distances, expected, axis=1), rtol=1e-6, atol=1e-6)
    if whole and metric != "cosine":  # nothing is rounded
        assert np.array_equal(found.rows, expected)
    ties = found.distances[:, 1:] == found.distances[:, :-1]
    assert (found.rows[:, 1:] > found.rows[:, :-1])[ties].all()


@examples(6)
@given(seed=st.integers(0, 10_000), metric=st.sampled_from(METRICS), equal=st.booleans())
def test_faiss_and_lance_find_the_same_neighbours(seed, metric, equal):
    vectors = drawn(seed, 300, 6, whole=True, equal=equal)
    asked = drawn(seed + 1, 12, 6, whole=True, equal=False)
    found = cs.nearest_neighbours(asked, vectors, 25, metric=metric)
    with tempfile.TemporaryDirectory() as folder:
        gallery = cs.Gallery.create(
            f"{folder}/g.lance", cs.EmbeddingVersion("v1", dim=6, metric=metric), id_type="int64"
        )
        gallery.add({"id": np.arange(300), "vector": vectors})
        lance = gallery.search(asked, 25, columns=["id"])
    ids, distances = (lance[name].to_numpy().reshape(12, 25) for name in ("id", "_distance"))
    assert np.allclose(found.distances, distances, atol=1e-6)
    if metric != "cosine":  # whole numbers and halves: neither of the two rounds, so that ties are ties for both
        assert np.array_equal(found.rows, ids)
    clear = np.diff(distances, axis=1) > 1e-5
    alone = np.pad(clear, ((0, 0), (1, 0)), constant_values=True) & np.pad(clear, ((0, 0), (0, 1)))
    assert np.array_equal(found.rows[alone], ids[alone])


def test_rounding_in_float32_exchanges_no_neighbours():
    rng = np.random.default_rng(0)
    vectors = (1000 + rng.normal(size=(3000, 16))).astype(np.float32)  # products cancel nearly all digits
    asked = (1000 + rng.normal(size=(40, 16))).astype(np.float32)
    found = cs.nearest_neighbours(asked, vectors, 5)
    assert np.array_equal(found.rows, np.argsort(defined(asked, vectors, "l2"), axis=1, kind="stable")[:, :5])


def test_more_equal_vectors_than_are_fetched():
    vectors = np.ones((50 * SPARE, 4), np.float32)
    vectors[-3] = 2
    found = cs.nearest_neighbours(np.full((25, 4), 2.0), vectors, 4)
    assert found.rows.tolist() == [[len(vectors) - 3, 0, 1, 2]] * 25


def test_values_whose_squares_float32_cannot_hold():
    vectors = np.array([[3e19], [1e19], [-3e19]] * 40, np.float32)
    found = cs.nearest_neighbours([[2.9e19]], vectors, 2)
    assert found.rows.tolist() == [[0, 3]]


def test_fewer_vectors_than_wanted_and_none():
    assert cs.nearest_neighbours([[0.0]], [[1.0], [0.5]], 9).rows.tolist() == [[1, 0]]
    assert cs.nearest_neighbours([[0.0]], np.zeros((0, 1)), 9).rows.shape == (1, 0)
    assert cs.nearest_neighbours(np.zeros((0, 1)), [[1.0]], 9).rows.shape == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1.0]], [[1.0, 2.0]]), {}, "queries of 2 values"),
        (([[1.0]], [[np.nan]]), {}, "rows 0"),
        (([[1.0]], [[1.0]]), {"k": 0}, "k >= 1"),
        (([[1.0]], [[1.0]]), {"metric": "l1"}, "metric"),
        (([[0.0]], [[1.0]]), {"metric": "cosine"}, "zero vectors in rows 0"),
        (([1.0], [[1.0]]), {}, "2 dimensions"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, options, message):
    with pytest.raises(cs.errors.InvalidInput, match=message):
        cs.nearest_neighbours(*arguments, **options)


def test_a_gpu_that_is_not_there_is_said():
    import faiss

    if hasattr(faiss, "StandardGpuResources"):
        refused = None if faiss.get_num_gpus() else cs.errors.InvalidInput
    else:
        refused = cs.errors.MissingExtra
    if refused is not None:
        with pytest.raises(refused):
            cs.nearest_neighbours([[1.0]], [[1.0]], device="gpu")
    found = cs.nearest_neighbours([[1.0]], [[1.0], [2.0]], 1, device="auto" if refused else "gpu")
    assert found.rows.tolist() == [[0]]


def test_without_faiss_the_error_says_what_to_install():
    program = """
import sys
sys.modules["faiss"] = None
import compatstore as cs
try:
    cs.nearest_neighbours([[0.0]], [[1.0]])
except cs.errors.MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 'pip install "compatstore[faiss]"' in said


@pytest.mark.full
@pytest.mark.parametrize("order", ["faiss, torch", "torch, faiss"])
def test_faiss_and_torch_work_in_one_process(order):
    program = f"""
import numpy as np
rows = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
def use_faiss():
    import faiss
    faiss.omp_set_num_threads(2)
    graph = faiss.IndexHNSWFlat(16, 8)
    graph.add(rows)
    return graph.search(rows[:300], 1)[1][:, 0]
def use_torch():
    import torch
    torch.set_num_threads(2)
    weights = torch.randn(16, 16, requires_grad=True)
    (torch.from_numpy(rows) @ weights).square().sum().backward()
    return weights.grad
uses = {{"faiss": use_faiss, "torch": use_torch}}
for name in "{order}".split(", ") * 2:
    found = uses[name]()
    assert np.isfinite(np.asarray(found, np.float64)).all()
assert (use_faiss() == np.arange(300)).mean() > 0.95
"""
    subprocess.run([sys.executable, "-c", program], check=True)
