"""An app that drops, renames or replaces columns, or its whole table: one error for every verb, and a way out."""

from __future__ import annotations

import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import CompatStoreError, InvalidInput, NotFound, StorageError, TableChanged
from compatstore.storage.location import locate
from galleries import artifact
from lazily import Lazy

lancedb = Lazy("lancedb")

V1 = cs.EmbeddingVersion("v1", dim=24, metric="l2")
V2 = cs.EmbeddingVersion("v2", dim=40, metric="cosine")
VECTORS = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32)
QUERY = {"v1": VECTORS[0], "v2": np.ones(40, np.float32)}


def rows(first=0, **more):
    return [{"key": f"k{n}", "vector": VECTORS[n], "text": f"t{n}", **more} for n in range(first, first + 100)]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An app's database whose table was adopted and hopped to a second version."""
    folder = tmp_path_factory.mktemp("app") / "db"
    table = lancedb.connect(folder).create_table("photos", rows())
    gallery = cs.Gallery.adopt(table, V1, vector="vector", id="key", source="text")
    gallery.register(V2)
    gallery.artifacts.link(artifact(V1, V2))
    gallery.upgrade("v2")
    return folder


@pytest.fixture
def database(template, tmp_path):
    return lancedb.connect(shutil.copytree(template, tmp_path / "db"))


def verbs(active):
    """By name, calls of every verb that looks at the table."""
    return {
        "search": lambda g: g.search(QUERY[active], k=2),
        "get": lambda g: g.get(["k1"]),
        "vectors": lambda g: g.vectors(["k1"]),
        "add": lambda g: g.add({"id": ["new"], "vector": QUERY[active][None]}),
        "upsert": lambda g: g.add({"id": ["k1"], "vector": QUERY[active][None]}, upsert=True),
        "delete": lambda g: g.delete(["k1"]),
        "plan": lambda g: g.upgrade("v2", dry_run=True),
        "evaluate": lambda g: g.evaluate("v2", sample=40),
        "upgrade": lambda g: g.upgrade("v2"),
        "check cutover": lambda g: g.cutover("v2", dry_run=True).missing,
        "cutover": lambda g: g.cutover("v2"),
        "abort": lambda g: g.abort("v2"),
        "status": lambda g: g.status(),
        "report": lambda g: g.report("v2"),
        "native ids": lambda g: g.scan([g.columns.id], native=["v1"]).to_arrow()[g.columns.id].to_pylist(),
        "unbackfillable": lambda g: g.maintenance.unbackfillable("v2"),
        "create index": lambda g: g.maintenance.index("v1").create(),
    }


def answers(path, active="v1", handle=None):
    """By verb, the error that it ends in, of a handle from before or a new one; None where it succeeds."""
    found = {}
    for name, call in verbs(active).items():
        try:
            call(handle or cs.Gallery.open(path))
        except CompatStoreError as error:
            found[name] = error
        else:
            found[name] = None
    return found


def rename(table, name, to):
    table.alter_columns({"path": name, "rename": to})


def drop(table, name):
    table.drop_columns([name])


DAMAGES = {
    "id renamed": (lambda table: rename(table, "key", "uid"), "column key of the items is gone", "is called uid now"),
    "id dropped": (lambda table: drop(table, "key"), "column key of the items is gone", "restore()"),
    "source dropped": (lambda table: drop(table, "text"), "column text of the items is gone", "restore()"),
    "vector renamed": (lambda table: rename(table, "vector", "emb"), "column vector of v1 is gone", "called emb now"),
    "vector dropped": (lambda table: drop(table, "vector"), "column vector of v1 is gone", "restore()"),
    "ours renamed": (lambda table: rename(table, "v2", "ours"), "column v2 of v2 is gone", "is called ours now"),
    "ours dropped": (lambda table: drop(table, "v2__input_hash"), "column v2__input_hash of v2 is gone", "retire"),
}  # fmt: skip


def carry_out(path, fix):
    """Do what an error says: lines of Python."""
    if "lance.dataset(" in fix:
        eval(fix[fix.index("lance.dataset(") :], {"lance": lance})
        return
    exec(fix[fix.index("gallery.") :].rstrip("."), {"gallery": cs.Gallery.open(path)})


@pytest.mark.full
@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_columns_are_one_error_with_a_way_out_that_works(database, damage):
    break_it, found, fix = DAMAGES[damage]
    table = database.open_table("photos")
    handle = cs.Gallery.open(table)
    path = locate(table).uri
    break_it(table)
    for told in (answers(path), answers(path, handle=handle)):
        refused = {name: error for name, error in told.items() if error is not None}
        assert {type(error) for error in refused.values()} == {TableChanged}, refused
        assert all(found in error.found and fix in error.fix for error in refused.values()), refused
        reads = {"search", "get", "vectors", "native ids"}
        if damage.startswith("ours"):
            assert not {"search", "get", "vectors"} & set(refused), "the source is whole: it is searched on"
        else:
            assert reads & set(refused)
        assert {"add", "upsert", "upgrade", "cutover", "status", "plan"} <= set(refused)
    findings = [
        finding for finding in cs.Gallery.open(path).maintenance.verify().findings if finding.check == "columns"
    ]
    assert (findings[0].what, findings[0].severity) == (found, "error")
    assert fix in findings[0].repair
    carry_out(path, findings[0].repair)
    gallery = cs.Gallery.open(path)
    gallery.upgrade("v2")
    assert gallery.maintenance.verify().clean
    assert gallery.cutover("v2").missing == 0


@pytest.mark.full
def test_lost_columns_of_the_active_version_lead_back(database):
    path = locate(database.open_table("photos")).uri
    cs.Gallery.open(path).cutover("v2")
    drop(database.open_table("photos"), "v2")
    error = answers(path, "v2")["search"]
    assert isinstance(error, TableChanged)
    carry_out(path, error.fix)
    assert cs.Gallery.open(path).active == "v1"
    assert cs.Gallery.open(path).maintenance.verify().clean


@pytest.mark.full
@pytest.mark.parametrize("mode", ["overwrite", "drop and create"])
def test_a_table_that_is_made_again_in_the_middle(database, mode):
    table = database.open_table("photos")
    path = locate(table).uri
    handle = cs.Gallery.open(path)
    if mode == "overwrite":
        table = database.create_table("photos", rows(100), mode="overwrite")
    else:
        database.drop_table("photos")
        table = database.create_table("photos", rows(100))
    for opened in (None, handle):
        told = answers(path, handle=opened)
        refused = {type(error) for error in told.values() if error is not None}
        assert refused <= {TableChanged, StorageError, NotFound}, told
        assert told["upgrade"] is not None
    if mode == "overwrite":
        assert "again=True" in told["upgrade"].fix
        cs.Gallery.adopt(path, V1, vector="vector", id="key", again=True)
    else:
        with pytest.raises(StorageError, match=r"cs\.Gallery\.adopt"):
            cs.Gallery.open(path)
        cs.Gallery.adopt(path, V1, vector="vector", id="key")
    gallery = cs.Gallery.open(path)
    assert gallery.maintenance.verify().clean
    assert gallery.search(QUERY["v1"], k=2).num_rows == 2


def test_a_table_that_is_gone(database):
    path = locate(database.open_table("photos")).uri
    handle = cs.Gallery.open(path)
    shutil.rmtree(path)
    told = answers(path, handle=handle)
    assert {type(error) for error in told.values()} <= {StorageError, NotFound}, told


def test_columns_that_become_of_another_type(database):
    table = database.open_table("photos")
    path = locate(table).uri
    table.drop_columns(["vector"])
    table.add_columns({"vector": "'text'"})
    error = answers(path)["search"]
    assert isinstance(error, TableChanged)
    assert "column vector of v1 is string, expected fixed_size_list" in error.found


@pytest.mark.parametrize("name", ["_distance", "_version", "_origin", "_query"])
def test_columns_called_as_what_a_search_adds(database, name, tmp_path):
    taken = lancedb.connect(tmp_path / "other").create_table("t", rows(**{name: 1.5}))
    with pytest.raises(
        InvalidInput, match=rf"'{name}' \(results have a column of that name\)\. Give it another name"
    ) as raised:
        cs.Gallery.adopt(taken, V1, vector="vector", id="key")
    carry_out(None, raised.value.fix)
    cs.Gallery.adopt(lancedb.connect(tmp_path / "other").open_table("t"), V1, vector="vector", id="key")
    table = database.open_table("photos")
    gallery = cs.Gallery.open(table)
    table.add_columns({name: "1.5"})
    if name == "_distance":
        with pytest.raises(TableChanged, match="Give it another name") as raised:
            gallery.search(QUERY["v1"], k=2)
        carry_out(None, raised.value.fix)
    found = gallery.search(QUERY["v1"], k=2).column_names
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", ["id", "source", "vector", "side", "v" * 181, "v" * 255])
def test_names_that_no_new_version_can_have(database, tmp_path, name):
    version = cs.EmbeddingVersion(name, dim=24)
    with pytest.raises(InvalidInput, match=r"at most 180 characters"):
        cs.Gallery.create(str(tmp_path / "g.lance"), version)
    assert not (tmp_path / "g.lance").exists()
    with pytest.raises(InvalidInput, match="name"):
        cs.Gallery.open(database.open_table("photos")).register(version)
    plain = lancedb.connect(tmp_path / "other").create_table("t", rows())
    with pytest.raises(InvalidInput, match="name"):
        cs.Gallery.adopt(plain, version, vector="vector", id="key")


@pytest.mark.full
def test_the_longest_name_goes_through_a_whole_upgrade(tmp_path):
    name = "v" * 180
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    gallery.add({"id": [f"k{n}" for n in range(20)], "vector": VECTORS[:20]})
    encoder = cs.encoders.Precomputed({f"k{n}": np.arange(1, 41) + n for n in range(20)})
    version = cs.EmbeddingVersion(name, dim=40, encoder=encoder)
    gallery.register(version)
    gallery.artifacts.link(artifact(V1, version))
    assert gallery.upgrade(name, backfill=cs.Backfill(share=0.5, write_mode="rewrite_columns")).backfilled == 10
    gallery.cutover(name)
    gallery.retire("v1")
    assert gallery.maintenance.verify().clean


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("http://host/photos.lance", "http://"),
        ("https://host/photos.lance", "https://"),
        ("ftp://host/x", "ftp://"),
        ("s3://", "no bucket"),
        ("s3:///photos.lance", "no bucket"),
        ("gs://", "no bucket"),
        ("s3://#t", "no bucket"),
    ],
)
def test_addresses_where_no_table_lies(address, found):
    for call in (
        lambda: cs.Gallery.open(address),
        lambda: cs.Gallery.create(address, V1),
        lambda: cs.Gallery.adopt(address, V1, vector="vector", id="id"),
    ):
        with pytest.raises(InvalidInput, match=f"found {found}") as raised:
            call()
        assert "s3://BUCKET/photos.lance" in raised.value.fix


def test_an_unknown_type_of_the_ids_is_a_misfit(database):
    table = database.open_table("photos")
    path = locate(table).uri
    table.drop_columns(["key"])
    table.add_columns({"key": "1.5"})
    assert pa.types.is_floating(lance.dataset(path).schema.field("key").type)
    error = answers(path)["get"]
    assert isinstance(error, TableChanged)
    assert "column key of the items is double, expected string" in error.found
