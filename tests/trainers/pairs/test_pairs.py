import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from compatstore.errors import InvalidInput
from compatstore.trainers import Pairs
from compatstore.versions import EmbeddingVersion
from lazily import Lazy

torch = Lazy("torch")

SOURCE = np.arange(12, dtype=np.float32).reshape(4, 3)
TARGET = np.arange(8, dtype=np.float32).reshape(4, 2)


def lists(matrix):
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def test_arrays_and_tensors_are_the_same_pairs():
    pairs = Pairs(SOURCE, torch.from_numpy(TARGET), side=SOURCE.astype(np.float64), labels=torch.tensor([1, 1, 2, 2]))
    assert len(pairs) == 4
    assert np.array_equal(pairs.target, TARGET)
    assert pairs.side.dtype == np.float32
    assert pairs.labels.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"target": TARGET[:3]}, "3"),
        ({"target": None}, "None"),
        ({"source": None}, "None"),
        ({"side": SOURCE[:1]}, "1"),
        ({"labels": [1, 2]}, "labels"),
        ({"labels": [[1], [2], [3], [4]]}, "labels"),
        ({"ids": ["a", "b", "c", "a"]}, "twice: a"),
        ({"target": np.full((4, 2), np.nan)}, "NaN or inf"),
        ({"head": np.ones((5, 3))}, "2 values; found 3"),
        ({"source_version": EmbeddingVersion("v1", dim=7)}, "7 values; found 3"),
        ({"source": SOURCE[:0], "target": TARGET[:0]}, "row"),
        ({"target_version": EmbeddingVersion("v2", dim=2, normalised=True)}, "unit"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        Pairs(**({"source": SOURCE, "target": TARGET} | wrong))


def test_spaces_come_from_the_versions_and_the_vectors():
    unit = SOURCE + 1
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    v1 = EmbeddingVersion("v1", dim=3, side_dim=2)
    head = np.ones((5, 2), np.float32)
    pairs = Pairs(unit, TARGET, side=TARGET, source_version=v1, target_version=EmbeddingVersion("v2", dim=2, head=head))
    assert pairs.source_space.fingerprint == v1.fingerprint
    assert pairs.source_space.normalised
    assert not pairs.target_space.normalised
    assert pairs.side_source.fingerprint == v1.side_fingerprint
    assert pairs.head is not None
    assert Pairs(unit, TARGET).source_space.fingerprint is None


@given(n=st.integers(2, 60), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_a_split_is_a_partition(n, fraction, seed):
    matrix = np.arange(n, dtype=np.float32)[:, None]
    pairs = Pairs(matrix, -matrix, ids=np.arange(n))
    kept, held_out = pairs.split(fraction, seed)
    assert len(kept) >= 1
    assert len(held_out) >= 1
    assert sorted([*kept.ids, *held_out.ids]) == list(range(n))
    assert np.array_equal(held_out.source, -held_out.target)
    assert np.array_equal(held_out.ids, pairs.split(fraction, seed)[1].ids)


def test_a_split_by_a_negative_seed_is_refused():
    with pytest.raises(InvalidInput, match="a seed from 0"):
        Pairs(SOURCE, TARGET).split(0.5, -1)


def test_a_split_by_class_keeps_classes_whole():
    pairs = Pairs(SOURCE, TARGET, labels=[5, 7, 7, 5])
    kept, held_out = pairs.split(0.5, 0, by="class")
    assert not set(kept.labels) & set(held_out.labels)
    with pytest.raises(InvalidInput, match="labels"):
        Pairs(SOURCE, TARGET).split(0.5, 0, by="class")
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        pairs.split(1.0, 0)
    with pytest.raises(InvalidInput, match="at least 2"):
        pairs.subset([0, 3]).split(0.5, 0, by="class")


def write(path, ids, matrix, **columns):
    columns = {"id": ids, "vector": matrix} | columns
    if path.suffix == ".npz":
        np.savez(path, **columns)
        return path
    table = pa.table({name: lists(c) if getattr(c, "ndim", 1) == 2 else c for name, c in columns.items()})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".feather", ".arrow"])
def test_files_are_joined_by_id(tmp_path, suffix):
    left = write(tmp_path / f"s{suffix}", ["d", "b", "a", "c"], SOURCE, side=TARGET, label=[4, 2, 1, 3])
    right = write(tmp_path / f"t{suffix}", ["a", "b", "c", "d"], TARGET, side=SOURCE)
    pairs = Pairs.load(left, right)
    assert pairs.ids.tolist() == ["d", "b", "a", "c"]
    assert np.array_equal(pairs.source, SOURCE)
    assert np.array_equal(pairs.target, TARGET[[3, 1, 0, 2]])
    assert np.array_equal(pairs.side, TARGET)
    assert np.array_equal(pairs.target_side, SOURCE[[3, 1, 0, 2]])
    assert pairs.labels.tolist() == [4, 2, 1, 3]


def test_bare_matrices_are_joined_by_position(tmp_path):
    np.save(tmp_path / "s.npy", SOURCE)
    np.save(tmp_path / "t.npy", TARGET[:3])
    with pytest.raises(InvalidInput, match="Give both files ids"):
        Pairs.load(tmp_path / "s.npy", tmp_path / "t.npy")
    np.save(tmp_path / "t.npy", TARGET)
    assert np.array_equal(Pairs.load(tmp_path / "s.npy", str(tmp_path / "t.npy")).target, TARGET)


def test_missing_ids_are_reported_and_dropped_only_when_asked(tmp_path):
    left = write(tmp_path / "s.parquet", [1, 2, 3, 4], SOURCE)
    right = write(tmp_path / "t.parquet", [2, 3, 4, 5], TARGET)
    with pytest.raises(InvalidInput, match=r"s\.parquet.*missing: 5"):
        Pairs.load(left, right)
    assert Pairs.load(left, right, missing="drop").ids.tolist() == [2, 3, 4]
    disjoint = write(tmp_path / "u.parquet", [6, 7, 8, 9], TARGET)
    with pytest.raises(InvalidInput, match="items that have both; found none among 4 and 4"):
        Pairs.load(left, disjoint, missing="drop")
    texts = write(tmp_path / "v.parquet", ["1", "2", "3", "4"], TARGET)
    with pytest.raises(InvalidInput, match="ids of one type"):
        Pairs.load(left, texts)
    twice = write(tmp_path / "w.parquet", [1, 1, 2, 3], TARGET)
    with pytest.raises(InvalidInput, match=r"w\.parquet"):
        Pairs.load(left, twice)


def test_files_that_cannot_be_used_are_named(tmp_path):
    good = write(tmp_path / "s.parquet", [1, 2, 3, 4], SOURCE)
    with pytest.raises(InvalidInput, match=r"gone\.npz"):
        Pairs.load(good, tmp_path / "gone.npz")
    with pytest.raises(InvalidInput, match=r"\.txt"):
        Pairs.load(tmp_path / "notes.txt", good)
    np.savez(tmp_path / "unnamed.npz", embedding=SOURCE)
    with pytest.raises(InvalidInput, match="a column 'vector'"):
        Pairs.load(good, tmp_path / "unnamed.npz")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInput, match=r"broken\.parquet"):
        Pairs.load(good, tmp_path / "broken.parquet")
    ragged = pa.table({"vector": [[1.0], [1.0, 2.0, 3.0]]})
    pq.write_table(ragged, tmp_path / "ragged.parquet")
    with pytest.raises(InvalidInput, match="2 lengths"):
        Pairs.load(good, tmp_path / "ragged.parquet")
    pq.write_table(pa.table({"vector": [[1.0], None]}), tmp_path / "nulls.parquet")
    with pytest.raises(InvalidInput, match="1 nulls"):
        Pairs.load(good, tmp_path / "nulls.parquet")
