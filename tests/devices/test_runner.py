"""The runner upgrades files of vectors, as a module and as a program of its own, and refuses what it cannot use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from compatstore.devices import runner
from compatstore.devices.runner import DeviceModel, Unsuitable, upgrade_file
from exported import ARTIFACTS, DIM, NEXT, SIDE, TO, forward, plain, rows

ROWS = 700


def lists(values, kind=None):
    kind = kind or pa.float32()
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1), kind), values.shape[1])


def a_table(n=ROWS, **columns):
    made = {"id": [f"p{row}" for row in range(n)], "vector": lists(rows(n)), "caption": [f"é{row}" for row in range(n)]}
    return pa.table({**made, **columns})


def write(table, path):
    if path.suffix == ".lance":
        lance.write_dataset(table, str(path), max_rows_per_file=200)
    elif path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=150)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=150)
    return path


def read(path):
    if path.suffix == ".lance":
        return lance.dataset(str(path)).to_table()
    return parquet.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()


def values(column):
    column = column.combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    for name, artifact in {"plain": plain(), "forward": forward(), "query": ARTIFACTS["query adapter"]}.items():
        cs.export(artifact, home / f"{name}.onnx")
    return {path.stem: DeviceModel(path) for path in home.iterdir()}


@pytest.mark.parametrize("out", [".parquet", ".arrow", ".lance"])
@pytest.mark.parametrize("file", [".parquet", ".feather", ".lance"])
def test_a_file_is_upgraded_and_its_other_columns_stay(file, out, models, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "MOST_BATCH_ROWS", 512)
    table = a_table()
    done = upgrade_file(models["plain"], write(table, tmp_path / f"in{file}"), tmp_path / f"out{out}")
    assert (done.rows, done.empty, done.column) == (ROWS, 0, "vector")
    found = read(tmp_path / f"out{out}")
    assert found.column_names == table.column_names
    assert found.drop(["vector"]).equals(table.drop(["vector"]))
    np.testing.assert_allclose(values(found["vector"]), plain().apply(rows(ROWS)).vectors, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"in{file}", f"out{out}"]


def test_uncertainty_and_side_information_are_written_beside(models, tmp_path):
    side = rows(ROWS, SIDE, 2)
    file = write(a_table(vector__side=lists(side)), tmp_path / "in.parquet")
    upgrade_file(models["forward"], file, tmp_path / "out.parquet", into="v2")
    found, expected = read(tmp_path / "out.parquet"), forward().apply(rows(ROWS), side)
    assert found.column_names == ["id", "vector", "caption", "vector__side", "v2", "v2__uncertainty", "v2__side"]
    np.testing.assert_array_equal(values(found["vector"]), rows(ROWS))
    np.testing.assert_allclose(values(found["v2"]), expected.vectors, atol=1e-5)
    np.testing.assert_allclose(found["v2__uncertainty"].to_numpy(), expected.uncertainty, rtol=1e-5)
    np.testing.assert_allclose(values(found["v2__side"]), expected.side, atol=1e-5)
    # In place of the source: what was made with the source's vectors goes with them.
    upgrade_file(models["forward"], file, tmp_path / "same.parquet")
    assert read(tmp_path / "same.parquet")["vector__side"].type.list_size == NEXT


def test_bits_of_side_information_may_be_packed(tmp_path):
    artifact = ARTIFACTS["side-information as bits"]
    cs.export(artifact, tmp_path / "h.onnx")
    codes = np.random.default_rng(0).integers(0, 256, (ROWS, SIDE // 8), dtype=np.uint8)
    file = write(a_table(bits=lists(codes, pa.uint8())), tmp_path / "in.parquet")
    upgrade_file(DeviceModel(tmp_path / "h.onnx"), file, tmp_path / "out.parquet", side="bits")
    found = values(read(tmp_path / "out.parquet")["vector"])
    np.testing.assert_allclose(found, artifact.apply(rows(ROWS), codes).vectors, atol=1e-5)


def test_rows_without_a_vector_stay_without_one(models, tmp_path):
    some = pa.array(
        [None if row % 3 == 0 else each for row, each in enumerate(rows(90).tolist())], pa.list_(pa.float32(), DIM)
    )
    file = write(a_table(90, vector=some), tmp_path / "in.parquet")
    assert upgrade_file(models["plain"], file, tmp_path / "out.parquet").empty == 30
    found = read(tmp_path / "out.parquet")["vector"]
    assert [value is None for value in found.to_pylist()] == [row % 3 == 0 for row in range(90)]
    whole = plain().apply(rows(90)).vectors
    np.testing.assert_allclose(np.stack(found.drop_null().to_pylist()), whole[np.arange(90) % 3 != 0], atol=1e-5)


def test_no_rows_at_all(models, tmp_path):
    file = write(a_table(0), tmp_path / "in.parquet")
    assert upgrade_file(models["plain"], file, tmp_path / "out.parquet").rows == 0
    assert read(tmp_path / "out.parquet").schema.field("vector").type.list_size == TO


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float16(), DIM)])
def test_lists_of_other_types_are_read(kind, models, tmp_path):
    column = pa.array(list(rows(50).astype(np.float16)), pa.list_(pa.float16())).cast(pa.list_(pa.float32())).cast(kind)
    file = write(a_table(50, vector=column), tmp_path / "in.parquet")
    upgrade_file(models["plain"], file, tmp_path / "out.parquet")
    found = read(tmp_path / "out.parquet")["vector"]
    halves = kind.value_type == pa.float16()
    assert found.type == pa.list_(pa.float16() if halves else pa.float32(), TO)
    expected = plain().apply(rows(50).astype(np.float16)).vectors
    np.testing.assert_allclose(values(found), expected, rtol=2e-3 if halves else 1e-5, atol=2e-3 if halves else 1e-5)


def broken(row, value):
    made = rows(ROWS).copy()
    made[row, 3] = value
    return lists(made)


UNFIT = {
    "no such column": (lambda: a_table().rename_columns(["id", "embedding", "caption"]), "expected a column 'vector'"),
    "no lists": (lambda: a_table(vector=list(range(ROWS))), "lists of floating-point values"),
    "whole numbers": (lambda: a_table(vector=lists(np.ones((ROWS, DIM), np.int64), pa.int64())), "floating-point"),
    "another length": (lambda: a_table(vector=lists(rows(ROWS, DIM + 1))), "expected 12 values a row"),
    "other lengths": (lambda: a_table(2, vector=[[1.0] * DIM, [1.0] * 3]), "found 3 in row 1"),
    "a null within": (lambda: a_table(2, vector=[[1.0] * DIM, [None] + [1.0] * 11]), "null within"),
    "NaN": (lambda: a_table(vector=broken(600, np.nan)), "NaN or inf in row 600"),
    "inf": (lambda: a_table(vector=broken(3, np.inf)), "NaN or inf in row 3"),
    "beyond float32": (lambda: a_table(vector=pa.array([[1e300] * DIM] * ROWS)), "finite float32"),
    "beyond the type": (lambda: a_table(2, vector=lists(np.full((2, DIM), 6e4), pa.float16())), "not finite"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_vectors_that_do_not_fit_are_refused_and_nothing_is_left(name, models, tmp_path):
    make, said = UNFIT[name]
    file = write(make(), tmp_path / "in.parquet")
    before = file.read_bytes()
    with pytest.raises(Unsuitable, match=said):
        upgrade_file(models["plain"], file, tmp_path / "out.parquet")
    with pytest.raises(Unsuitable, match=said):
        upgrade_file(models["plain"], file, file, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    assert file.read_bytes() == before


def test_a_file_of_another_model_is_refused_and_one_that_is_done(models, tmp_path):
    side = {"vector__side": lists(rows(ROWS, SIDE, 2))}
    of_v1, of_v9 = (
        pa.field("vector", pa.list_(pa.float32(), DIM), metadata={"compatstore.fingerprint": f * 32}) for f in "19"
    )
    table = a_table(**side)
    for field, fits in ((of_v1, True), (of_v9, False)):
        schema = table.schema.set(1, field)
        file = write(table.cast(schema), tmp_path / f"{fits}.parquet")
        if fits:
            upgrade_file(models["forward"], file, tmp_path / "out.parquet")
        else:
            with pytest.raises(Unsuitable, match=f"fingerprint {'1' * 32}; found {'9' * 32}"):
                upgrade_file(models["forward"], file, tmp_path / "no.parquet")
    with pytest.raises(Unsuitable, match="2" * 32):
        upgrade_file(models["forward"], tmp_path / "out.parquet", tmp_path / "no.parquet")


def test_an_artifact_without_fingerprints_is_not_applied_twice(tmp_path):
    cs.export(plain(to=DIM), tmp_path / "h.onnx")
    model = DeviceModel(tmp_path / "h.onnx")
    file = write(a_table(), tmp_path / "in.parquet")
    upgrade_file(model, file, file, overwrite=True)
    np.testing.assert_allclose(values(read(file)["vector"]), plain(to=DIM).apply(rows(ROWS)).vectors, atol=1e-5)
    with pytest.raises(Unsuitable, match="nothing is left to do"):
        upgrade_file(model, file, file, overwrite=True)


def test_a_galleries_table_names_the_model_of_its_columns(tmp_path):
    v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2", model="phone-2024")
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), v1)
    gallery.add({"id": [f"p{n}" for n in range(60)], "vector": rows(60)})
    networks = {"networks": plain().manifest.networks, "tensors": plain().tensors}
    for name, source in (("own", Space.of(v1)), ("other", Space(dim=DIM, name="v1", fingerprint="9" * 32))):
        artifact = Artifact.create("ForwardTransform", source=source, target=Space(dim=TO), **networks)
        cs.export(artifact, tmp_path / f"{name}.onnx")
    place, before = tmp_path / "gallery.lance", len(gallery.maintenance.history())
    done = upgrade_file(DeviceModel(tmp_path / "own.onnx"), place, tmp_path / "out.parquet", vector="v1")
    assert done.rows == 60
    with pytest.raises(Unsuitable, match=f"found {v1.fingerprint} in 'v1'"):
        upgrade_file(DeviceModel(tmp_path / "other.onnx"), place, tmp_path / "no.parquet", vector="v1")
    assert len(gallery.maintenance.history()) == before


def test_lancedbs_word_about_a_column_goes_with_its_vectors(models, tmp_path):
    functions = [{"vector_column": column, "name": "f", "model": {}} for column in ("vector", "other")]
    table = a_table().replace_schema_metadata({"embedding_functions": json.dumps(functions), "kept": "yes"})
    upgrade_file(models["plain"], write(table, tmp_path / "in.parquet"), tmp_path / "out.parquet")
    metadata = parquet.read_schema(tmp_path / "out.parquet").metadata
    assert [each["vector_column"] for each in json.loads(metadata[b"embedding_functions"])] == ["other"]
    assert metadata[b"kept"] == b"yes"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"file": "none.parquet"}, "found nothing there"),
        ({"file": "in.csv"}, "a name that ends in"),
        ({"out": "there.parquet"}, "something is there"),
        ({"out": "there.lance", "overwrite": True}, "no Lance table"),
        ({"into": "caption"}, "is there already"),
        ({"model": "query"}, "acts on galleries"),
        ({"model": "forward"}, "side-information in column 'vector__side'"),
        ({"file": "damaged.parquet"}, "a readable file"),
        ({"file": "damaged.arrow"}, "a readable file"),
    ],
)
def test_what_cannot_be_done_is_refused(change, said, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(a_table(5), tmp_path / "in.parquet")
    for name in ("there.parquet", "in.csv", "damaged.parquet", "damaged.arrow"):
        Path(name).write_bytes(b"PAR1 something else PAR1")
    Path("there.lance").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    asked = {"file": "in.parquet", "out": "out.parquet", "model": "plain", **change}
    with pytest.raises(Unsuitable, match=said):
        upgrade_file(models[asked.pop("model")], **asked)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_lance_table_replaces_another_and_never_itself(models, tmp_path):
    file = write(a_table(), tmp_path / "in.lance")
    other = write(a_table(3), tmp_path / "out.lance")
    assert upgrade_file(models["plain"], file, other, overwrite=True).rows == ROWS
    assert read(other).num_rows == ROWS
    with pytest.raises(Unsuitable, match="not replaced by itself"):
        upgrade_file(models["plain"], file, file, overwrite=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"no model"), "expected an ONNX model"),
        (lambda path: None, "found none"),
    ],
)
def test_a_file_that_is_no_model_is_refused(make, said, tmp_path):
    make(tmp_path / "h.onnx")
    with pytest.raises(Unsuitable, match=said):
        DeviceModel(tmp_path / "h.onnx")


def test_a_model_of_another_program_or_a_later_format_is_refused(tmp_path):
    import onnx

    cs.export(plain(), tmp_path / "h.onnx")
    model = onnx.load(tmp_path / "h.onnx")
    model.metadata_props[0].value = json.dumps({"format": 2})
    onnx.save(model, tmp_path / "later.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(Unsuitable, match="expected format 1; found 2"):
        DeviceModel(tmp_path / "later.onnx")
    with pytest.raises(Unsuitable, match="found another"):
        DeviceModel(tmp_path / "other.onnx")


def test_what_is_applied_is_checked(models):
    for vectors, side, said in (
        (rows(3, DIM + 1), None, r"\(n, 12\) numbers"),
        (rows(3)[0], None, r"\(n, 12\) numbers"),
        (np.full((3, DIM), np.inf), None, "NaN or inf in row 0"),
        (rows(3).astype(str), None, "numbers"),
        (rows(3), rows(3, SIDE), "expected no values"),
    ):
        with pytest.raises(Unsuitable, match=said):
            models["plain"].apply(vectors, side)
    for side in (None, rows(4, SIDE), rows(3, SIDE + 1)):
        with pytest.raises(Unsuitable, match="side-information"):
            models["forward"].apply(rows(3), side)


BLOCKED = """
import sys
for name in ("torch", "lance", "lancedb", "click", "rich", "safetensors", "threadpoolctl", "onnx"):
    sys.modules[name] = None
import runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start(*words, blocked=True):
    before = ["-c", BLOCKED] if blocked else []
    return subprocess.run([sys.executable, "-I", *before, *map(str, words)], capture_output=True, text=True)


@pytest.mark.full
def test_the_copied_program_gives_the_gallerys_own_vectors_without_torch_and_lancedb(tmp_path):
    """What a gallery's own hop stores, and what the copied runner writes, agree to 1e-5."""
    v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2", model="a")
    v2 = cs.EmbeddingVersion("v2", dim=TO, metric="l2", model="b")
    made = plain(mixer=(40,))
    h = Artifact.create(
        "ForwardTransform",
        source=Space.of(v1),
        target=Space.of(v2),
        networks=made.manifest.networks,
        tensors=made.tensors,
    )
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), v1)
    ids = [f"p{row}" for row in range(ROWS)]
    gallery.add({"id": ids, "vector": rows(ROWS)})
    gallery.register(v2)
    gallery.artifacts.link(h)
    gallery.upgrade("v2")

    cs.export(h, tmp_path / "h.onnx", runner=tmp_path / "apart" / "up.py")
    file = write(a_table(), tmp_path / "in.parquet")
    done = start(tmp_path / "apart" / "up.py", tmp_path / "h.onnx", file, tmp_path / "out.parquet")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "out": str(tmp_path / "out.parquet"), "rows": ROWS, "empty": 0, "column": "vector", "version": "v2",
    }  # fmt: skip
    np.testing.assert_allclose(
        values(read(tmp_path / "out.parquet")["vector"]), gallery.vectors(ids, "v2"), rtol=1e-5, atol=1e-5
    )


@pytest.mark.full
def test_the_program_says_what_it_refuses_and_ends_with_2(tmp_path):
    cs.export(plain(), tmp_path / "h.onnx")
    odd = "ve\x1b[2Jctor"
    file = write(a_table().rename_columns(["id", odd, "caption"]), tmp_path / "in.parquet")
    refused = start(runner.__file__, tmp_path / "h.onnx", file, tmp_path / "out.parquet")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("Error: upgrade ")
    assert "\x1b" not in refused.stderr
    assert start(runner.__file__, tmp_path / "h.onnx", file, tmp_path / "o.parquet", "--vector", odd).returncode == 0
    lance_file = start(runner.__file__, tmp_path / "h.onnx", tmp_path / "o.parquet", tmp_path / "o.lance")
    assert lance_file.returncode == 2


def test_a_lance_table_without_pylance_names_what_to_install(tmp_path):
    cs.export(plain(), tmp_path / "h.onnx")
    write(a_table(), tmp_path / "in.lance")
    refused = start(runner.__file__, tmp_path / "h.onnx", tmp_path / "in.lance", tmp_path / "out.parquet")
    assert "pip install pylance" in refused.stderr


def test_importing_the_runner_loads_only_what_a_device_has():
    program = (
        "import compatstore.devices.runner, sys\n"
        "print(*sorted(name for name in sys.modules if name.startswith('compatstore')))\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    own, loaded = said.splitlines()
    lazy = ["compatstore.exports", "compatstore.former"]  # of the package itself
    assert own.split() == ["compatstore", "compatstore.devices", "compatstore.devices.runner", *lazy]
    assert not set(loaded.split()) & {
        "torch",
        "lance",
        "lancedb",
        "click",
        "rich",
        "safetensors",
        "onnx",
        "threadpoolctl",
    }


@pytest.mark.slow
def test_a_fresh_environment_of_three_packages_upgrades_a_file(tmp_path):
    """Needs a package index, or a cache of one: pip installs onnxruntime, numpy and pyarrow and nothing else."""
    place = tmp_path / "device"
    python = place / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "onnxruntime", "numpy", "pyarrow"], check=True)
    cs.export(forward(), tmp_path / "h.onnx", runner=place / "up.py")
    side = rows(ROWS, SIDE, 2)
    write(a_table(vector__side=lists(side)), place / "in.parquet")
    alone = {"PATH": os.environ["PATH"]}
    subprocess.run(
        [python, "up.py", tmp_path / "h.onnx", "in.parquet", "out.parquet"], cwd=place, env=alone, check=True
    )
    found = read(place / "out.parquet")
    np.testing.assert_allclose(values(found["vector"]), forward().apply(rows(ROWS), side).vectors, rtol=1e-5, atol=1e-5)
    lacking = (
        subprocess.run([python, "-c", "import torch"], capture_output=True),
        subprocess.run([python, "-c", "import lancedb"], capture_output=True),
    )
    assert all(b"ModuleNotFoundError" in each.stderr for each in lacking)
    shutil.rmtree(place)
