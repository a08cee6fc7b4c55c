"""The order of items is that of a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compatstore.evaluation.ranking import nearest_first

FEW = st.sampled_from([0.0, -0.0, 0.5, 1.0, np.nextafter(1.0, 2.0), np.inf])
ANY = st.floats(allow_nan=True, width=64)


@pytest.mark.full
@given(arrays.arrays(np.float64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=FEW | ANY))
def test_of_equal_distances_the_earlier_item_is_first(distances):
    np.testing.assert_array_equal(nearest_first(distances), distances.argsort(axis=1, kind="stable"))


@pytest.mark.parametrize("n", [1, 63, 64, 1_000])
def test_rows_with_and_without_ties_beside_one_another(n):
    draw = np.random.default_rng(n)
    distances = draw.normal(size=(20, n))
    distances[::3] = draw.integers(0, 5, size=distances[::3].shape)
    np.testing.assert_array_equal(nearest_first(distances), distances.argsort(axis=1, kind="stable"))
