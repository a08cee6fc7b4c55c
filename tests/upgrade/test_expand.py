"""The target's columns beside an app's own: whatever lists the app has, its searches find what they found before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.columns import widths
from lazily import Lazy

lancedb = Lazy("lancedb", "lancedb.embeddings", "lancedb.pydantic")

ROWS, DIM = 300, 16
V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
KEYS = [f"photo-{number}" for number in range(ROWS)]


def matrix(dim, seed=0):
    return np.random.default_rng(seed).normal(size=(ROWS, dim)).astype(np.float32)


def lists(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def target(side_dim=None):
    encoder = cs.encoders.Precomputed(dict(zip(KEYS, matrix(DIM, 1), strict=True)))
    side = None if side_dim is None else cs.encoders.Precomputed(dict(zip(KEYS, matrix(side_dim, 2), strict=True)))
    return cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder, side_dim=side_dim, side_encoder=side)


def upgraded(table, version, linear):
    gallery = cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    gallery.register(version)
    gallery.artifacts.link(linear(V1, version))
    gallery.upgrade("v2", backfill=0.5)
    table.checkout_latest()
    return gallery


# The target has the first one's dimension, its padding would be the second, and that padded again the third.
OTHERS = {
    "a column as long as the padding makes it": {"thumbnail": 24},
    "one more": {"thumbnail": 24, "colours": 32},
}


@pytest.mark.full
@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("side_dim", [None, 5, 16, 24])
def test_no_list_of_ours_is_as_long_as_one_of_the_apps(tmp_path, linear, others, side_dim):
    embedding = matrix(DIM)
    own = {name: lists(matrix(dim, dim)) for name, dim in others.items()}
    nested = pa.StructArray.from_arrays([lists(matrix(40, 40))], ["shape"])
    table = lancedb.connect(tmp_path).create_table(
        "photos", pa.table({"key": KEYS, "embedding": lists(embedding), **own, "nested": nested})
    )
    before = sorted(widths(table.schema))
    gallery = upgraded(table, target(side_dim), linear)

    ours = [field for field in table.schema if field.name.startswith("v2")]
    assert not set(widths(ours)) & set(before)
    for dim in before:
        values = {DIM: embedding, 40: matrix(40, 40)}.get(dim, matrix(dim, dim))
        assert table.search(values[7]).limit(1).to_list()[0]["key"] == "photo-7"
    assert gallery.search(gallery.vectors(["photo-7"], "v2")[0], 1, version="v2").column("key").to_pylist() == [
        "photo-7"
    ]
    if side_dim is not None:
        kept = gallery.vectors(KEYS, "v2", side=True)
        native = ~np.isnan(kept).any(axis=1)
        assert native.sum() == ROWS // 2
        np.testing.assert_array_equal(kept[native], matrix(side_dim, 2)[native])
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_zeros_behind_side_information_are_verified(tmp_path, linear):
    table = lancedb.connect(tmp_path).create_table("photos", pa.table({"key": KEYS, "embedding": lists(matrix(DIM))}))
    gallery = upgraded(table, target(DIM), linear)
    table.update(where="v2__side IS NOT NULL", values={"v2__side": [1.0] * 24})
    (finding,) = gallery.maintenance.verify().findings
    assert "150 items" in str(finding)
    assert "other values than zeros behind" in str(finding)


def test_an_app_that_searches_by_text_is_told_to_name_its_column(tmp_path, linear):
    @lancedb.register("letters")
    class Letters(lancedb.TextEmbeddingFunction):
        """How often each of sixteen letters comes."""

        def generate_embeddings(self, texts):
            return [[float(text.count(letter)) for letter in "abcdefghijklmnop"] for text in texts]

        def ndims(self):
            return DIM

    letters = lancedb.get_registry().get("letters").create()

    class Photo(lancedb.LanceModel):
        key: str = letters.SourceField()
        embedding: lancedb.Vector(DIM) = letters.VectorField()

    table = lancedb.connect(tmp_path).create_table("photos", schema=Photo)
    table.add([{"key": key} for key in KEYS])
    named = cs.EmbeddingVersion("v1", dim=DIM, metric="l2", model="letters@1")  # else it is the table's own function
    gallery = cs.Gallery.adopt(table, named, vector="embedding", id="key")
    version = target()
    gallery.register(version)
    gallery.artifacts.link(linear(named, version))
    gallery.upgrade("v2")
    table.checkout_latest()
    found = table.search("photo").limit(3).to_list()
    assert [row["_distance"] for row in found] == [0.0] * 3
    table.add([{"key": "abba"}])
    assert gallery.upgrade("v2").missing == 0
