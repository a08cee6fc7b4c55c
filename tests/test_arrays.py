import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from compatstore.arrays import pack, signs, unpack

pytestmark = pytest.mark.full


@given(
    arrays(np.float32, st.tuples(st.integers(0, 5), st.sampled_from([8, 16, 128])), elements=st.floats(-2, 2, width=32))
)
def test_a_code_keeps_the_signs(values: np.ndarray) -> None:
    codes = pack(values)
    assert codes.shape == (len(values), values.shape[1] // 8)
    np.testing.assert_array_equal(unpack(codes), np.where(values > 0, 1, -1))
    np.testing.assert_array_equal(unpack(codes), signs(values))
    np.testing.assert_array_equal(pack(unpack(codes)), codes)
