from __future__ import annotations

import numpy as np

from digits import load_digits


def test_the_digits_are_those_that_scikit_learn_gives():
    from sklearn import datasets

    expected = datasets.load_digits()
    for name in ("data", "target", "images"):
        own, theirs = getattr(load_digits(), name), expected[name]
        assert own.dtype == theirs.dtype
        np.testing.assert_array_equal(own, theirs)
