"""Faults from outside: each ends in a clear error, leaves a sound gallery, and the same command then goes on.

However an upgrade was disturbed, it ends with the very bits of one that was not.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from threading import Event

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders import Function
from compatstore.errors import CorruptArtifact, EncoderFailed, Interrupted, InvalidInput
from compatstore.upgrade.backfilling import account
from confined import read_only, run_confined, writable
from galleries import SOURCE, artifact, items
from states import BATCHES, IDS, natives, open_with_encoder, target

pytestmark = pytest.mark.full

MODES = ("move_rows", "rewrite_columns")
COLUMNS = ["id", "number", "v1", "v1__side", "v2", "v2__origin", "v2__uncertainty", "v2__input_hash"]


def contents(path):
    """All that an upgrade may and may not change, in order of id."""
    return lance.dataset(str(path)).to_table(columns=COLUMNS).sort_by("id")


def upgrade(gallery, mode, share=0.25, run=BATCHES, **more):
    backfill = cs.Backfill(share=share, order="sigma", write_mode=mode)
    return gallery.upgrade("v2", backfill=backfill, run=run, **more)


@pytest.fixture(scope="module")
def undisturbed(templates, tmp_path_factory):
    """By its share, what an upgrade ends with that nothing disturbs."""
    ends = {}
    for share in (0.25, 0.5):
        path = tmp_path_factory.mktemp("undisturbed") / "g.lance"
        shutil.copytree(templates["upgradable"], path)
        assert upgrade(open_with_encoder(path), "rewrite_columns", share).state == "ready"
        ends[share] = contents(path)
    return ends


def assert_told_and_sound(path, error, state):
    """The error says all that it must, the status where the upgrade stands, and nothing is half written."""
    assert error.operation
    assert error.expected
    assert error.found
    assert error.fix
    gallery = cs.Gallery.open(str(path))
    result = gallery.maintenance.verify()
    assert result.clean, result.findings
    (run,) = gallery.status().upgrades
    assert (run.state, run.activity.doing) == (state, "failed")
    assert run.activity.error.startswith(f"{type(error).__name__}: {error.operation}")
    assert gallery.status().missing == 0, "the active version stays whole"


def assert_goes_on(path, mode, undisturbed, share=0.25):
    """The same call, once the cause is mended."""
    report = upgrade(open_with_encoder(path), mode, share)
    assert (report.state, report.missing, report.num_unbackfillable) == ("ready", 0, 0)
    assert contents(path).equals(undisturbed)
    assert cs.Gallery.open(str(path)).status().upgrades[0].activity.doing == "waiting"
    assert open_with_encoder(path).maintenance.verify().findings == ()


class Faulty:
    """The target's encoder, which fails in some mode from its third call on."""

    def __init__(self, fault):
        self.inner, self.fault, self.calls = target().encoder, fault, 0
        self.dim, self.reads = self.inner.dim, self.inner.reads
        self.fingerprint, self.spec = self.inner.fingerprint, self.inner.spec

    def encode(self, sources):
        self.calls += 1
        vectors = self.inner.encode(sources)
        return vectors if self.calls < 3 else self.fault(vectors)


def raises(vectors):
    raise RuntimeError("CUDA error: device-side assert triggered")


def hangs(vectors):
    Event().wait()


def gives_nan(vectors):
    vectors = vectors.copy()
    vectors[-1, 7] = np.nan
    return vectors


def gives_another_dimension(vectors):
    return vectors[:, :-1]


def gives_fewer_rows(vectors):
    return vectors[:-1]


FAULTS = {
    raises: (EncoderFailed, "CUDA error"),
    hangs: (EncoderFailed, "within 0.3 s"),
    gives_nan: (InvalidInput, "NaN or infinite values for item-"),
    gives_another_dimension: (InvalidInput, r"expected shape \(16, 40\); found \(16, 39\)"),
    gives_fewer_rows: (InvalidInput, r"expected shape \(16, 40\); found \(15, 40\)"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_encoder_that_fails(at, undisturbed, mode, fault, monkeypatch):
    monkeypatch.setattr(account, "FAILURES_IN_A_ROW", 10)
    path = at("upgradable")
    error, says = FAULTS[fault]
    gallery = cs.Gallery.open(path, encoders={"v2": Faulty(fault)})
    settings = replace(BATCHES, retries=0, encoder_timeout=0.3 if fault is hangs else None)
    with pytest.raises(error, match=says) as raised:
        upgrade(gallery, mode, run=settings)
    assert_told_and_sound(path, raised.value, "backfill")
    assert "the same call goes on" in raised.value.fix
    assert_goes_on(path, mode, undisturbed[0.25])


class Files:
    """Sources in files, read by an encoder that lists those it cannot read."""

    def __init__(self, folder):
        self.folder = folder
        for item, vector in zip(IDS, natives(), strict=True):
            np.save(folder / f"{item}.npy", vector)

    def encoder(self):
        return Function(self.read, 40, fingerprint="files")

    def read(self, sources):
        missing = {i: "no such file" for i, source in enumerate(sources) if not Path(source).exists()}
        if missing:
            raise cs.errors.SourceError("read files", missing)
        return np.stack([np.load(source) for source in sources])

    def gallery(self, path):
        gallery = cs.Gallery.create(str(path), SOURCE)
        gallery.add({**items(0, len(IDS)), "source": [str(self.folder / f"{item}.npy") for item in IDS]})
        version = cs.EmbeddingVersion("v2", dim=40, encoder=self.encoder())
        gallery.register(version)
        gallery.artifacts.link(artifact(SOURCE, version))
        return gallery


@pytest.mark.parametrize("mode", MODES)
def test_sources_that_vanish_with_their_disk(tmp_path, mode, monkeypatch):
    (tmp_path / "files").mkdir()
    files = Files(tmp_path / "files")
    whole, path = tmp_path / "whole.lance", tmp_path / "g.lance"
    gallery = files.gallery(path)
    shutil.copytree(path, whole)
    upgrade(cs.Gallery.open(str(whole), encoders={"v2": files.encoder()}), mode)

    def unmount(progress):
        if progress.step == "backfill" and files.folder.exists():
            files.folder.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(account, "FAILURES_IN_A_ROW", 20)
    settings = replace(BATCHES, retries=0)
    with pytest.raises(EncoderFailed, match="no such file") as raised:
        upgrade(gallery, mode, run=settings, progress=unmount)
    assert_told_and_sound(path, raised.value, "backfill")
    (tmp_path / "elsewhere").rename(files.folder)
    again = cs.Gallery.open(str(path), encoders={"v2": files.encoder()})
    report = upgrade(again, mode)
    assert (report.state, report.num_unbackfillable) == ("ready", 0)
    assert contents(path).equals(contents(whole))


def test_some_sources_that_vanish_are_told_and_made_up_for_when_they_are_back(tmp_path):
    (tmp_path / "files").mkdir()
    files = Files(tmp_path / "files")
    path = tmp_path / "g.lance"
    gallery = files.gallery(path)
    gone = [files.folder / f"{item}.npy" for item in IDS[:3]]
    for file in gone:
        file.rename(file.with_suffix(".away"))
    report = upgrade(gallery, "move_rows", 1.0)
    assert dict(report.unbackfillable) == dict.fromkeys(IDS[:3], "no such file")
    assert (report.num_unbackfillable, report.missing) == (3, 0)
    assert gallery.status().upgrades[0].unbackfillable == 3
    assert gallery.maintenance.verify().clean
    for file in gone:
        file.with_suffix(".away").rename(file)
    settings = replace(BATCHES, retry_unbackfillable=True)
    assert upgrade(gallery, "move_rows", 1.0, run=settings).num_unbackfillable == 0
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2"), natives())


CONFINED = """
import json, resource, sys
import compatstore as cs
from states import BATCHES, open_with_encoder
for line in sys.stdin:
    path, mode, share, file_size = json.loads(line)
    gallery = open_with_encoder(path)
    if file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, resource.RLIM_INFINITY))
    try:
        backfill = cs.Backfill(share=share, order="sigma", write_mode=mode)
        gallery.upgrade("v2", backfill=backfill, run=BATCHES)
        told = {}
    except cs.CompatStoreError as error:
        told = error.to_dict()
    finally:
        if file_size:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(json.dumps(told), flush=True)
"""


def upgrade_confined(*cases):
    """Upgrade galleries, (path, mode, share, file_size) each, in a process that modes and limits bind.

    Returns:
        What each raised, as `CompatStoreError.to_dict` tells it; {} where nothing.
    """
    done = run_confined(CONFINED, "".join(json.dumps(case) + "\n" for case in cases))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# Where an upgrade stands, the share that it is to reach, and the bytes of a file that is the first not to fit.
FULL_DISKS = [
    *(("upgradable", 0.25, size) for size in (300, 12_000)),
    *(("backfilling", 0.25, size) for size in (300, 6_000, 12_000)),
    *(("ready", 0.5, size) for size in (5_000, 7_500)),
]


def test_a_disk_that_is_full(templates, undisturbed, tmp_path):
    cases = [
        (str(tmp_path / f"{state}-{mode}-{size}.lance"), mode, share, size)
        for mode in MODES
        for state, share, size in FULL_DISKS
    ]
    for path, *_ in cases:
        shutil.copytree(templates[Path(path).name.partition("-")[0]], path)
    told = upgrade_confined(*cases)
    for (path, mode, share, _), error in zip(cases, told, strict=True):
        assert error["error"] == "StorageError", (path, error)
        assert "File too large" in error["found"] or "cut short" in error["found"]
        assert "room" in error["fix"]
        assert open_with_encoder(path).maintenance.verify().clean, path
        assert open_with_encoder(path).status().missing == 0
        assert_goes_on(path, mode, undisturbed[share], share)
    assert len({error["operation"].partition(" in ")[0] for error in told}) >= 4, "at several steps of an upgrade"


@pytest.mark.parametrize("state", ["upgradable", "backfilling"])
def test_a_store_that_cannot_be_written(at, undisturbed, files, state):
    path = at(state)
    before = files(path)
    read_only(path)
    try:
        (error,) = upgrade_confined((path, "move_rows", 0.25, None))
    finally:
        writable(path)
    assert error["error"] == "StorageError"
    assert "you may write there" in error["fix"]
    assert files(path) == before
    assert_goes_on(path, "move_rows", undisturbed[0.25])


@pytest.mark.parametrize("mode", MODES)
def test_a_clock_that_goes_backwards(at, undisturbed, monkeypatch, mode):
    path = at("upgradable")
    seen = cs.Gallery.open(path)
    clock = {"back": 0}
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() - clock["back"])
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() - clock["back"] * 10**9)
    done = []

    def turn_back(progress):
        clock["back"] += 3600
        done.append(progress)

    with pytest.raises(Interrupted):
        upgrade(open_with_encoder(path), mode, progress=turn_back, should_stop=lambda: len(done) >= 5)
    assert seen.status().upgrades[0].state == "backfill", "what was written is seen at once"
    assert_goes_on(path, mode, undisturbed[0.25])
    numbers = [entry.number for entry in seen.maintenance.history()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("part", ["manifest", "weights"])
def test_an_artifact_that_is_deleted_in_mid_run(at, undisturbed, tmp_path, part):
    path = at("upgradable")
    gallery = open_with_encoder(path)
    (record,) = gallery.artifacts
    kept = gallery._catalog.artifact(record.id)
    file = Path(path, "_compatstore", getattr(record, part))
    with pytest.raises(Interrupted):
        upgrade(
            gallery, "move_rows", progress=lambda _: file.unlink(missing_ok=True), should_stop=lambda: not file.exists()
        )
    with pytest.raises(CorruptArtifact, match=r"gallery\.artifacts\.link") as raised:
        upgrade(open_with_encoder(path), "move_rows")
    assert raised.value.expected == "the file"
    found = open_with_encoder(path).maintenance.verify().findings
    assert [finding.check for finding in found] == ["artifacts"]
    assert open_with_encoder(path).status().missing == 0
    open_with_encoder(path).artifacts.link(kept)
    assert_goes_on(path, "move_rows", undisturbed[0.25])
