"""A gallery in an object store lives as one on a disk does, its files beside the table too, and is as safe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from itertools import count

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from compatstore.errors import CorruptArtifact, InvalidInput, StorageError
from compatstore.storage.files import FOLDER, Blobs, Files
from compatstore.storage.location import locate
from compatstore.trainers import Pairs, Ridge
from compatstore.verification.examination import gallery_place
from lazily import Lazy
from tests.servers.object_stores import SERVERS
from tests.servers.proxy import proxy

pytestmark = pytest.mark.full

lancedb = Lazy("lancedb")

ROWS = 300
IDS = [f"item-{number:03d}" for number in range(ROWS)]
OLD = np.random.default_rng(0).normal(size=(ROWS, 6)).astype(np.float32)
NEW = OLD[:, :4] + np.float32(0.1) * np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32)
BROKEN = "source of item-007"
# Runs verbs in a process of their own, as Lance reads the environment once in a process: [exit code, stdout] of each.
SHELL = """
import json, sys
from click.testing import CliRunner
from compatstore.cli.app import app

uri, *verbs = sys.argv[1:]
results = [CliRunner().invoke(app, [verb, uri, "--json"]) for verb in verbs]
print(json.dumps([[result.exit_code, result.stdout] for result in results]))
"""
# Both ways to write a backfill, each in one store at least.
MODES = {"s3": "move_rows", "gs": "rewrite_columns", "az": "rewrite_columns"}
numbers = count()


@pytest.fixture(scope="module", params=["moto", "azurite", "google"])
def server(request):
    """A store that speaks S3, Azure's where Azurite is installed, or Google's."""
    if request.param == "azurite":
        pytest.importorskip("azure.storage.blob")
        if shutil.which("azurite-blob") is None:
            pytest.skip("no azurite-blob is installed")
    with SERVERS[request.param]() as running:
        yield running


@pytest.fixture
def options(server):
    return server.options


@pytest.fixture
def s3(options):
    """What Lance has to know of a store behind a proxy: requests to Azure are signed with what the proxy changes."""
    if "aws_endpoint" not in options:
        pytest.skip("the proxy speaks S3")
    return options


@pytest.fixture
def uri(server):
    return server.uri(f"{next(numbers)}.lance")


def encode(sources):
    broken = {row: "cannot be read" for row, source in enumerate(sources) if source == BROKEN}
    if broken:
        raise cs.errors.SourceError("read", broken)
    return NEW[[int(source[-3:]) for source in sources]]


def versions():
    encoder = cs.encoders.Function(encode, 4, fingerprint="new")
    return cs.EmbeddingVersion("v1", dim=6, metric="l2"), cs.EmbeddingVersion("v2", dim=4, metric="l2", encoder=encoder)


def make(uri, options):
    v1, v2 = versions()
    gallery = cs.Gallery.create(uri, v1, storage_options=options)
    gallery.add({"id": IDS, "vector": OLD, "source": [f"source of {item}" for item in IDS]})
    gallery.register(v2)
    gallery.artifacts.link(Ridge().fit(Pairs(OLD, NEW, source_version=v1, target_version=v2)))
    return gallery


def test_a_whole_upgrade(uri, server, options):
    mode = MODES[server.scheme]
    gallery = make(uri, options)
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.5, max_rows=60, write_mode=mode))
    gallery = cs.Gallery.open(uri, encoders={"v2": versions()[1].encoder}, storage_options=options)
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, write_mode=mode))
    assert (report.state, report.missing, report.num_unbackfillable) == ("ready", 0, 1)
    assert gallery.maintenance.unbackfillable("v2").column("id").to_pylist() == ["item-007"]
    gallery.cutover("v2")
    assert gallery.search(NEW[3], 1).column("id").to_pylist() == ["item-003"]
    gallery.add({"id": ["new"], "v1": OLD[:1], "v2": NEW[:1]})
    assert gallery.delete(["new", "item-000"]) == 2
    gallery.retire("v1")
    assert len(gallery) == ROWS - 1
    assert gallery.maintenance.verify().clean
    assert [entry.step for entry in gallery.maintenance.history()][-1] == "retire"
    assert not [name for name in Files(locate(uri, options), FOLDER).names() if name.startswith("staged-")]


def test_a_file_that_is_gone_or_cut_short_is_found(uri, options):
    gallery = make(uri, options)
    location = locate(uri, options)
    data = Files(location, "data")
    (name,) = (name for name in data.names() if name.endswith(".lance"))
    whole = data.read(name)
    data.write(name, whole[:-9])
    assert any("cut short" in str(finding) for finding in gallery.maintenance.verify().findings)
    data.delete(name)
    assert any("gone" in str(finding) for finding in gallery.maintenance.verify().findings)
    data.write(name, whole)
    assert gallery.maintenance.verify().clean
    blobs = Blobs(location)
    digest = blobs.put(b"weights")
    assert blobs.put(b"weights") == digest
    Files(location, FOLDER).write(digest, b"weight")
    with pytest.raises(CorruptArtifact, match="was changed"):
        blobs.get(digest)


def test_of_two_that_add_the_same_new_id_one_is_refused(uri, options):
    make(uri, options)
    barrier, ends = threading.Barrier(4), []

    def add(value):
        gallery = cs.Gallery.open(uri, storage_options=options)
        barrier.wait()
        try:
            gallery.add({"id": ["same"], "vector": np.full((1, 6), value, np.float32)})
            ends.append(value)
        except InvalidInput:
            pass

    threads = [threading.Thread(target=add, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gallery = cs.Gallery.open(uri, storage_options=options)
    assert len(ends) == 1
    assert gallery.vectors(["same"])[0].tolist() == [ends[0]] * 6


def test_an_app_in_the_store_is_adopted(server, options):
    database = lancedb.connect(server.uri("app"), storage_options=options)
    items = [{"key": item, "embedding": vector.tolist()} for item, vector in zip(IDS, OLD, strict=True)]
    table = database.create_table(f"photos{next(numbers)}", items)
    v1, _ = versions()
    gallery = cs.Gallery.adopt(table, v1, vector="embedding", id="key")
    v2 = cs.EmbeddingVersion("v2", dim=6, metric="l2")
    gallery.register(v2)
    gallery.artifacts.link(Artifact.create("Identity", source=Space.of(v1), target=Space.of(v2)))
    assert gallery.search(OLD[5], 1, version="v2").column("key").to_pylist() == ["item-005"]
    table.checkout_latest()
    assert table.search(OLD[5].tolist()).limit(1).to_list()[0]["key"] == "item-005"


def test_the_shell_finds_the_store_by_the_environment(uri, server, options):
    make(uri, options)
    shell = [sys.executable, "-W", "ignore", "-c", SHELL, uri, "status", "verify", "doctor"]
    ran = subprocess.run(shell, env={**os.environ, **server.environment}, capture_output=True, text=True, check=True)
    results = json.loads(ran.stdout)
    assert [code for code, _ in results] == [0, 0, 0], results
    status, _, doctor = (json.loads(stdout) for _, stdout in results)
    assert status["rows"] == ROWS
    written = [found for found in doctor["diagnoses"] if found["topic"] == "writing"]
    assert [found["level"] for found in written] == ["ok"]


@pytest.fixture
def forgetful(s3):
    """The same store without conditional writes."""
    with proxy(s3["aws_endpoint"], drops=frozenset({"if-none-match"})) as passed:
        yield {**s3, "aws_endpoint": passed.endpoint}


def test_a_store_without_conditional_writes_is_refused_and_left_as_it_was(uri, options, forgetful):
    v1, _ = versions()
    with pytest.raises(StorageError, match=r"create a gallery at s3.*If-None-Match.*wrote one object twice") as refused:
        cs.Gallery.create(uri, v1, storage_options=forgetful)
    assert "Amazon S3" in refused.value.fix
    assert Files(locate(uri, options)).names() == []
    assert len(cs.Gallery.create(uri, v1, storage_options=options)) == 0
    assert not [name for name in Files(locate(uri, options)).names() if name.startswith("probe")]


def test_no_table_is_adopted_in_a_store_without_conditional_writes(uri, options, forgetful):
    items = pa.table({"key": IDS[:2], "embedding": pa.array(OLD[:2].tolist(), pa.list_(pa.float32(), 6))})
    lance.write_dataset(items, uri, storage_options=options)
    before = Files(locate(uri, options)).names()
    with pytest.raises(StorageError, match=r"adopt s3.*wrote one object twice"):
        cs.Gallery.adopt(uri, versions()[0], vector="embedding", id="key", storage_options=forgetful)
    assert Files(locate(uri, options)).names() == before
    assert lance.dataset(uri, storage_options=options).version == 1


def test_the_doctor_says_whether_a_store_has_conditional_writes(uri, options, forgetful):
    cs.Gallery.create(uri, versions()[0], storage_options=options)
    before = Files(locate(uri, options)).names()
    levels = {
        name: {found.topic: found.level for found in gallery_place(uri, to)}["conditional writes"]
        for name, to in {"with": options, "without": forgetful}.items()
    }
    assert levels == {"with": "ok", "without": "problem"}
    assert Files(locate(uri, options)).names() == before


def test_a_store_that_can_only_be_read_is_told_apart_from_one_without_conditions(uri, s3):
    with proxy(s3["aws_endpoint"], refuses=frozenset({"PUT"})) as read_only:
        to = {**s3, "aws_endpoint": read_only.endpoint}
        with pytest.raises(StorageError, match=r"(?s)create a gallery at s3.*Check endpoint, credentials"):
            cs.Gallery.create(uri, versions()[0], storage_options=to)


def test_reads_ask_for_the_next_version_and_seldom_for_the_list(uri, s3):
    make(uri, s3)
    with proxy(s3["aws_endpoint"]) as passed:
        reader = cs.Gallery.open(uri, storage_options={**s3, "aws_endpoint": passed.endpoint})
        writer = cs.Gallery.open(uri, storage_options=s3)
        passed.requests.clear()
        searches = 0
        while sum(request.kind == "HEAD" for request in passed.requests) < 8:
            reader.search(OLD[3], 1)
            searches += 1
        assert sum(request.kind in ("list", "HEAD") for request in passed.requests) <= searches + 1
        for number in range(3):
            writer.add({"id": [f"new-{number}"], "vector": 100 + OLD[number : number + 1]})
            found = reader.search(100 + OLD[number], 1)
            assert found.column("id").to_pylist() == [f"new-{number}"], "what is written is found at once"


def test_a_version_is_found_whose_predecessor_was_cleaned_up_between_two_reads(uri, options):
    make(uri, options)
    reader, writer = (cs.Gallery.open(uri, storage_options=options) for _ in range(2))
    reader.search(OLD[3], 1)
    before = set(Files(locate(uri, options), "_versions").names())
    writer.add({"id": ["new"], "vector": 100 + OLD[:1]})
    after = sorted(set(Files(locate(uri, options), "_versions").names()) - before)
    writer.delete(["item-299"])
    Files(locate(uri, options), "_versions").delete(after[-1])
    while reader.search(100 + OLD[0], 1).column("id").to_pylist() != ["new"]:
        pass


def test_a_table_that_names_its_versions_as_early_lance_did_is_read_at_its_latest(uri, options):
    items = pa.table({"key": IDS[:2], "embedding": pa.array(OLD[:2].tolist(), pa.list_(pa.float32(), 6))})
    lance.write_dataset(items, uri, storage_options=options, enable_v2_manifest_paths=False)
    gallery = cs.Gallery.adopt(uri, versions()[0], vector="embedding", id="key", storage_options=options)
    assert "1.manifest" in Files(locate(uri, options), "_versions").names()
    for number in range(2, 5):
        lance.write_dataset(items.slice(0, 0), uri, storage_options=options, mode="append")
        cs.Gallery.open(uri, storage_options=options).add({"id": [IDS[number]], "vector": OLD[number : number + 1]})
        assert len(gallery) == number + 1


def test_a_store_that_does_not_answer_is_named(uri, s3):
    gone = {**s3, "aws_endpoint": "http://127.0.0.1:9", "client_max_retries": "0", "client_retry_timeout": "1"}
    with pytest.raises(StorageError, match="open a gallery at s3://galleries"):
        cs.Gallery.open(uri, storage_options=gone)
