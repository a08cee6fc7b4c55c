"""Predicted errors: the histogram is of all transformed vectors, and the tenths hold predictions against the truth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from compatstore.storage.columns import NATIVE, VersionValues
from compatstore.upgrade.estimates.details import reliability_of
from compatstore.upgrade.estimates.sample import Sample

N, DIM = 200, 16


def sample(sigma2, errors, *, embedded=None, native=()):
    """Items whose squared distances for each dimension are `errors`."""
    natives = np.zeros((N, DIM), np.float32)
    served = VersionValues.absent(N, DIM)
    served.vectors[:] = np.sqrt(errors)[:, None]
    served.valid[:] = True
    served.uncertainty[:] = sigma2
    served.origin[:] = "abc"
    served.origin[list(native)] = NATIVE
    there = np.ones(N, bool) if embedded is None else embedded
    return Sample(
        ids=pa.array(range(N)), places=np.arange(N), source=served, served=served, native=natives, embedded=there,
        asks=there, classes=None, population=N, provenance="",
    )  # fmt: skip


def test_predictions_that_come_true_lie_on_the_line():
    sigma2 = np.linspace(0.1, 2.0, N)
    bins, tau = reliability_of(sample(sigma2, sigma2))
    assert [found.items for found in bins] == [20] * 10
    assert [found.actual for found in bins] == pytest.approx([found.predicted for found in bins], rel=1e-5)
    assert tau == pytest.approx(1.0)


def test_only_transformed_items_with_a_native_vector_count():
    sigma2 = np.linspace(0.1, 2.0, N)
    embedded = np.arange(N) < 150
    bins, _ = reliability_of(sample(sigma2, sigma2, embedded=embedded, native=range(100)))
    assert sum(found.items for found in bins) == 50
    assert reliability_of(sample(sigma2, sigma2, embedded=np.arange(N) < 10)) == ((), None)


def test_errors_that_are_all_the_same_have_no_order():
    bins, tau = reliability_of(sample(np.full(N, 0.5), np.full(N, 0.25)))
    assert (len(bins), tau) == (10, None)
