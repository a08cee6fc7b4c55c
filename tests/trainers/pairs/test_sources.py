"""Pairs out of a gallery: versions, columns and files on either side, joined by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput, NotFound
from compatstore.trainers import Pairs
from compatstore.trainers.pairs.sources import from_gallery, labels_of, match_pairs

IDS = [f"item-{number}" for number in range(60)]
OLD = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
NEW = np.random.default_rng(1).normal(size=(60, 6)).astype(np.float32)
CLASSES = [number % 3 for number in range(60)]


@pytest.fixture
def gallery(tmp_path):
    """Sixty items in v1; every second one has a vector of an app's own in the column `other`; v2 has no vectors."""
    column = pa.array([row.tolist() if number % 2 else None for number, row in enumerate(NEW)], pa.list_(pa.float32()))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=4, metric="l2", model="one"))
    gallery.add(pa.table({"id": IDS, "vector": OLD.tolist(), "other": column, "class": CLASSES}))
    gallery.register(cs.EmbeddingVersion("v2", dim=6, metric="l2", model="two"))
    return gallery


def write(path, rows, **more):
    """A file of new vectors of some rows, in their order."""
    columns = {"id": np.array([IDS[row] for row in rows]), "vector": NEW[rows], **more}
    if path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        table = pa.table({name: pa.array(value.tolist()) for name, value in columns.items()})
        (pq.write_table if path.suffix == ".parquet" else feather.write_feather)(table, path)
    return path


def rows_of(pairs):
    return [IDS.index(item) for item in pairs.ids.tolist()]


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".feather"])
def test_a_version_and_a_file(gallery, tmp_path, suffix):
    file = write(tmp_path / f"new{suffix}", [9, 3, 40, 7])
    sides = from_gallery(gallery, "v1"), from_gallery(gallery, file, "v2")
    pairs, matched = match_pairs(*sides, labels=labels_of(gallery, "class"))
    assert sorted(rows_of(pairs)) == [3, 7, 9, 40]
    np.testing.assert_array_equal(pairs.source, OLD[rows_of(pairs)])
    np.testing.assert_array_equal(pairs.target, NEW[rows_of(pairs)])
    assert pairs.labels.tolist() == [CLASSES[row] for row in rows_of(pairs)]
    assert (pairs.source_version.name, pairs.target_version.name) == ("v1", "v2")
    assert matched == f"4 pairs, joined by id: 60 items of v1 (native), 4 of {file}"


def test_a_version_and_a_column_of_the_table(gallery):
    pairs = Pairs.from_gallery(gallery, "v1", "other")
    assert rows_of(pairs) == list(range(1, 60, 2))
    np.testing.assert_array_equal(pairs.source, OLD[1::2])
    np.testing.assert_array_equal(pairs.target, NEW[1::2])
    assert pairs.target_version is None


def test_a_file_and_a_column(gallery, tmp_path):
    pairs = Pairs.from_gallery(gallery, write(tmp_path / "old.npz", [5, 8, 1]), "other", source_version="v2")
    assert sorted(rows_of(pairs)) == [1, 5]
    np.testing.assert_array_equal(pairs.source, pairs.target)
    assert pairs.source_version.name == "v2"


def test_two_versions_are_paired_where_both_are_native(gallery):
    with pytest.raises(NotFound, match="v2"):
        Pairs.from_gallery(gallery, "v1", "v2")
    vectors = dict(zip(IDS, NEW, strict=True))
    encoder = cs.encoders.Precomputed({item: vectors[item] for item in IDS[:20]})
    gallery.register(cs.EmbeddingVersion("v3", dim=6, metric="l2", encoder=encoder))
    gallery.upgrade("v3", backfill=1.0)
    pairs = Pairs.from_gallery(gallery, "v1", "v3")
    assert rows_of(pairs) == list(range(20))
    np.testing.assert_array_equal(pairs.target, NEW[:20])


def test_labels_and_side_information_of_files(gallery, tmp_path):
    labels, side = np.arange(4), np.arange(8, dtype=np.float32).reshape(4, 2)
    file = write(tmp_path / "new.npz", [9, 3, 40, 7], label=labels, side=side)
    pairs = Pairs.from_gallery(gallery, "v1", file, side=write(tmp_path / "side.npz", list(range(59, -1, -1))))
    at = [[9, 3, 40, 7].index(row) for row in rows_of(pairs)]
    assert pairs.labels.tolist() == at
    np.testing.assert_array_equal(pairs.target_side, side[at])
    np.testing.assert_array_equal(pairs.side, NEW[rows_of(pairs)])


@pytest.mark.parametrize(
    ("source", "target", "error", "said"),
    [
        ("v1", "nowhere", NotFound, r"a version \(v1, v2\), a column of vectors \((vector|other)\) or a file"),
        ("v1", "class", InvalidInput, "lists of numbers"),
        ("v1", "numbers.npz", InvalidInput, "ids of one type, as item-0"),
        ("v1", "strangers.npz", InvalidInput, "none among 60 and 2"),
        ("v1", "bare.npz", InvalidInput, "a column or array `id`"),
        ("v1", "twice.npz", InvalidInput, "each id once"),
        ("v1", "ragged", InvalidInput, "one length"),
    ],
)
def test_what_cannot_be_paired_is_refused(tmp_path, gallery, monkeypatch, source, target, error, said):
    monkeypatch.chdir(tmp_path)
    np.savez("numbers.npz", id=np.arange(2), vector=NEW[:2])
    np.savez("strangers.npz", id=np.array(["x", "y"]), vector=NEW[:2])
    np.savez("bare.npz", vector=NEW[:2])
    np.savez("twice.npz", id=np.array([IDS[0]] * 2), vector=NEW[:2])
    if target == "ragged":
        new = {"id": ["a", "b"], "vector": OLD[:2].tolist(), "ragged": [[1.0], [1.0, 2.0]]}
        gallery.add(pa.table({**new, "class": [0, 0]}))
    with pytest.raises(error, match=said):
        Pairs.from_gallery(gallery, source, target)


def test_labels_that_are_missing_are_refused(gallery, tmp_path):
    gallery.add({"id": ["late"], "vector": OLD[:1]})
    np.savez(tmp_path / "late.npz", id=np.array(["late", IDS[0]]), vector=NEW[:2])
    with pytest.raises(InvalidInput, match="one for every pair; found 1 nulls"):
        Pairs.from_gallery(gallery, "v1", tmp_path / "late.npz", labels="class")
