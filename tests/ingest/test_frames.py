"""Frames of pandas and polars, and whatever else gives an Arrow stream, are items; rows come back as frames."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import compatstore as cs
from lazily import Lazy

pl = Lazy("polars")

V1 = cs.EmbeddingVersion("v1", dim=3, metric="l2")
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = ["a", "b", "c", "d"]
HALVES = (slice(0, 2), slice(2, 4))
TITLES = ["one", None, "Grüße", "<b>four</b>"]


@pytest.fixture
def gallery(tmp_path):
    return cs.Gallery.create(str(tmp_path / "g.lance"), V1)


def of_pandas(vectors):
    frame = {"id": IDS, "vector": vectors, "title": TITLES, "kind": pd.Categorical(["x", "y", "x", None])}
    return pd.DataFrame({**frame, "at": pd.to_datetime(["2026-01-02"] * 4), "number": [1, 2, 3, 4]})


def of_polars(vectors):
    frame = {
        "id": IDS,
        "vector": vectors,
        "title": TITLES,
        "kind": pl.Series(["x", "y", "x", None], dtype=pl.Categorical),
    }
    return pl.DataFrame({**frame, "tags": [["p"], [], None, ["q", "r"]], "number": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(lambda: of_pandas(list(VECTORS)), id="pandas, arrays"),
        pytest.param(lambda: of_pandas(VECTORS.tolist()), id="pandas, lists"),
        pytest.param(lambda: of_pandas(list(VECTORS)).set_index("id"), id="pandas, ids as the index"),
        pytest.param(lambda: of_pandas(list(VECTORS)).sort_values("number").iloc[[0, 1, 2, 3]], id="pandas, an index"),
        pytest.param(lambda: of_polars(VECTORS.tolist()), id="polars, lists"),
        pytest.param(lambda: of_polars(pl.Series(VECTORS, dtype=pl.Array(pl.Float32, 3))), id="polars, arrays"),
        pytest.param(lambda: of_polars(pl.Series(VECTORS.tolist(), dtype=pl.List(pl.Float64))), id="polars, doubles"),
        pytest.param(
            lambda: pl.concat([of_polars(VECTORS.tolist())[:2], of_polars(VECTORS.tolist())[2:]]), id="chunks"
        ),
        pytest.param(lambda: pa.RecordBatchReader.from_stream(of_polars(VECTORS.tolist())), id="a stream"),
    ],
)
def test_a_frame_is_added_as_a_table_is(gallery, frame):
    assert gallery.add(frame()).rows == 4
    assert gallery.vectors(IDS).tolist() == VECTORS.tolist()
    read = gallery.get(IDS, ["id", "title", "kind", "number"]).to_pydict()
    assert read == {"id": IDS, "title": TITLES, "kind": ["x", "y", "x", None], "number": [1, 2, 3, 4]}
    assert not [name for name in gallery.scan().schema.names if name.startswith("__")]
    assert gallery.maintenance.verify().clean


def test_a_column_of_a_frame_is_a_column(gallery):
    frame = of_polars(VECTORS.tolist())
    assert gallery.add({"id": frame["id"], "vector": frame["vector"], "title": frame["title"]}).rows == 4
    other = of_pandas(list(VECTORS))
    assert gallery.add({"id": other["id"] + "2", "vector": other["vector"], "title": other["title"]}).rows == 4


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_with_a_missing_or_a_short_vector_is_refused_whole(gallery, library):
    library = importlib.import_module(library)
    for vectors in ([[1.0, 2.0, 3.0], [1.0, 2.0]], [[1.0, 2.0, 3.0], [1.0, float("nan"), 2.0]]):
        with pytest.raises(cs.errors.InvalidInput):
            gallery.add(library.DataFrame({"id": ["a", "b"], "vector": vectors}))
    with pytest.raises(cs.errors.InvalidInput, match="repeated ids"):
        gallery.add(library.DataFrame({"id": ["a", "a"], "vector": [[1.0, 2.0, 3.0]] * 2}))
    assert len(gallery) == 0


def test_what_is_no_frame_is_refused_with_what_would_be(gallery):
    for wrong in (of_polars(VECTORS.tolist()).lazy(), object(), pl.Series([1])):
        with pytest.raises(cs.errors.InvalidInput, match="frame"):
            gallery.add(wrong)


@pytest.fixture
def filled(gallery):
    gallery.add(of_pandas(list(VECTORS)))
    return gallery


def test_rows_come_back_as_frames(filled):
    scan = filled.scan(["id", "number", "v1"], where="number > 1", limit=2)
    assert len(scan) == 2
    as_pandas, as_polars = scan.to_pandas(), scan.to_polars()
    assert as_pandas["id"].tolist() == as_polars["id"].to_list() == ["b", "c"]
    assert np.stack(as_pandas["v1"]).tolist() == as_polars["v1"].to_numpy().tolist() == VECTORS[1:3].tolist()
    assert pl.DataFrame(scan).equals(as_polars)
    assert pa.table(scan).to_pydict()["number"] == [2, 3]


def test_a_frame_that_came_out_goes_in_again(filled, tmp_path):
    copy = cs.Gallery.create(str(tmp_path / "copy.lance"), V1)
    names = ["id", "title", "kind", "number"]
    for frame in (filled.scan([*names, "v1"]), filled.scan([*names, "v1"]).to_polars()):
        assert copy.add(frame, upsert=True).rows == 4
    assert copy.get(IDS, names).to_pylist() == filled.get(IDS, names).to_pylist()
    assert copy.vectors(IDS).tolist() == filled.vectors(IDS).tolist()


def test_by_default_there_are_the_user_s_own_columns_and_all_rows(filled):
    assert filled.scan().schema.names == ["id", "source", "title", "kind", "at", "number"]
    assert filled.scan(limit=0).to_arrow().num_rows == 0
    assert filled.scan(where="number > 99").to_pandas().empty


def test_results_of_a_search_are_frames_too(filled):
    found = filled.search(VECTORS[0], k=2, columns=["id"])
    assert found.to_pandas()["id"].tolist() == pl.DataFrame(found)["id"].to_list() == ["a", "b"]


def test_a_scan_is_of_one_moment_and_reads_in_batches(filled):
    scan = filled.scan(["id"])
    filled.delete(["a"])
    assert scan.to_arrow()["id"].to_pylist() == IDS
    assert sum(batch.num_rows for batch in scan.batches()) == 4
    assert len(filled.scan()) == 3


@pytest.mark.parametrize(
    "wrong", [{"columns": ["nowhere"]}, {"where": "nowhere = 1"}, {"where": "1) OR (1"}, {"limit": -1}]
)
def test_what_cannot_be_scanned(filled, wrong):
    with pytest.raises(cs.errors.InvalidInput):
        filled.scan(**wrong)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named_with_its_extra(filled, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(cs.errors.MissingExtra, match=r'pip install "compatstore\[frames\]"'):
        getattr(filled.scan(), f"to_{library}")()
