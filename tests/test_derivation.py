"""Derivations: what is computed of a vector, to the last bit, whatever computes it."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

import compatstore as cs
from compatstore.derivation import not_unit, rounded, scaled_to_unit
from compatstore.errors import InvalidInput

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
matrices = arrays(np.float32, st.tuples(st.integers(0, 6), st.integers(1, 40)), elements=finite)
DIGEST = """
import hashlib
import numpy as np
from compatstore.derivation import scaled_to_unit
vectors = np.random.default_rng(0).standard_normal((3000, 257)).astype(np.float32)
print(hashlib.sha256(scaled_to_unit(vectors).tobytes()).hexdigest())
"""


@pytest.mark.full
@given(matrices, st.integers(1, 40))
def test_scaled_vectors_are_the_quotients_that_exact_arithmetic_gives_to_a_rounding(values, dim):
    made = cs.Derivation(dim=min(dim, values.shape[1]), normalise=True).apply(values)
    for row, given_row in zip(made, values[:, : made.shape[1]], strict=True):
        length = math.sqrt(math.fsum(float(value) ** 2 for value in given_row))
        if length == 0:
            assert np.isnan(row).all()
            continue
        exact = given_row.astype(np.float64) / length
        assert (np.abs(row - exact) <= 0.5000001 * np.spacing(np.abs(row))).all()
        assert not not_unit(row[None])[0]


@pytest.mark.full
@given(matrices, st.integers(0, 5))
def test_a_row_is_the_same_whatever_rows_stand_beside_it(values, start):
    np.testing.assert_array_equal(scaled_to_unit(values)[start:], scaled_to_unit(values[start:].copy()))


def test_blocks_change_nothing():
    values = np.random.default_rng(0).standard_normal((500, 1000)).astype(np.float32)
    one_by_one = np.concatenate([scaled_to_unit(row[None]) for row in values])
    assert scaled_to_unit(values).tobytes() == one_by_one.tobytes()
    assert scaled_to_unit(np.asfortranarray(values)).tobytes() == one_by_one.tobytes()


@pytest.mark.full
@pytest.mark.parametrize("without", ["", "AVX512F AVX512CD AVX512_SKX", "AVX512F AVX512CD AVX512_SKX AVX2 FMA3"])
def test_every_processor_gives_the_same_bits(without):
    """NumPy as on a processor without these instructions; OpenBLAS has no part in it."""
    environment = os.environ | {"NPY_DISABLE_CPU_FEATURES": without, "OPENBLAS_CORETYPE": "Prescott"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", DIGEST], env=environment, capture_output=True)
    assert not done.returncode, done.stderr
    here = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, check=True)
    assert done.stdout == here.stdout


@pytest.mark.full
@given(matrices)
def test_what_was_stored_is_derived_as_what_is_about_to_be_stored(values):
    for dtype in ("float16", "bits"):
        step = cs.Derivation(dim=1, read_as=dtype)
        np.testing.assert_array_equal(step.apply(values), step.apply(rounded(values, dtype)))


def test_bits_keep_signs_and_no_value_that_is_not_finite():
    kept = rounded(np.array([[0.5, -0.0, 0.0, -3.0, np.nan, np.inf]], np.float32), "bits")
    np.testing.assert_array_equal(kept, [[1, -1, -1, -1, np.nan, np.inf]])


def test_steps_in_a_row_have_identities_of_their_own():
    first, second = cs.Derivation(dim=8), cs.Derivation(dim=8, normalise=True)
    identities = {"m", first.identity("m"), second.identity("m"), second.identity(first.identity("m"))}
    assert len(identities) == 4
    assert not cs.Derivation(dim=8).changes(8)
    assert all(step.changes(8) for step in (second, cs.Derivation(dim=4), cs.Derivation(dim=8, read_as="float16")))


@pytest.mark.parametrize("settings", [{"dim": 0}, {"dim": -1}, {"dim": 2, "read_as": "int8"}, {"dim": 2.5}])
def test_a_derivation_out_of_range_is_refused(settings):
    with pytest.raises(InvalidInput):
        cs.Derivation(**settings)


@pytest.mark.full
@given(arrays(np.float32, (3, 5), elements=st.floats(-1, 1, width=32)))
def test_lengths_that_are_not_one_are_told(values):
    lengths = np.linalg.norm(values.astype(np.float64), axis=1)
    told = not_unit(values)
    assert told[np.abs(lengths - 1) > 1.001e-4].all()
    assert not told[np.abs(lengths - 1) < 0.999e-4].any()
    assert not_unit(np.full((1, 5), np.nan, np.float32)).all()
