"""What cannot be used is refused in one clear message, and the table's files are byte for byte what they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import compatstore as cs
from compatstore import errors
from compatstore.encoders import Precomputed
from properties import examples

V1 = cs.EmbeddingVersion("v1", dim=4, metric="l2")
V2 = cs.EmbeddingVersion("v2", dim=6, metric="l2")
VECTORS = np.ones((2, 4), np.float32)
IDS = ["x", "y"]


def with_value(value):
    vectors = VECTORS.astype(float)
    vectors[1, 2] = value
    return vectors


def lists(vectors):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(vectors, np.float32).reshape(-1)), len(vectors[0]))


def add(**columns):
    return lambda gallery: gallery.add({"id": IDS, "vector": VECTORS} | columns)


def search(query=VECTORS[0], **arguments):
    return lambda gallery: gallery.search(query, **arguments)


REFUSED = {
    "a wrong dimension": (add(vector=np.ones((2, 5))), errors.InvalidInput, "4 values; found 5"),
    "a wrong dimension in Arrow": (add(vector=lists(np.ones((2, 5)))), errors.InvalidInput, "4 values; found 5"),
    "NaN": (add(vector=with_value(np.nan)), errors.InvalidInput, "rows 1"),
    "NaN in Arrow": (add(vector=lists(with_value(np.nan))), errors.InvalidInput, "rows 1"),
    "infinity": (add(vector=with_value(-np.inf)), errors.InvalidInput, "rows 1"),
    "a double beyond float32": (add(vector=with_value(1e300)), errors.InvalidInput, "rows 1"),
    "a null inside a vector": (
        add(vector=pa.array([[1, 2, None, 4]] * 2, pa.list_(pa.float32(), 4))),
        errors.InvalidInput,
        "2 null values",
    ),
    "a None inside a vector": (add(vector=[[1, 2, None, 4]] * 2), errors.InvalidInput, "numbers"),
    "ragged vectors": (add(vector=[[1, 2, 3, 4], [1, 2]]), errors.InvalidInput, "one length"),
    "ragged vectors in Arrow": (add(vector=pa.array([[1, 2, 3, 4], [1, 2]])), errors.InvalidInput, "one length"),
    "vectors of text": (add(vector=["one", "two"]), errors.InvalidInput, "numbers"),
    "one number an item": (add(vector=[1.0, 2.0]), errors.InvalidInput, "one vector a row"),
    "an id twice in one call": (add(id=["x", "x"]), errors.InvalidInput, "repeated ids x"),
    "an id of the gallery": (add(id=["x", "c"]), errors.InvalidInput, "already in the gallery: c.*upsert=True"),
    "an id twice in an upsert": (
        lambda gallery: gallery.add({"id": ["a", "a"], "vector": VECTORS}, upsert=True),
        errors.InvalidInput,
        "repeated ids a",
    ),
    "a null id": (add(id=["x", None]), errors.InvalidInput, "none at row 1"),
    "whole numbers for ids": (add(id=[1, 2]), errors.InvalidInput, "string.*int64"),
    "broken numbers for ids": (add(id=[1.5, 2.5]), errors.InvalidInput, "string.*double"),
    "ids of two types": (add(id=["x", 2]), errors.InvalidInput, "ids of type string"),
    "no ids": (lambda gallery: gallery.add({"vector": VECTORS}), errors.InvalidInput, "a column 'id'"),
    "no vectors": (lambda gallery: gallery.add({"id": IDS}), errors.InvalidInput, "a vector for each item"),
    "columns of unequal length": (add(number=[1]), errors.InvalidInput, "id: 2, vector: 2, number: 1"),
    "one value for a column": (add(number=1), errors.InvalidInput, "number"),
    "no table at all": (lambda gallery: gallery.add(7), errors.InvalidInput, "Arrow table.*found int"),
    "side-information that no version has": (add(side=VECTORS), errors.InvalidInput, "side_dim"),
    "metadata of another type": (add(number=["one", "two"]), errors.InvalidInput, "'number' of type int64"),
    "metadata called as a version": (add(v2=[1, 2]), errors.InvalidInput, "'v2'"),
    "metadata called as a version's column": (add(v1__origin=IDS), errors.InvalidInput, "v1__origin"),
    "metadata that Lance keeps for itself": (add(_rowid=[1, 2]), errors.InvalidInput, "_rowid"),
    "metadata with a dot": (add(**{"a.b": [1, 2]}), errors.InvalidInput, "a.b"),
    "an unknown version": (
        lambda gallery: gallery.add({"id": IDS, "vector": VECTORS}, "v9"),
        errors.NotFound,
        "one of v1, v2",
    ),
    "a version that is only registered": (
        lambda gallery: gallery.add({"id": IDS, "vector": np.ones((2, 6))}, "v2"),
        errors.NotFound,
        r"registered only.*gallery\.upgrade",
    ),
    "a query of another dimension": (search(np.ones(5)), errors.InvalidInput, "4 values; found 5"),
    "queries of another dimension": (search(np.ones((3, 5))), errors.InvalidInput, "4 values"),
    "a query with NaN": (search([1, 2, float("nan"), 4]), errors.InvalidInput, "NaN"),
    "an empty query": (search([]), errors.InvalidInput, "4 values; found 0"),
    "no query at all": (search(np.empty((0, 4))), errors.InvalidInput, "one vector or more"),
    "ragged queries": (search([[1, 2, 3, 4], [1]]), errors.InvalidInput, "one length"),
    "a text without an encoder": (search("a cat"), errors.InvalidInput, "an encoder for v1"),
    "a query of another model": (search(fingerprint=V2.fingerprint), errors.Incompatible, V2.fingerprint),
    "a query of an unknown version": (search(version="v9"), errors.NotFound, "one of v1, v2"),
    "a query that nothing answers": (search(np.ones(6), version="v2"), errors.NotFound, "adapts its queries"),
    "k = 0": (search(k=0), errors.InvalidInput, "k >= 1; found 0"),
    "k = 2.5": (search(k=2.5), errors.InvalidInput, "whole number.*2.5"),
    "a column that is not there": (search(columns=["colour"]), errors.InvalidInput, "number.*found colour"),
    "a condition that is no SQL": (search(where="number >"), errors.InvalidInput, "a condition in SQL"),
    "a condition on no column": (search(where="colour = 'red'"), errors.InvalidInput, "colour"),
    "a condition that is no question": (search(where="number"), errors.InvalidInput, "boolean"),
    "an id that is not there": (lambda gallery: gallery.get(["a", "zz"]), errors.NotFound, "no item zz"),
    "a number for a text": (lambda gallery: gallery.get([1]), errors.InvalidInput, "text; found 1"),
    "a number to delete": (lambda gallery: gallery.delete([1]), errors.InvalidInput, "text; found 1"),
    "vectors of an unknown version": (lambda gallery: gallery.vectors(["a"], "v9"), errors.NotFound, "v1, v2"),
    "an upgrade to an unknown version": (lambda gallery: gallery.upgrade("v9"), errors.NotFound, "v1, v2"),
    "an upgrade without a path": (
        lambda gallery: gallery.upgrade("v2"),
        errors.NotFound,
        r"gallery\.artifacts\.link",
    ),
    "an upgrade by an unknown artifact": (
        lambda gallery: gallery.upgrade("v2", transform="beef"),
        errors.NotFound,
        "beef",
    ),
    "a plan for an unknown version": (
        lambda gallery: gallery.upgrade("v9", dry_run=True),
        errors.NotFound,
        "v1, v2",
    ),
    "more than everything": (lambda gallery: gallery.upgrade("v2", backfill=1.5), errors.InvalidInput, "0 to 1"),
    "a share that is no number": (
        lambda gallery: gallery.upgrade("v2", backfill=float("nan")),
        errors.InvalidInput,
        "from 0 to 1; found nan",
    ),
    "a backfill without an encoder": (
        lambda gallery: gallery.upgrade("v2", backfill=1.0),
        errors.UpgradeError,
        "an encoder for v2",
    ),
    "an unknown policy": (
        lambda gallery: gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, order="best")),
        errors.InvalidInput,
        "random.*'best'",
    ),
    "the active version as a target": (lambda gallery: gallery.upgrade("v1"), errors.InvalidInput, "v1 is active"),
    "a cutover before an upgrade": (lambda gallery: gallery.cutover("v2"), errors.UpgradeError, r"gallery\.upgrade"),
    "a cutover to nowhere": (lambda gallery: gallery.cutover("v9"), errors.NotFound, "v1, v2"),
    "a rollback of nothing": (lambda gallery: gallery.rollback(), errors.UpgradeError, "found none"),
    "the end of the active version": (lambda gallery: gallery.retire("v1"), errors.UpgradeError, "searches use"),
    "a version a second time": (lambda gallery: gallery.register(V2), errors.AlreadyExists, "v2"),
    "a version called as a column": (
        lambda gallery: gallery.register(cs.EmbeddingVersion("number", dim=2)),
        errors.InvalidInput,
        "own column number",
    ),
    "an index on ten rows": (
        lambda gallery: gallery.maintenance.index().create(),
        errors.InvalidInput,
        "256 vectors; found 10",
    ),
    "something that is no artifact": (
        lambda gallery: gallery.artifacts.link(7),
        errors.InvalidInput,
        "the path of one; found 7",
    ),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """One gallery for all refusals: it must not change, so one is enough."""
    folder = tmp_path_factory.mktemp("refusals")
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), V1)
    gallery.add({"id": list("abcdefghij"), "vector": np.eye(10, 4, dtype=np.float32), "number": range(10)})
    gallery.register(V2)
    return gallery, folder


def assert_refused(call, error, message):
    """One message that says what was expected and what was found instead."""
    with pytest.raises(error, match=f"(?s){message}") as refusal:
        call()
    assert refusal.value.expected
    assert refusal.value.found
    assert f"expected {refusal.value.expected}; found {refusal.value.found}" in str(refusal.value)


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_before_anything_is_written(untouched, files, call, error, message):
    gallery, folder = untouched
    before = files(folder)
    assert_refused(lambda: call(gallery), error, message)
    assert files(folder) == before
    assert len(gallery) == 10


def of_another_model(folder, linear):
    return linear(V1, cs.EmbeddingVersion("v2", dim=6, metric="l2", model="another"))


def backwards(folder, linear):
    return linear(V2, V1)


def backwards_between_equal_dimensions(folder, linear):
    return linear(cs.EmbeddingVersion("twin", dim=4, metric="l2"), V1)


def truncated(folder, linear):
    linear(V1, V2).save(folder / "h.compat")
    weights = folder / "h.compat" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    return folder / "h.compat"


def edited(folder, linear):
    linear(V1, V2).save(folder / "h.compat")
    manifest = folder / "h.compat" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"l2"', '"dot"'))
    return str(folder / "h.compat")


def halved(folder, linear):
    linear(V1, V2).save(folder / "h.compat")
    (folder / "h.compat" / "weights.safetensors").unlink()
    return folder / "h.compat"


def absent(folder, linear):
    return folder / "h.compat"


@pytest.mark.parametrize(
    ("make", "target", "error", "message"),
    [
        (of_another_model, "v2", errors.Incompatible, "v2 as its target"),
        (backwards, "v2", errors.Incompatible, "from v1 to v2; found one from v2 to v1"),
        (backwards_between_equal_dimensions, "twin", errors.Incompatible, "found one from twin to v1"),
        (truncated, "v2", errors.CorruptArtifact, "truncated or edited"),
        (edited, "v2", errors.CorruptArtifact, "edited after it was written"),
        (halved, "v2", errors.CorruptArtifact, "weights.safetensors"),
        (absent, "v2", errors.NotFound, "a directory written by Artifact.save"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_artifact_that_does_not_belong_is_not_linked(gallery, tmp_path, files, linear, make, target, error, message):
    gallery.register(V2)
    gallery.register(cs.EmbeddingVersion("twin", dim=4, metric="l2"))
    artifact = make(tmp_path, linear)
    before = files(tmp_path)
    assert_refused(lambda: gallery.artifacts.link(artifact, source="v1", target=target), error, message)
    assert files(tmp_path) == before


def test_weights_that_were_changed_beside_the_table_are_not_used(upgradable, tmp_path):
    stored = sorted((tmp_path / "gallery.lance" / "_compatstore").iterdir(), key=lambda path: path.stat().st_size)
    stored[0].write_bytes(stored[0].read_bytes()[:-1])
    assert_refused(
        lambda: cs.Gallery.open(str(tmp_path / "gallery.lance")).upgrade("v2"), errors.CorruptArtifact, "SHA-256"
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nothing.lance", "nothing there.*cs.Gallery.create"),
        ("folder", "a folder or file that is none"),
        ("file", "a folder or file that is none"),
        ("file/gallery.lance", "nothing there"),
        ("database#nothing", "nothing there"),
    ],
)
def test_what_is_no_gallery_is_not_opened(tmp_path, files, place, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("not a gallery")
    before = files(tmp_path)
    assert_refused(lambda: cs.Gallery.open(str(tmp_path / place)), errors.NotFound, message)
    assert files(tmp_path) == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("gallery.lance", errors.AlreadyExists),
        ("folder", errors.AlreadyExists),
        ("file", errors.AlreadyExists),
        ("file/gallery.lance", errors.StorageError),
        ("/proc/gallery.lance", errors.StorageError),
    ],
)
def test_a_gallery_is_not_made_where_it_cannot_be(gallery, tmp_path, files, place, error):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    before = files(tmp_path)
    assert_refused(lambda: cs.Gallery.create(str(tmp_path / place), V1), error, "")
    assert files(tmp_path) == before


def test_a_plain_table_says_how_to_adopt_it(tmp_path):
    import lance

    lance.write_dataset(pa.table({"id": IDS, "vector": lists(VECTORS)}), tmp_path / "plain.lance")
    assert_refused(
        lambda: cs.Gallery.open(str(tmp_path / "plain.lance")), errors.StorageError, "plain Lance table.*adopt"
    )


def test_an_encoder_of_another_model_does_not_open_the_gallery(tmp_path):
    ids = list("ab")
    one, other = (Precomputed(dict(zip(ids, VECTORS * factor, strict=True))) for factor in (1, 2))
    path = str(tmp_path / "gallery.lance")
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=4, encoder=one))
    assert gallery.add({"id": ids}).rows == 2
    assert_refused(lambda: cs.Gallery.open(path, encoders={"v1": other}), errors.Incompatible, other.fingerprint)
    assert_refused(lambda: cs.Gallery.open(path, encoders={"v9": one}), errors.NotFound, "one of v1")
    assert cs.Gallery.open(path, encoders={"v1": one}).version().encoder is one


def plain(tmp_path, **columns):
    import lance

    table = pa.table({"key": IDS, "embedding": lists(VECTORS)} | columns)
    lance.write_dataset(table, tmp_path / "plain.lance")
    return str(tmp_path / "plain.lance")


@pytest.mark.parametrize(
    ("columns", "arguments", "error", "message"),
    [
        ({}, {"vector": "vectors"}, errors.InvalidInput, "no column 'vectors'"),
        ({}, {"vector": "key"}, errors.InvalidInput, "fixed-size lists.*string"),
        ({}, {"id": "name"}, errors.InvalidInput, "no column 'name'"),
        ({}, {"id": "embedding"}, errors.InvalidInput, "text or whole numbers"),
        ({}, {"source": "uri"}, errors.InvalidInput, "no column 'uri'"),
        ({"embedding": lists(np.ones((2, 3)))}, {}, errors.InvalidInput, "4 values.*found 3"),
        ({"embedding": pa.array([[1.0, 2.0, 3.0, 4.0]] * 2)}, {}, errors.InvalidInput, "fixed-size lists"),
        ({"key": ["x", "x"]}, {}, errors.InvalidInput, "repeated ids x"),
        ({"key": ["x", None]}, {}, errors.InvalidInput, "none at row 1"),
        ({"key": [1.0, 2.0]}, {}, errors.InvalidInput, "text or whole numbers"),
        ({"key": pa.array([1, 2**63], pa.uint64())}, {}, errors.InvalidInput, "64 bits"),
    ],
)
def test_a_table_that_cannot_be_adopted_stays_as_it_is(tmp_path, files, columns, arguments, error, message):
    path = plain(tmp_path, **columns)
    before = files(tmp_path)
    assert_refused(
        lambda: cs.Gallery.adopt(path, V1, **({"vector": "embedding", "id": "key"} | arguments)), error, message
    )
    assert files(tmp_path) == before


def test_a_table_is_adopted_once(tmp_path, files):
    path = plain(tmp_path)
    cs.Gallery.adopt(path, V1, vector="embedding", id="key")
    before = files(tmp_path)
    assert_refused(
        lambda: cs.Gallery.adopt(path, V1, vector="embedding", id="key"), errors.InvalidInput, "no gallery yet"
    )
    assert files(tmp_path) == before


def test_an_adopted_table_gets_no_columns_but_its_versions(tmp_path, files):
    gallery = cs.Gallery.adopt(plain(tmp_path), V1, vector="embedding", id="key")
    before = files(tmp_path)
    assert_refused(
        lambda: gallery.add({"id": ["z"], "vector": VECTORS[:1], "colour": ["red"]}), errors.InvalidInput, "colour"
    )
    assert files(tmp_path) == before


def test_an_empty_gallery_does_all_that_a_full_one_does(tmp_path, linear):
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), V1)
    gallery.register(V2)
    gallery.artifacts.link(linear(V1, V2))
    assert len(gallery) == 0
    assert gallery.search(VECTORS[0]).num_rows == 0
    assert gallery.search(VECTORS).num_rows == 0
    assert gallery.get([]).num_rows == 0
    assert gallery.vectors([]).shape == (0, 4)
    assert gallery.delete(["a"]) == 0
    assert gallery.add({"id": [], "vector": []}).rows == 0
    assert gallery.add(pa.table({"id": pa.array([], pa.string()), "vector": lists(VECTORS)[:0]})).rows == 0
    assert gallery.upgrade("v2", dry_run=True).rows == 0
    report = gallery.upgrade("v2")
    assert (report.state, report.transformed, report.missing) == ("ready", 0, 0)
    assert gallery.cutover("v2").active == "v2"
    assert gallery.status().rows == gallery.status().missing == 0
    assert gallery.search(np.ones(6)).num_rows == 0
    assert gallery.rollback().active == "v1"
    gallery.upgrade("v2")
    gallery.cutover("v2")
    assert gallery.retire("v1").active == "v2"
    assert gallery.add({"id": ["a"], "vector": np.ones((1, 6))}).rows == 1
    assert gallery.search(np.ones(6)).column("id").to_pylist() == ["a"]


# Text that would end an SQL string, comment the rest away, or mean something to a pattern.
NASTY = ["'", "''", "\\", "\\'", "' OR 1=1 --", '") OR ("1"="1', "%", "_", "`", "\n", "\0", "é", "e\u0301", "🖼", ""]
names = st.lists(
    st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
    min_size=1,
    max_size=6,
    unique=True,
)


@pytest.fixture(scope="module")
def persistent(tmp_path_factory):
    gallery = cs.Gallery.create(str(tmp_path_factory.mktemp("nasty") / "gallery.lance"), V1)
    gallery.add({"id": ["bystander"], "vector": VECTORS[:1], "note": ["mine"]})
    return gallery


@pytest.mark.full
@examples(25)
@given(names)
def test_an_id_is_never_anything_but_an_id(persistent, ids):
    ids = [name for name in ids if name != "bystander"] or ["'"]
    first, second = (np.random.default_rng(seed).normal(size=(len(ids), 4)).astype(np.float32) for seed in (1, 2))
    assert persistent.add({"id": ids, "vector": first, "note": ids}).rows == len(ids)
    with pytest.raises(errors.InvalidInput, match="already in the gallery"):
        persistent.add({"id": ids, "vector": second})
    assert np.array_equal(persistent.vectors(ids), first)
    assert persistent.add({"id": ids, "vector": second}, upsert=True).rows == len(ids)
    found = persistent.get(ids)
    assert found.column("id").to_pylist() == ids
    assert found.column("note").to_pylist() == ids
    assert np.array_equal(persistent.vectors(ids), second)
    nearest = persistent.search(second[0], 1)
    assert nearest.column("id").to_pylist() == [ids[0]]
    assert persistent.delete(ids) == len(ids)
    assert persistent.get(["bystander"]).num_rows == len(persistent) == 1


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    return cs.Gallery.create(str(tmp_path_factory.mktemp("numbered") / "gallery.lance"), V1, id_type="int64")


@examples(10)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True))
@example([-(2**63), 2**63 - 1])
def test_whole_numbers_of_any_size_are_ids(numbered, ids):
    assert numbered.add({"id": ids, "vector": np.ones((len(ids), 4))}).rows == len(ids)
    assert numbered.get(np.array(ids)).column("id").to_pylist() == ids
    assert numbered.delete(pa.array(ids)) == len(ids)
    assert len(numbered) == 0


def test_a_gallery_of_numbers_takes_no_text(numbered):
    assert_refused(lambda: numbered.get([2**63]), errors.InvalidInput, "64 bits")
    assert_refused(lambda: numbered.add({"id": ["1"], "vector": VECTORS[:1]}), errors.InvalidInput, "int64")
