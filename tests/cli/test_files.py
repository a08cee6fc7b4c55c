"""What `add` reads comes in batches that hold every item once, in order."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given

from compatstore.cli.files import open_feeds
from compatstore.errors import NotFound
from properties import examples

ROWS = 23


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same 23 vectors in three kinds of files."""
    folder = tmp_path_factory.mktemp("vectors")
    ids, vectors = [f"i{n}" for n in range(ROWS)], np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    parquet.write_table(pa.table({"id": ids, "vector": list(vectors)}), folder / "v.parquet", row_group_size=5)
    np.savez(folder / "v.npz", ids=np.array(ids), vectors=vectors)
    np.save(folder / "v.npy", vectors)
    return folder


def column(batch, name):
    values = batch[name]
    return values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()


@pytest.mark.full
@given(st.sampled_from(["v.parquet", "v.npz", "v.npy"]), st.integers(1, ROWS + 5))
@examples(40)
def test_batches_hold_everything_once(files, name, size):
    (feed,) = open_feeds([str(files / name)], "string")
    batches = list(feed.read(size))
    ids = [item for batch in batches for item in column(batch, "id")]
    assert feed.rows == ROWS
    assert ids == [f"i{n}" if name != "v.npy" else str(n) for n in range(ROWS)]
    assert all(0 < len(column(batch, "vector")) <= size for batch in batches)
    np.testing.assert_array_equal([v for b in batches for v in column(b, "vector")], np.load(files / "v.npy"))


def test_a_folder_s_ids_are_relative_and_its_sources_absolute(pictures):
    (feed,) = open_feeds([str(pictures)], "string")
    (batch,) = feed.read(100)
    assert feed.rows == 13
    for item, source, label in zip(*(column(batch, name) for name in ("id", "source", "label")), strict=True):
        assert source == str(pictures / item)
        assert label == item.split("/")[0]


def test_images_without_class_folders_have_no_label(pictures):
    (feed,) = open_feeds([str(pictures / "class-1")], "string")
    (batch,) = feed.read(100)
    assert batch.column_names == ["id", "source"]


def test_images_named_one_by_one_are_one_feed(pictures):
    (feed,) = open_feeds([str(path) for path in sorted((pictures / "class-1").iterdir())], "string")
    (batch,) = feed.read(100)
    assert column(batch, "id") == sorted(path.name for path in (pictures / "class-1").iterdir())


def test_a_folder_without_images(tmp_path):
    with pytest.raises(NotFound):
        open_feeds([str(tmp_path)], "string")
