"""One table, written and read by lancedb and by pylance, each of which embeds a Lance of its own."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from lazily import Lazy
from tiers import few

index = Lazy("lancedb.index")
lancedb = Lazy("lancedb")

V1 = cs.EmbeddingVersion("v1", dim=8, metric="l2")
V2 = cs.EmbeddingVersion("v2", dim=8, metric="l2", model="another", dtype="float16")


def items(start, count):
    matrix = np.random.default_rng(start).normal(size=(count, 8)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), 8)
    return pa.table({"id": [f"item-{i}" for i in range(start, start + count)], "embedding": vectors})


def by_pylance(folder):
    lance.write_dataset(items(0, 400), folder / "t.lance")


def by_pylance_with_stable_rows(folder):
    lance.write_dataset(items(0, 400), folder / "t.lance", enable_stable_row_ids=True)


def by_lancedb(folder):
    lancedb.connect(folder).create_table("t", items(0, 400))


def by_lancedb_with_indexes(folder):
    table = lancedb.connect(folder).create_table("t", items(0, 400))
    table.create_index("embedding", config=index.IvfPq(num_partitions=2, num_sub_vectors=2, max_iterations=2))
    table.create_index("id", config=index.BTree())


@pytest.mark.parametrize(
    "write", few(2, [by_pylance, by_pylance_with_stable_rows, by_lancedb, by_lancedb_with_indexes])
)
def test_one_table_is_written_and_read_by_both(tmp_path, linear, write):
    write(tmp_path)
    artifact = linear(V1, V2)
    gallery = cs.Gallery.adopt(f"{tmp_path}#t", V1, vector="embedding", id="id")
    gallery.register(V2)
    gallery.artifacts.link(artifact)
    gallery.upgrade("v2")

    table = lancedb.connect(tmp_path).open_table("t")
    table.add(items(400, 20))
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(items(395, 30))
    table.delete("id = 'item-3'")
    lance.dataset(tmp_path / "t.lance").delete("id = 'item-4'")
    lance.write_dataset(items(425, 5), tmp_path / "t.lance", mode="append")
    gallery.cutover("v2")

    ours = lance.dataset(tmp_path / "t.lance").to_table()
    theirs = lancedb.connect(tmp_path).open_table("t").to_arrow()
    assert ours.sort_by("id").equals(theirs.sort_by("id"))
    assert ours.num_rows == len(gallery) == 428
    source = np.array(theirs["embedding"].to_pylist(), np.float32)
    target = np.array(theirs["v2"].to_pylist(), np.float32)
    assert np.allclose(target[:, :8], artifact.apply(source).vectors, rtol=2e-3, atol=2e-3)
    assert not target[:, 8:].any(), "zeros behind, so that LanceDB keeps finding the app's own column"
    assert lancedb.connect(tmp_path).open_table("t").search(source[7]).limit(1).to_list()[0]["_distance"] == 0


def test_a_gallery_of_ours_is_a_lancedb_table(tmp_path, vectors):
    gallery = cs.Gallery.create(f"{tmp_path}#photos", V1)
    gallery.add({"id": ["a", "b", "c"], "vector": vectors(3, 8), "colour": ["red", "green", "blue"]})
    table = lancedb.connect(tmp_path).open_table("photos")
    assert table.search(vectors(3, 8)[1]).limit(1).to_list()[0]["colour"] == "green"
    table.add(pa.table({"id": ["d"], "colour": ["grey"], "v1": table.to_arrow()["v1"][:1]}))
    assert gallery.get(["d"], ["colour"]).column("colour").to_pylist() == ["grey"]
    assert len(cs.Gallery.open(table)) == 4


def test_a_dataset_of_pylance_is_no_lancedb_only_thing(tmp_path, vectors):
    gallery = cs.Gallery.create(str(tmp_path / "photos.lance"), V1)
    gallery.add({"id": ["a", "b", "c"], "vector": vectors(3, 8)})
    dataset = lance.dataset(tmp_path / "photos.lance")
    nearest = {"column": "v1", "q": vectors(3, 8)[2], "k": 1}
    assert dataset.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_pylist() == ["c"]
