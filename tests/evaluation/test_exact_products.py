"""Products of vectors: no sum is rounded, so nothing depends on who adds up, or how."""

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.evaluation.exact_products import cut, cut_whole, multiply

pytestmark = pytest.mark.kernel

KERNELS = ("Haswell", "SkylakeX", "Zen", "Sandybridge", "Nehalem", "Prescott")
DIGEST = """
import hashlib, numpy as np
from compatstore.evaluation.exact_products import cut, multiply
random, digest = np.random.default_rng(0), hashlib.sha256()
for dim in (1, 67, 128):
    for queries in (1, 5, 130):
        sides = [cut(random.standard_normal((rows, dim))) for rows in (queries, 333)]
        digest.update(multiply(*sides).tobytes())
print(digest.hexdigest())
"""
seeds, dims = st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 7, 64, 127, 300])


def vectors(seed, dim, queries=13, items=41):
    """Vectors of lengths from 1e-20 to 1e20, with values of every size."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((queries + items, dim)) ** 3
    spread = values * 10.0 ** random.uniform(-20, 20, (queries + items, 1))
    return spread[:queries], spread[queries:]


def product(left, right):
    return multiply(cut(left), cut(right))


def exact_products(left, right):
    fractions = [[[Fraction(value) for value in row] for row in side.tolist()] for side in (left, right)]
    sums = [[sum(a * b for a, b in zip(u, v, strict=True)) for v in fractions[1]] for u in fractions[0]]
    return np.array(sums, dtype=np.float64)


@pytest.mark.full
@given(seed=seeds, dim=dims)
def test_products_are_right_to_fourteen_digits_of_the_lengths(seed, dim):
    left, right = vectors(seed, dim, 3, 4)
    exact = exact_products(left, right)
    lengths = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    assert (np.abs(product(left, right) - exact) <= 2.0**-44 * lengths).all()


@pytest.mark.full
@given(seed=seeds, dim=dims)
def test_the_order_of_summation_changes_no_bit(seed, dim):
    """A kernel is an order of summation; so are the columns of the vectors."""
    left, right = vectors(seed, dim)
    here, there = cut(left), cut(right)
    order = np.random.default_rng(seed).permutation(dim)
    both = np.concatenate([order, dim + order])
    moved = [type(side)(parts=side.parts[:, both], whole=side.whole) for side in (here, there)]
    assert np.array_equal(multiply(here, there), multiply(*moved))
    assert np.array_equal(here.squared_lengths(), moved[0].squared_lengths())


@pytest.mark.full
@given(seed=seeds, dim=dims, queries=st.integers(1, 13), items=st.integers(1, 41))
def test_a_product_does_not_depend_on_what_stands_beside_it(seed, dim, queries, items):
    left, right = vectors(seed, dim)
    assert np.array_equal(product(left[:queries], right[:items]), product(left, right)[:queries, :items])


@pytest.mark.full
@given(seed=seeds, dim=dims)
def test_both_sums_are_whole_numbers_below_two_to_the_53(seed, dim):
    """What makes them exact, in the worst case: values that all have one size and one sign."""
    random = np.random.default_rng(seed)
    sides = [cut(np.abs(side)) for side in (*vectors(seed, dim), random.uniform(0.5, 1.0, (4, 1)) * np.ones(dim))]
    for left in sides:
        for right in sides:
            steps = np.outer(step(left.coarse), step(right.coarse))
            assert (np.abs(left.coarse) @ np.abs(right.coarse).T / steps <= 2.0**53).all()
            fine = np.abs(left.coarse) @ np.abs(right.fine).T + np.abs(left.fine) @ np.abs(right.coarse).T
            finest = 2.0 ** (math.ceil(math.log2(dim) / 2) - 26)
            assert (fine / (steps * finest) <= 2.0**53).all()


def step(coarse):
    """The largest power of two that all values of a row are multiples of, (n,); no smaller than the row's step."""
    mantissas, exponents = np.frexp(coarse)
    whole = (mantissas * 2.0**53).astype(np.int64)
    lowest = np.where(whole == 0, 2**31, exponents - 53 + np.log2((whole & -whole).clip(1)).astype(int))
    return 2.0 ** lowest.min(axis=1)


@pytest.mark.full
@pytest.mark.parametrize(
    "values",
    [
        np.arange(-3, 4)[:, None] * np.arange(1, 130),
        np.random.default_rng(0).standard_normal((30, 64)).astype(np.float16) / np.float16(16),
        np.random.default_rng(0).integers(-(2**20), 2**20, (5, 700)),
        np.random.default_rng(0).choice([-1, 1], (5, 2048)) * 2.0**-9,
    ],
    ids=["numbers", "halves", "large numbers", "codes"],
)
def test_whole_numbers_codes_and_halves_are_exact(values):
    vectors = values.astype(np.float64)
    assert cut(vectors).whole
    assert np.array_equal(product(vectors, vectors), exact_products(vectors, vectors))


@pytest.mark.full
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(0, 20))
def test_whole_numbers_need_no_search_for_steps(seed, dim, bits):
    numbers = np.random.default_rng(seed).integers(0, 2**bits + 1, (3, dim)).astype(np.float64)
    assert np.array_equal(cut_whole(numbers).parts, cut(numbers).parts)
    assert cut_whole(numbers).whole == cut(numbers).whole


def test_a_vector_is_no_distance_away_from_itself():
    left, _ = vectors(5, 127)
    slices = cut(left)
    assert np.array_equal(np.diag(multiply(slices, slices)), slices.squared_lengths())


@pytest.mark.parametrize("values", [[0.0, 0.0], [5e-324, 0.0], [1e-160, -1e-170]], ids=str)
def test_what_is_too_small_to_square_counts_as_zero(values):
    assert product(np.array([values]), np.array([[1e10, 1e10]])).tolist() == [[0.0]]


@pytest.mark.full
@pytest.mark.parametrize("threads", ["1", "2"])
def test_every_kernel_gives_the_same_bits(threads):
    """Each kernel in a process of its own; one that this processor cannot run ends its process by a signal."""
    digests = []
    for kernel in KERNELS:
        environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True)
        if done.returncode >= 0:
            assert not done.returncode, done.stderr
            digests.append(done.stdout)
    assert len(digests) >= 2
    assert len(set(digests)) == 1
