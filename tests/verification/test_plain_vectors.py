"""The doctor on what is no gallery yet: flaws of its vectors, what an adoption would do, and nothing written."""

from __future__ import annotations

import json
import os
import shlex
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore import next_step
from compatstore.cli.app import app
from compatstore.errors import InvalidInput
from compatstore.verification import doctor, plain_vectors
from compatstore.verification.plain_vectors import VectorTally
from digits import load_digits
from lazily import Lazy

index = Lazy("lancedb.index")
lancedb = Lazy("lancedb")

PIXELS = load_digits().data[:900].astype(np.float32)
# Too few to be searched for two models, which takes seconds.
FEW = PIXELS[:400]


def lists(vectors, kind=None):
    vectors = np.asarray(vectors)
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1), kind or pa.float32()), vectors.shape[1])


def a_table(vectors=PIXELS, **columns):
    n = len(vectors)
    days = [datetime(2024, 1, 1) + timedelta(days=row) for row in range(n)]
    made = {"key": [f"p{row}" for row in range(n)], "embedding": lists(vectors), "created": days}
    return pa.table({**made, **columns})


def adoptable(folder, table):
    return lancedb.connect(folder).create_table("photos", table)


def look(what, **named):
    return {d.topic: d for d in doctor(what, **named).diagnoses}


def contents(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.full
def test_a_table_is_looked_at_and_not_a_byte_is_written(tmp_path):
    table = adoptable(tmp_path, a_table(path=[f"{row}.jpg" if row % 9 else None for row in range(900)]))
    table.create_index("key", config=index.BTree())
    before, version = contents(tmp_path), table.version
    found = look(f"{tmp_path}#photos", source="path")
    assert contents(tmp_path) == before
    table.checkout_latest()
    assert table.version == version
    assert found["vectors"].what.endswith("900 rows, no gallery yet; columns of vectors: embedding (64)")
    assert (found["sources"].level, found["sources"].what) == ("warning", "100 of 900 rows have no path")
    assert found["two models"].what == "no sign of them in 900 distinct vectors"
    assert "key_idx on key" in found["adoption"].what
    assert "writing" not in found
    assert [topic for topic, d in found.items() if d.level == "problem"] == []


@pytest.mark.full
def test_the_command_that_it_names_adopts(tmp_path):
    adoptable(tmp_path, a_table(FEW))
    with next_step.speaking_shell():
        command = look(f"{tmp_path}#photos")["adoption"].fix.removeprefix("Run: compatstore ")
    assert CliRunner().invoke(app, shlex.split(command)).exit_code == 0
    assert len(cs.Gallery.open(f"{tmp_path}#photos")) == 400
    assert "gallery" in look(f"{tmp_path}#photos")


@pytest.mark.full
def test_the_call_that_it_names_adopts(tmp_path):
    adoptable(tmp_path, a_table(FEW))
    assert len(eval(look(f"{tmp_path}#photos")["adoption"].fix.removeprefix("Run: "), {"cs": cs})) == 400


@pytest.mark.full
def test_a_table_that_cannot_be_adopted_says_why_as_adopt_does(tmp_path):
    adoptable(tmp_path, a_table(FEW, key=["same"] * 400))
    found = look(f"{tmp_path}#photos")["adoption"]
    assert (found.level, "repeated ids same" in found.what) == ("problem", True)
    assert doctor(f"{tmp_path}#photos").fit is False
    other = look(f"{tmp_path}#photos", id="created")["adoption"]
    assert "text or whole numbers" in other.what


def write(table, vectors, suffix, folder):
    path = folder / f"in{suffix}"
    if suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=100)
    elif suffix in (".arrow", ".feather"):
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif suffix == ".npz":
        np.savez(path, ids=np.array(table["key"].to_pylist()), vectors=vectors)
    else:
        np.save(path, vectors)
    return path


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".npz", ".npy"])
def test_flaws_are_counted_in_files_of_all_kinds(suffix, tmp_path):
    vectors = FEW.copy()
    vectors[5], vectors[17, 3], vectors[380, 0] = 0, np.nan, np.inf
    vectors[300:340] = vectors[1]
    path = write(a_table(vectors), vectors, suffix, tmp_path)
    before = path.read_bytes()
    found = look(path)
    assert found["zero vectors"].what == "1 rows are zero, the first at row 5"
    assert found["not finite"].what.endswith("the first at row 17, 380")
    assert (found["repeated vectors"].level, "40 rows" in found["repeated vectors"].what) == ("warning", True)
    assert "0 of 397 vectors have it" in found["unit length"].what
    assert "cs.Gallery.create(" in found["adoption"].fix
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.full
def test_arrays_and_tables_in_memory():
    unit = FEW / np.linalg.norm(FEW, axis=1, keepdims=True)
    assert look(unit)["unit length"].what == "all vectors have it"
    half = np.where(np.arange(400)[:, None] < 200, unit, FEW)
    assert look({"id": np.arange(400), "vector": half})["unit length"].level == "warning"
    assert look(a_table(unit))["unit length"].level == "ok"
    assert look(np.ones((0, 3), np.float32))["zero vectors"].what == "none"


@pytest.mark.full
def test_rows_of_other_lengths_and_without_a_vector():
    values = [[1.0, 2.0, 3.0]] * 700 + [[1.0, 2.0]] * 20 + [None] * 3 + [[1.0, None, 2.0]]
    found = look(pa.table({"id": list(range(724)), "v": pa.array(values, pa.list_(pa.float32()))}))
    assert (found["lengths"].level, found["lengths"].what) == ("problem", "v: 701 of 3 values, 20 of 2 values")
    assert found["missing vectors"].what == "3 rows have none"
    assert found["not finite"].what == "1 rows hold NaN, infinite or missing values, the first at row 723"


@pytest.mark.full
def test_each_of_several_columns_is_looked_at_or_the_one_that_is_named():
    table = a_table(FEW, short=lists(FEW[:, :8]))
    assert {"zero vectors of embedding", "zero vectors of short"} <= look(table).keys()
    assert "zero vectors" in look(table, vector="short")


def mixed(rows):
    draw = np.random.default_rng(5)
    other = np.maximum(PIXELS / 16 @ draw.normal(size=(64, 64)) / 8 + 0.1, 0) @ draw.normal(size=(64, 64))
    chosen = np.zeros(900, bool)
    chosen[rows] = True
    return np.where(chosen[:, None], other, PIXELS).astype(np.float32)


@pytest.mark.full
def test_two_models_are_a_problem(tmp_path):
    table = a_table(mixed(range(600, 700))).take(pa.array(np.random.default_rng(0).permutation(900)))
    adoptable(tmp_path, table)
    result = CliRunner().invoke(app, ["doctor", f"{tmp_path}#photos", "--json"])
    assert result.exit_code == 9
    found = {d["topic"]: d for d in json.loads(result.stdout)["diagnoses"]}["two models"]
    assert found["level"] == "problem"
    assert "such as key p" in found["what"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"vector": "none"}, "vector=... of key, embedding, created; found 'none'"),
        ({"vector": "key"}, "lists of numbers"),
    ],
)
def test_a_column_that_is_not_there_is_refused(named, said):
    with pytest.raises(InvalidInput, match=said):
        doctor(a_table(FEW), **named)


@pytest.mark.full
def test_what_cannot_be_read_is_refused_by_name(tmp_path):
    for name in ("a.parquet", "a.arrow", "a.npz", "a.npy"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        result = CliRunner().invoke(app, ["doctor", str(tmp_path / name)])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "readable file" in result.stderr
    np.savez(tmp_path / "b.npz", vectors=np.ones((3, 2)), ids=np.arange(4))
    with pytest.raises(InvalidInput, match="arrays of equal length"):
        doctor(tmp_path / "b.npz")


@pytest.mark.full
def test_options_that_name_columns_are_refused_for_a_gallery(tmp_path):
    version = cs.EmbeddingVersion("v1", dim=2)
    cs.Gallery.create(str(tmp_path / "gallery.lance"), version)
    with pytest.raises(InvalidInput, match="no gallery yet"):
        doctor(tmp_path / "gallery.lance", vector="v1")


@pytest.mark.full
def test_a_table_without_vectors_is_a_problem():
    found = look(pa.table({"id": [1, 2]}))["vectors"]
    assert (found.level, "vector=..." in found.fix) == ("problem", True)


def test_repeats_among_many_rows_are_estimated_from_a_share_of_the_digests(monkeypatch):
    monkeypatch.setattr(plain_vectors, "MOST_DIGESTS", 20_000)
    tally = VectorTally(sampled=np.zeros(0, np.int64))
    draw, n = np.random.default_rng(0), 20_000
    repeated = draw.normal(size=(n, 8)).astype(np.float32)
    for _ in range(2):
        tally.add(lists(repeated))
    for _ in range(4):
        tally.add(lists(draw.normal(size=(n, 8)).astype(np.float32)))
    assert tally.kept > 1
    assert tally.repeats == pytest.approx(n, rel=0.05)


def test_progress_says_what_is_read_and_how_far(tmp_path):
    adoptable(tmp_path, a_table(path=[f"{row}.jpg" for row in range(900)]))
    told = []
    doctor(f"{tmp_path}#photos", id="key", source="path", progress=told.append)
    steps = list(dict.fromkeys(progress.step for progress in told))
    assert steps == ["environment", "read embedding, key", "two models", "read path"]
    for step in steps:
        done = [progress.done for progress in told if progress.step == step]
        last = next(progress for progress in reversed(told) if progress.step == step)
        assert done == sorted(done)
        assert (done[0], last.done) == (0, last.total)
    assert {progress.total for progress in told if progress.step.startswith("read")} == {900}


@pytest.mark.full
def test_the_command_line_shows_progress(tmp_path):
    adoptable(tmp_path, a_table())
    result = CliRunner().invoke(app, ["doctor", f"{tmp_path}#photos"])
    assert "environment: 0 of 5" in result.stderr
    assert "read embedding, key: 0 of 900" in result.stderr
    assert "two models: " in result.stderr
