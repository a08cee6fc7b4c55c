import copy
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from compatstore.artifacts import Architecture, Artifact, Manifest, Space
from compatstore.errors import AlreadyExists, CorruptArtifact, InvalidInput, NotFound, StorageError
from lazily import Lazy

torch = Lazy("torch")


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return rng.normal(size=(50, 6)).astype(np.float32), rng.normal(size=(50, 3)).astype(np.float32)


@pytest.fixture
def stored(forward, tmp_path):
    forward.save(tmp_path / "h.compat")
    return tmp_path / "h.compat"


def edit(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


def test_a_stored_artifact_does_the_same(forward, stored, rows):
    loaded = Artifact.load(stored)
    assert (loaded.id, loaded.manifest) == (forward.id, Manifest.from_bytes(forward.to_bytes()[0]))
    for name in ("vectors", "uncertainty", "side"):
        assert np.array_equal(getattr(loaded.apply(*rows), name), getattr(forward.apply(*rows), name))


def test_what_comes_out(forward, rows):
    out = forward.apply(*rows)
    assert (out.vectors.shape, out.uncertainty.shape, out.side.shape) == ((50, 4), (50,), (50, 2))
    assert {out.vectors.dtype, out.uncertainty.dtype, out.side.dtype} == {np.dtype(np.float32)}
    np.testing.assert_allclose(np.linalg.norm(out.vectors, axis=1), 1, atol=1e-6)
    assert (out.uncertainty > 0).all()


@pytest.mark.parametrize("convert", ["tensors", "doubles", "lists"])
def test_torch_tensors_and_lists_are_accepted(forward, rows, convert):
    convert = {"tensors": torch.from_numpy, "doubles": np.float64, "lists": np.ndarray.tolist}[convert]
    assert np.array_equal(forward.apply(*map(convert, rows)).vectors, forward.apply(*rows).vectors)


def test_bfloat16_tensors_with_gradients_are_accepted(forward, rows):
    tensor = torch.from_numpy(rows[0]).bfloat16().requires_grad_()
    assert forward.apply(tensor, rows[1]).vectors.shape == (50, 4)


def test_input_that_cannot_be_used_is_refused(forward, rows):
    vectors, side = rows
    with pytest.raises(InvalidInput, match="expected vectors of 6 values; found 5"):
        forward.apply(vectors[:, :5], side)
    with pytest.raises(InvalidInput, match="side-information"):
        forward.apply(vectors, side[:, :2])
    with pytest.raises(InvalidInput, match="found none"):
        forward.apply(vectors)
    with pytest.raises(InvalidInput, match="50 rows"):
        forward.apply(vectors, side[:7])
    with pytest.raises(InvalidInput, match="one vector a row"):
        forward.apply(vectors[0], side)
    with pytest.raises(InvalidInput, match="expected numbers"):
        forward.apply(np.full((50, 6), "a"), side)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_are_not_finite_are_refused_and_named(forward, rows, value):
    vectors = rows[0].astype(np.float64)
    vectors[[7, 9], 2] = value
    with pytest.raises(InvalidInput, match="rows 7, 9"):
        forward.apply(vectors, rows[1])


def test_superfluous_side_information_is_refused():
    identity = Artifact.create("Identity", source=Space(dim=2), target=Space(dim=2))
    with pytest.raises(InvalidInput, match="made without"):
        identity.apply(np.ones((1, 2)), np.ones((1, 2)))


def written(file):
    """Which file it is and when it was written; when it was read changes by itself."""
    stat = file.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def test_saving_again_changes_nothing_and_another_is_refused(forward, stored):
    before = written(stored / "manifest.json")
    forward.save(stored)
    assert written(stored / "manifest.json") == before
    other = Artifact.create("Identity", source=Space(dim=2), target=Space(dim=2))
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        other.save(stored)
    other.save(stored, overwrite=True)
    assert Artifact.load(stored).id == other.id
    assert [entry.name for entry in stored.parent.iterdir()] == ["h.compat"]


def test_a_directory_of_something_else_is_never_replaced(forward, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExists, match="no artifact"):
        forward.save(tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(AlreadyExists, match="no artifact"):
        forward.save(tmp_path / "notes.txt", overwrite=True)


def test_a_missing_artifact_and_a_missing_file_are_told_apart(stored):
    (stored / "weights.safetensors").unlink()
    with pytest.raises(CorruptArtifact, match=r"weights\.safetensors"):
        Artifact.load(stored)
    shutil.rmtree(stored)
    with pytest.raises(NotFound, match="load artifact"):
        Artifact.load(stored)


def test_truncated_and_tampered_weights_are_refused(stored):
    weights = stored / "weights.safetensors"
    content = weights.read_bytes()
    for damaged in (content[:-10], b"", content[:-1] + bytes([content[-1] ^ 1])):
        weights.write_bytes(damaged)
        with pytest.raises(CorruptArtifact, match=r"weights\.safetensors; expected SHA-256"):
            Artifact.load(stored)


def test_an_edited_manifest_is_refused(stored):
    edit(stored, method="better")
    with pytest.raises(CorruptArtifact, match="it was edited"):
        Artifact.load(stored)


def test_an_unknown_format_and_broken_json_are_refused(stored):
    edit(stored, format=2)
    with pytest.raises(CorruptArtifact, match="expected format 1; found format 2"):
        Artifact.load(stored)
    for text in ("{", "[]"):
        (stored / "manifest.json").write_text(text)
        with pytest.raises(CorruptArtifact, match="JSON"):
            Artifact.load(stored)


def test_a_damaged_artifact_can_be_saved_over(forward, stored):
    (stored / "weights.safetensors").write_bytes(b"")
    with pytest.raises(AlreadyExists):
        forward.save(stored)
    forward.save(stored, overwrite=True)
    assert Artifact.load(stored).id == forward.id


def test_parts_that_do_not_fit_are_refused(architecture, tensors):
    spaces = {"source": Space(dim=6), "target": Space(dim=4)}
    with pytest.raises(CorruptArtifact, match="kind"):
        Artifact.create("Magic", **spaces)
    with pytest.raises(CorruptArtifact, match="networks"):
        Artifact.create("ForwardTransform", **spaces)
    with pytest.raises(CorruptArtifact, match=r"network h \(source, side, output\)"):
        Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=tensors)
    plain = Architecture(source_dim=6, output_dim=4)
    with pytest.raises(CorruptArtifact, match="no such tensor"):
        Artifact.create("ForwardTransform", **spaces, networks={"h": plain})
    with pytest.raises(CorruptArtifact, match="'x'"):
        Artifact.create("Identity", source=Space(dim=2), target=Space(dim=2), tensors={"x.weight": np.ones(1)})
    with pytest.raises(InvalidInput, match="JSON-able"):
        Artifact.create("Identity", source=Space(dim=2), target=Space(dim=2), figures={"recall": float("nan")})


def test_it_is_copied_through_its_bytes(forward, rows):
    again = copy.deepcopy(forward)
    assert again.id == forward.id
    assert np.array_equal(again.apply(*rows).vectors, forward.apply(*rows).vectors)


def test_the_manifest_says_who_made_it(forward):
    manifest = json.loads(forward.to_bytes()[0])
    assert manifest["id"] == forward.id
    assert forward.id.startswith(forward.short_id)
    assert len(forward.short_id) == 12
    assert {"numpy", "safetensors"} <= manifest["libraries"].keys()
    assert manifest["source"]["name"] == "v1"
    assert manifest["settings"] == {"widths": [8, 8]}
    assert manifest["created"].endswith("+00:00")


def test_loading_and_applying_needs_no_torch(stored):
    code = (
        "import sys, numpy as np\n"
        "from compatstore.artifacts import Artifact\n"
        f"Artifact.load({str(stored)!r}).apply(np.ones((2, 6)), np.ones((2, 3)))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_processes_that_save_the_same_artifact_all_succeed(forward, tmp_path):
    path = tmp_path / "deep" / "h.compat"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: forward.save(path), range(16)))
    assert Artifact.load(path).id == forward.id
    assert [entry.name for entry in path.parent.iterdir()] == ["h.compat"]


@pytest.mark.parametrize("rows", [0, 2**20 + 1, 2**63])
def test_a_batch_that_no_memory_holds_is_refused(forward, rows):
    with pytest.raises(InvalidInput, match="batch_size from 1 to 1048576"):
        forward.apply(np.zeros((2, 6)), np.zeros((2, 3)), batch_size=rows)


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_folder_without_a_name_is_no_place_for_an_artifact(forward, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AlreadyExists, match="Name a folder to make"):
        forward.save(path)


def test_a_path_that_no_file_system_takes_is_no_artifact():
    with pytest.raises(NotFound, match="expected a directory written by"):
        Artifact.load("x" * 5000)


@pytest.mark.parametrize("name", ["x" * 5000, f"{'x' * 256}.compat", "a file/h.compat"])
def test_a_place_that_cannot_be_written_is_refused(forward, tmp_path, name):
    (tmp_path / "a file").write_text("not a folder")
    with pytest.raises(StorageError, match=r"(?s)expected a place that can be written.*Choose another path"):
        forward.save(tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a file"]


def test_the_longest_name_that_a_file_system_takes_can_be_written(forward, tmp_path):
    path = tmp_path / ("é" * 124 + ".compat")
    assert len(path.name.encode()) == 255
    forward.save(path)
    assert Artifact.load(path).id == forward.id


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are of Unix")
def test_a_disk_that_is_full_leaves_nothing(forward, tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # more than that is too large for any file
    try:
        with pytest.raises(StorageError, match="make room there"):
            forward.save(tmp_path / "h.compat")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
