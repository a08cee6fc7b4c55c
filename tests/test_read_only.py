"""What only looks never writes: every file of a gallery is the same before and after, in every state of an upgrade."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore.cli.app import app
from compatstore.gallery import Maintenance
from compatstore.gallery.versions import Artifacts
from confined import read_only, run_confined, writable
from states import IDS, STEPS, encoder_file, open_with_encoder

VERBS = {
    "search": ("search", "GALLERY", "--id", "item-000001"),
    "search --explain": ("search", "GALLERY", "--id", "item-000001", "--explain"),
    "versions": ("versions", "GALLERY"),
    "evaluate": ("evaluate", "GALLERY", "v2", "--sample", "100", "--encoder", "ENCODER"),
    "upgrade --dry-run": ("upgrade", "GALLERY", "v2", "--backfill", "0.5", "--dry-run"),
    "cutover --check": ("cutover", "GALLERY", "v2", "--check"),
    "status": ("status", "GALLERY"),
    "history": ("history", "GALLERY"),
    "metrics": ("metrics", "GALLERY"),
    "unbackfillable": ("unbackfillable", "GALLERY", "v2"),
    "report": ("report", "GALLERY", "v2", "--sample", "100", "--encoder", "ENCODER"),
    "verify": ("verify", "GALLERY"),
    "doctor": ("doctor", "GALLERY"),
    "completion": ("completion", "bash"),
    "optimize --dry-run": ("optimize", "GALLERY", "--dry-run"),
}
WRITING_VERBS = {
    *("demo", "init", "adopt", "add", "drop-columns", "index", "register", "link", "train", "export"),
    *("upgrade", "pause", "cutover", "rollback", "abort", "retire", "judge", "convert", "mirror", "sync"),
    *("optimize", "unregister", "unlink"),
}

CALLS = {
    "get": lambda gallery: gallery.get(IDS[:2]),
    "vectors": lambda gallery: gallery.vectors(IDS[:2]),
    "side vectors": lambda gallery: gallery.vectors(IDS[:2], "v1", side=True),
    "search": lambda gallery: gallery.search(gallery.vectors(IDS[:1])[0], k=3),
    "scan": lambda gallery: gallery.scan().to_arrow(),
    "columns": lambda gallery: gallery.columns,
    "explain": lambda gallery: str(gallery.explain()),
    "version": lambda gallery: gallery.version("v2"),
    "versions": lambda gallery: gallery.versions(),
    "active": lambda gallery: gallery.active,
    "artifacts": lambda gallery: list(gallery.artifacts),
    "scan natives": lambda gallery: len(gallery.scan(native=[gallery.active])),
    "upgrade dry run": lambda gallery: gallery.upgrade("v2", backfill=0.5, dry_run=True),
    "evaluate": lambda gallery: gallery.evaluate("v2", sample=100),
    "judge": lambda gallery: gallery.judge("v2", {"id": IDS[:9], "item": IDS[:9]}),
    "cutover dry run": lambda gallery: gallery.cutover("v2", dry_run=True),
    "maintenance.unbackfillable": lambda gallery: gallery.maintenance.unbackfillable("v2"),
    "report": lambda gallery: gallery.report("v2", sample=100, details=cs.Details()),
    "status": lambda gallery: gallery.status(),
    "maintenance.history": lambda gallery: gallery.maintenance.history(),
    "maintenance.verify": lambda gallery: gallery.maintenance.verify(),
    "maintenance.optimize": lambda gallery: gallery.maintenance.optimize(dry_run=True),
    "maintenance.cache_size": lambda gallery: gallery.maintenance.cache_size(),
    "cache": lambda gallery: gallery.cache().nearest(gallery.vectors(IDS[:1])[0], k=3),
    "__len__": len,
    "__repr__": repr,
    "_repr_html_": lambda gallery: gallery._repr_html_(),
}
# What has nothing to look at in a state says so.
REFUSED = {
    "upgradable": {"cutover dry run", "report", "judge"},
    "backfilling": {"cutover dry run"},
    "retired": {"upgrade dry run", "evaluate", "judge", "side vectors"},
}
REFUSED_VERBS = {
    "upgradable": {"cutover --check": 7, "report": 3},
    "backfilling": {"cutover --check": 7},
    "retired": {"evaluate": 2, "upgrade --dry-run": 2},
}

WRITING_CALLS = {
    *("create", "adopt", "open", "add", "update", "delete", "register"),
    *("upgrade", "cutover", "rollback", "abort", "retire", "mirror", "sync"),
    *("maintenance.drop_columns", "maintenance.index", "maintenance.unregister"),
    *("artifacts.link", "artifacts.unlink", "maintenance", "aio"),
}


def test_every_verb_and_call_is_tried_here_or_writes_by_intention():
    assert {verb.split()[0] for verb in VERBS} - {"upgrade", "cutover", "optimize"} == set(app.commands) - WRITING_VERBS
    public = {name for name in dir(cs.Gallery) if not name.startswith("_")}
    public |= {f"maintenance.{name}" for name in dir(Maintenance) if not name.startswith("_")}
    public |= {f"artifacts.{name}" for name in dir(Artifacts) if not name.startswith("_")}
    assert {name for name in CALLS if not name.startswith("_") and " " not in name} == public - WRITING_CALLS


@pytest.mark.full
@pytest.mark.parametrize("state", STEPS)
def test_calls_that_look_leave_every_file_as_it_was(at, files, state):
    path = at(state)
    before = files(path)
    gallery = open_with_encoder(path)
    refused = set()
    for name, call in CALLS.items():
        try:
            call(gallery)
        except cs.CompatStoreError:
            refused.add(name)
        assert files(path) == before, name
    assert refused == REFUSED.get(state, set())


@pytest.mark.full
@pytest.mark.parametrize("state", STEPS)
def test_verbs_that_look_leave_every_file_as_it_was(at, files, tmp_path, state):
    path = at(state)
    names = {"GALLERY": path, "ENCODER": f"precomputed:{encoder_file(tmp_path)}"}
    codes = {}
    before = files(path)
    for name, words in VERBS.items():
        result = CliRunner().invoke(app, [*(names.get(word, word) for word in words), "--json"], catch_exceptions=False)
        codes |= {name: result.exit_code} if result.exit_code else {}
        assert json.loads(result.stdout) is not None
        assert files(path) == before, name
    assert codes == REFUSED_VERBS.get(state, {})


def test_a_refused_call_writes_nothing(at, files):
    path = at("upgradable")
    gallery = cs.Gallery.open(path)
    before = files(path)
    refused = (
        lambda: gallery.add({"id": ["x"], "vector": np.full((1, 24), np.nan, np.float32)}),
        lambda: gallery.add({"id": [IDS[0]], "vector": np.zeros((1, 24), np.float32)}),
        lambda: gallery.cutover("v2"),
        lambda: gallery.rollback(),
        lambda: gallery.retire("v1"),
        lambda: gallery.upgrade("v9"),
        lambda: gallery.upgrade("v2", backfill=2.0),
        lambda: gallery.register(cs.EmbeddingVersion("v2", dim=40)),
    )
    for call in refused:
        with pytest.raises(cs.CompatStoreError):
            call()
    assert files(path) == before


ON_A_READ_ONLY_STORE = """
import os, sys
from click.testing import CliRunner
from compatstore.cli.app import app

path, *verbs = sys.argv[1:]
try:
    open(os.path.join(path, "probe"), "w")
except PermissionError:
    pass
else:
    sys.exit("the store can be written")
for verb in verbs:
    result = CliRunner().invoke(app, [path if word == "GALLERY" else word for word in verb.split()])
    if result.exit_code:
        sys.exit(f"{verb}: {result.output} {result.exception}")
print(len(verbs), "looked")
"""


@pytest.mark.full
def test_all_that_look_work_on_a_store_that_cannot_be_written(at, files, tmp_path):
    path = at("backfilling")
    before = files(path)
    encoder, refused = f"precomputed:{encoder_file(tmp_path)}", REFUSED_VERBS["backfilling"]
    verbs = [" ".join(words).replace("ENCODER", encoder) for name, words in VERBS.items() if name not in refused]
    read_only(path)
    try:
        done = run_confined(ON_A_READ_ONLY_STORE, words=(path, *verbs))
    finally:
        writable(path)
    assert done.stdout == f"{len(verbs)} looked\n", done.stderr
    assert files(path) == before
