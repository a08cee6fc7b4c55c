"""Indexes that product quantisation divides vectors for, whatever their length."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.storage.indexes import sub_vectors


@pytest.mark.parametrize(
    ("width", "at_least", "parts"), [(768, 48, 48), (776, 48, 97), (1544, 96, 193), (100, 12, 20), (7, 0, 1), (4, 9, 4)]
)
def test_parts_divide_the_vectors_and_are_no_fewer_than_asked_for(width, at_least, parts):
    assert sub_vectors(width, at_least) == parts


@pytest.mark.full
@pytest.mark.parametrize("dim", [5, 17, 36])
def test_vectors_of_any_length_can_be_indexed(tmp_path, vectors, dim):
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), cs.EmbeddingVersion("v1", dim=dim, metric="l2"))
    # Few distinct vectors, so that training is quick and quantisation exact.
    matrix = np.repeat(vectors(32, dim), 9, axis=0)
    gallery.add({"id": [str(number) for number in range(288)], "vector": matrix})
    index = gallery.maintenance.index().create(num_partitions=1)
    assert dim % index.sub_vectors == 0
    assert int(gallery.search(matrix[100], 1).column("id")[0].as_py()) // 9 == 100 // 9
