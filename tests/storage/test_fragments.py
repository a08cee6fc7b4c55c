"""Fragments are read one by one: no more rows than those of the fragments that were asked for."""

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import compatstore as cs
from compatstore.storage.fragments import list_fragments, read_physical
from compatstore.storage.moves import read_fragments


@pytest.fixture
def snapshot(tmp_path):
    """Three fragments of four rows, two of them deleted."""
    path = str(tmp_path / "t.lance")
    for start in (0, 4, 8):
        lance.write_dataset(pa.table({"n": np.arange(start, start + 4)}), path, mode="append")
    lance.dataset(path).delete("n = 1 OR n = 6")
    return lance.dataset(path)


@pytest.mark.parametrize(
    ("numbers", "rows"), [([0], [0, 2, 3]), ([1], [4, 5, 7]), ([0, 2], [0, 2, 3, 8, 9, 10, 11]), ([], [])]
)
def test_live_rows_are_those_of_the_named_fragments(snapshot, numbers, rows):
    found = list(read_fragments(snapshot, numbers, ["n"]))
    assert sorted(n for batch in found for n in batch["n"].to_pylist()) == rows
    assert {address >> 32 for batch in found for address in batch["_rowaddr"].to_pylist()} == set(numbers)


def test_physical_rows_are_all_of_one_fragment_and_deleted_ones_have_no_id(snapshot):
    batch = pa.Table.from_batches(list(read_physical(snapshot, list_fragments(snapshot)[1], ["n"])))
    assert batch["n"].to_pylist() == [4, 5, 6, 7]
    assert [row is None for row in batch["_rowid"].to_pylist()] == [False, False, True, False]


def test_vectors_lie_in_pages_that_lance_compares_fast(tmp_path):
    """Vectors of 36 MB in one page are searched in two to three times the time of pages of 4 MB."""
    path, rows, dim = tmp_path / "gallery.lance", 9_000, 1_024
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=dim, metric="l2"))
    vectors = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)

    def largest_page():
        """Bytes of the largest page of vectors, about, in each file."""
        files = [file for fragment in lance.dataset(str(path)).get_fragments() for file in fragment.data_files()]
        pages = [LanceFileReader(str(path / "data" / file.path)).metadata().columns for file in files]
        counts = [max(len(column.pages) for column in columns) for columns in pages]
        return [file.file_size_bytes / count for file, count in zip(files, counts, strict=True)]

    gallery.add({"id": [f"{row}" for row in range(rows)], "vector": vectors})
    assert max(largest_page()) < 8e6
    gallery.delete([f"{row}" for row in range(0, rows, 3)])
    gallery.maintenance.optimize()
    (merged,) = largest_page()
    assert merged < 10e6
    found = gallery.search(vectors[1], k=1)
    assert found["id"].to_pylist() == ["1"]
