"""Who may read a gallery is what the umask says, and a permission error is told as one: path, mode and owner."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from confined import run_confined
from galleries import SOURCE, artifact, items
from states import IDS, encoder_file, open_with_encoder

QUERY = """
import json, os, sys
import numpy as np
import compatstore as cs
path, uid = sys.argv[1], int(sys.argv[2])
warm = cs.Gallery.open(sys.argv[3])  # what is loaded late may lie where the other user cannot read
warm.search(np.ones(24, np.float32), k=1), warm.maintenance.verify(), warm.status()
cs.encoders.Precomputed(sys.argv[3] + "/v2.npz")
if uid:
    os.setgroups([]), os.setgid(uid), os.setuid(uid)
told = {}
for verb, call in {
    "open": lambda gallery: None,
    "search": lambda gallery: gallery.search(np.ones(24, np.float32), k=3, version="v1"),
    "status": lambda gallery: gallery.status(),
    "history": lambda gallery: gallery.maintenance.history(),
    "verify": lambda gallery: gallery.maintenance.verify(),
    "artifact": lambda gallery: gallery._catalog.artifact(gallery.artifacts[0].id),
    "load": lambda gallery: cs.Artifact.load(path + "/h.compat"),
    "vectors": lambda gallery: cs.encoders.Precomputed(path + "/v2.npz"),
}.items():
    try:
        answer = call(cs.Gallery.open(path))
        told[verb] = [f.what + f.repair for f in answer.findings] if verb == "verify" else None
    except cs.CompatStoreError as error:
        told[verb] = error.to_dict()
print(json.dumps(told))
"""


def ask(path, warm, uid=0):
    """By verb, the error that a reader gets, or None; of verify what was found."""
    done = run_confined(QUERY, words=(path, uid, warm))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def ready(at):
    """A gallery whose upgrade is ready, with an artifact and an encoder's vectors in its folder."""
    path = at("ready")
    gallery = open_with_encoder(path)
    gallery._catalog.artifact(gallery.artifacts[0].id).save(Path(path, "h.compat"))
    encoder_file(Path(path))
    return path


@pytest.fixture
def warm(ready, tmp_path):
    """The same, to be left as it is."""
    return shutil.copytree(ready, tmp_path / "warm.lance")


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_files_beside_the_table_follow_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        gallery = cs.Gallery.create(str(tmp_path / "g.lance"), SOURCE)
        gallery.add(items(0, 60))
        head = np.eye(3, 40, dtype=np.float32)
        encoder = cs.encoders.Precomputed(dict(zip(IDS, np.random.default_rng(0).normal(size=(240, 40)), strict=True)))
        version = cs.EmbeddingVersion("v2", dim=40, metric="cosine", encoder=encoder, head=head)
        gallery.register(version)
        gallery.artifacts.link(artifact(SOURCE, version))
        gallery.upgrade("v2", backfill=0.5)
    finally:
        os.umask(before)
    beside = [path for path in (tmp_path / "g.lance" / "_compatstore").rglob("*") if path.is_file()]
    assert {"ledger-v2-1.arrow"} < {path.name for path in beside}
    assert {stat.S_IMODE(path.stat().st_mode) for path in beside} == {0o666 & ~umask}


@pytest.mark.full
@pytest.mark.parametrize(
    ("pattern", "verb"),
    [
        ("_compatstore/" + "?" * 64, "artifact"),
        ("_compatstore/ledger-v2-*.arrow", "status"),
        ("_compatstore/leases.lance/_versions/*", "status"),
        ("_versions/*", "open"),
        ("data/*", "search"),
        ("h.compat/*", "load"),
        ("v2.npz", "vectors"),
    ],
)
def test_a_file_that_may_not_be_read_is_named_with_mode_and_owner(ready, warm, pattern, verb):
    files = sorted(Path(ready).glob(pattern))
    for file in files:
        file.chmod(0)
    told = ask(ready, warm)
    error = told[verb]
    assert error["error"] == "StorageError", told
    assert "Permission denied" in error["found"]
    assert any(f"{file} has mode 0000, owner {getpass.getuser()}" in error["found"] for file in files), error["found"]
    assert all(
        isinstance(answer, list) or answer is None or answer["error"] == "StorageError" for answer in told.values()
    )
    if "compatstore/" in pattern:
        assert any("mode 0000" in finding for finding in told["verify"]), told["verify"]
    if pattern.startswith("data"):
        assert not any("cut short" in finding for finding in told["verify"]), told["verify"]


@pytest.mark.full
@pytest.mark.parametrize("folder", ["", "_compatstore", "data"])
def test_a_folder_that_may_not_be_entered(ready, warm, folder):
    place = Path(ready, folder)
    place.chmod(0o600)
    try:
        told = ask(ready, warm)
    finally:
        place.chmod(0o755)
    refused = [answer for answer in told.values() if isinstance(answer, dict)]
    assert {answer["error"] for answer in refused} == {"StorageError"}
    assert any(f"{place} has mode 0600" in answer["found"] for answer in refused), refused


@pytest.mark.full
def test_another_user_reads_what_the_umask_lets_them(ready):
    root = os.geteuid() == 0  # who alone can become another user; for others a file that is closed to all does
    uid, mode = (65534, 0o600) if root else (0, 0)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        path, warm = f"{folder}/gallery.lance", f"{folder}/warm.lance"
        shutil.copytree(ready, path)
        shutil.copytree(ready, warm)
        told = ask(path, warm, uid)
        assert told == dict.fromkeys(told) | {"verify": []}
        for file in Path(path, "_compatstore").glob("?" * 64):
            file.chmod(mode)
        told = ask(path, warm, uid)
        assert told["search"] is None
        refused = told["artifact"]
        assert refused["error"] == "StorageError"
        assert f"has mode {mode:04o}, owner {getpass.getuser()}" in refused["found"]
        assert "link" not in refused["fix"]
