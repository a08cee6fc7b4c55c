from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from compatstore.encoders import Precomputed, from_spec
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, SourceError

IDS = ["a", "b", "c"]
VECTORS = np.arange(6, dtype=np.float32).reshape(3, 2)


def write(path: Path, ids: list[str] = IDS, vectors: np.ndarray = VECTORS, *, fixed: bool = True) -> Path:
    kind = pa.list_(pa.float32(), vectors.shape[1]) if fixed else pa.list_(pa.float32())
    table = pa.table({"id": ids, "vector": pa.array(list(vectors), kind)})
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".npz":
        np.savez(path, id=np.array(ids), vector=vectors)
    else:
        pa.feather.write_feather(table, path)
    return path


@pytest.mark.parametrize("name", ["v.parquet", "v.arrow", "v.feather", "v.npz"])
def test_every_file_is_the_same_encoder_as_the_mapping(tmp_path: Path, name: str) -> None:
    mapping = Precomputed(dict(zip(IDS, VECTORS, strict=True)))
    path = write(tmp_path / name)
    encoder = from_spec(f"precomputed:{path}")
    assert encoder.encode(["c", "a", "c"]).tolist() == [[4, 5], [0, 1], [4, 5]]
    assert (encoder.fingerprint, encoder.dim, encoder.reads) == (mapping.fingerprint, 2, "id")
    assert from_spec(encoder.spec).fingerprint == encoder.fingerprint
    assert mapping.spec == ""


def test_variable_lists_and_plain_arrays_are_read(tmp_path: Path) -> None:
    assert Precomputed(write(tmp_path / "v.parquet", fixed=False)).dim == 2
    np.save(tmp_path / "v.npy", VECTORS)
    assert Precomputed(tmp_path / "v.npy").encode([2]).tolist() == [[4, 5]]


def test_fingerprint_changes_with_the_content_only() -> None:
    encoder = Precomputed({"a": [1, 2], "b": [3, 4]})
    assert encoder.fingerprint == Precomputed({"b": [3, 4], "a": [1, 2]}).fingerprint
    assert encoder.fingerprint != Precomputed({"a": [1, 2], "b": [3, 5]}).fingerprint
    assert encoder.fingerprint != Precomputed({"a": [1, 2], "c": [3, 4]}).fingerprint


def test_unknown_ids_are_failures() -> None:
    with pytest.raises(SourceError) as caught:
        Precomputed({"a": [1.0]}).encode(["a", "x", 7])
    assert caught.value.failures == {1: "no vector for id 'x'", 2: "no vector for id 7"}


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="found a"):
        Precomputed(write(tmp_path / "twice.parquet", ["a", "b", "a"]))
    with pytest.raises(InvalidInput, match="in b"):
        Precomputed({"a": [1.0], "b": [np.nan]})
    with pytest.raises(InvalidInput, match="one length"):
        Precomputed({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(InvalidInput, match="dim"):
        Precomputed({})


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for name in ("v.parquet", "v.arrow", "v.npz", "v.npy"):
        (tmp_path / name).write_bytes(b"PAR1 nonsense")
        with pytest.raises(CorruptArtifact, match=name):
            Precomputed(tmp_path / name)
    with pytest.raises(NotFound, match="nowhere"):
        Precomputed(tmp_path / "nowhere.parquet")
    with pytest.raises(InvalidInput, match=r"\.csv"):
        Precomputed(tmp_path / "v.csv")


def test_columns_can_be_named_and_a_missing_one_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "v.parquet")
    with pytest.raises(NotFound, match="embedding"):
        Precomputed(path, vector="embedding")
    pa.parquet.write_table(pa.parquet.read_table(path).rename_columns(["key", "embedding"]), path)
    named = Precomputed(path, id="key", vector="embedding")
    assert named.encode(["b"]).tolist() == [[2, 3]]
    assert named.spec == ""
