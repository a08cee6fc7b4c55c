"""A gallery beside each store: mirrored, in step with it, upgraded, switched, and nothing left behind."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import AlreadyExists, CompatStoreError, InvalidInput, NotFound, UpgradeError
from compatstore.stores import link
from compatstore.trainers import Ridge

NAME, ROWS, SHORT, LONG = "notes", 120, 8, 12
LEARN = cs.Learn(first=40, candidates=(Ridge(penalties=(0.1,)),), time_share=None)


def embed(texts, dim, seed):
    """Vectors of unit length that depend on the text alone; similar for texts with the same words."""
    rows = []
    for text in texts:
        words = [np.random.default_rng([seed, *word.encode()]).normal(size=dim) for word in text.split() or [" "]]
        rows.append(np.sum(words, axis=0))
    rows = np.array(rows)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def old(texts):
    return embed(texts, SHORT, 1)


def new(texts):
    return embed(texts, LONG, 2)


def row_of(key, text):
    return {"id": key, "vector": old([text])[0].tolist(), "text": text, "lang": "en"}


def target():
    encoder = cs.encoders.Function(new, dim=LONG, fingerprint="new-words")
    return cs.EmbeddingVersion("v2", dim=LONG, encoder=encoder)


def id_type(engine):
    return getattr(engine, "id_types", ("string", "int64"))[-1]


def key(engine, number):
    """The id of a row, as the engine can have it."""
    return number if id_type(engine) == "int64" else f"id-{number}"


@pytest.fixture
def rows(engine):
    """Rows of the app: half of a small vocabulary, so that few words make many texts."""
    rng, words = np.random.default_rng(0), [f"word{n}" for n in range(12)]
    made = [row_of(key(engine, n + 1), " ".join(rng.choice(words, 3))) for n in range(ROWS)]
    engine.create(NAME, SHORT, "cosine", id_type=id_type(engine), rows=made)
    return made


def mirror(engine, tmp_path, **options):
    named = {"source": engine.parts.source, "id": engine.parts.id, "vector": engine.parts.vector}
    options = {"track": getattr(engine, "track", False), **options}
    return cs.Gallery.mirror(engine.address(NAME), str(tmp_path / "notes.lance"), "v1", **named, **options)


def upgraded(gallery, share=0.5, **options):
    return gallery.upgrade(target(), backfill=share, learn=LEARN, **options)


def held(gallery, version):
    """Vectors of a version by id."""
    ids = gallery.scan([gallery.columns.id]).to_arrow()[gallery.columns.id].to_pylist()
    present = gallery.scan([gallery.columns.id, version]).to_arrow()
    values = dict(zip(present[gallery.columns.id].to_pylist(), present[version].to_pylist(), strict=True))
    return {key: values[key] for key in ids}


def require_same(engine, gallery, rows):
    """The app's rows are as it wrote them, and each target vector in the store is the gallery's."""
    there, here = engine.rows(NAME, target="v2"), held(gallery, "v2")
    assert set(there) == set(here) == {row["id"] for row in rows}
    for row in rows:
        found = there[row["id"]]
        assert found["text"] == row["text"]
        np.testing.assert_allclose(found["vector"], row["vector"], atol=1e-5)
        if here[row["id"]] is None:
            assert found["target"] is None
        else:
            mine = np.array(here[row["id"]])
            unit = mine / np.linalg.norm(mine)  # a store may scale them
            np.testing.assert_allclose(np.array(found["target"]) / np.linalg.norm(found["target"]), unit, atol=1e-5)


def test_a_mirror_holds_what_the_store_holds(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    assert len(gallery) == ROWS
    found = held(gallery, "v1")
    for row in rows:
        np.testing.assert_allclose(found[row["id"]], row["vector"], atol=1e-5)
    texts = gallery.scan(["id", "source"]).to_arrow().to_pylist()
    assert {row["id"]: row["source"] for row in texts} == {row["id"]: row["text"] for row in rows}
    again = mirror(engine, tmp_path)
    assert len(again) == ROWS
    assert again.sync().added == 0
    status = gallery.status().store
    assert (status.rows, status.source, dict(status.held), status.switched) == (ROWS, "v1", {}, "")


def test_a_sync_follows_what_the_app_adds_changes_and_deletes(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    changed, added = row_of(key(engine, 3), "another text"), row_of(key(engine, 1001), "an added text")
    engine.put(NAME, [changed, added])
    engine.delete(NAME, [key(engine, 5), key(engine, 7)])
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted) == (1, 1, 2)
    assert len(gallery) == ROWS - 1
    np.testing.assert_allclose(held(gallery, "v1")[changed["id"]], changed["vector"], atol=1e-5)
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted, done.written) == (0, 0, 0, 0)


def test_an_upgrade_writes_its_vectors_beside_the_apps(engine, rows, tmp_path):
    before = engine.objects()
    gallery = mirror(engine, tmp_path)
    assert engine.objects() == before
    plan = gallery.upgrade(target(), backfill=0.5, learn=LEARN, dry_run=True)
    (push,) = [step for step in plan.steps if step.name == "push"]
    assert push.rows == ROWS
    assert engine.objects() == before
    result = upgraded(gallery)
    assert (result.state, result.missing) == ("ready", 0)
    require_same(engine, gallery, rows)
    assert gallery.sync().written == 0
    assert dict(gallery.status().store.held) == {"v2": ROWS}
    assert not [found.what for found in gallery.maintenance.verify().findings if found.check == "store"]
    gallery.abort("v2")
    assert engine.objects() == before
    assert engine.rows(NAME).keys() == {row["id"] for row in rows}


def test_target_vectors_follow_changed_deleted_and_added_rows(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    upgraded(gallery)
    changed, added = row_of(key(engine, 3), "word1 word2 word9"), row_of(key(engine, 1001), "word3 word4 word5")
    engine.put(NAME, [changed, added])
    engine.delete(NAME, [key(engine, 5)])
    rows = [changed if row["id"] == changed["id"] else row for row in rows if row["id"] != key(engine, 5)] + [added]
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted) == (1, 1, 1)
    upgraded(gallery)
    require_same(engine, gallery, rows)
    assert gallery.status().missing == 0


def test_a_cutover_switches_the_app_and_a_rollback_switches_it_back(engine, rows, tmp_path):
    before = engine.objects()
    gallery = mirror(engine, tmp_path)
    upgraded(gallery, 1.0)
    change = gallery.cutover("v2")
    assert change.store
    assert gallery.status().store.switched == "v2"
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted, done.written) == (0, 0, 0, 0)
    assert gallery.cutover("v2").active == "v2"
    gallery.rollback()
    assert gallery.status().store.switched == ""
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted, done.written) == (0, 0, 0, 0)
    require_same(engine, gallery, rows)
    upgraded(gallery, 1.0)
    gallery.abort("v2")
    assert engine.objects() == before


def test_after_retirement_the_target_is_the_apps_own(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    gallery.retire("v1", drop_adopted=True)
    assert not gallery.retire("v1", drop_adopted=True).changed
    status = gallery.status().store
    assert (status.source, dict(status.held), status.switched) == ("v2", {}, "")
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted, done.written) == (0, 0, 0, 0)
    assert len(gallery) == ROWS


def test_a_place_that_another_made_is_left_alone(engine, rows, tmp_path):
    first = mirror(engine, tmp_path)
    upgraded(first)
    objects = engine.objects()
    second = cs.Gallery.mirror(
        engine.address(NAME), str(tmp_path / "second.lance"), "v1", source=engine.parts.source, id=engine.parts.id,
        vector=engine.parts.vector,
    )  # fmt: skip
    with pytest.raises(AlreadyExists):
        upgraded(second)
    assert engine.objects() == objects
    require_same(engine, first, rows)


def test_wrong_input_is_refused_before_anything_is_written(engine, rows, tmp_path):
    objects, path = engine.objects(), tmp_path / "wrong.lance"
    with pytest.raises(NotFound):
        cs.Gallery.mirror(engine.address("absent"), str(path), "v1")
    with pytest.raises(NotFound, match="among"):
        cs.Gallery.mirror(engine.address(NAME), str(path), "v1", source="no such column", id=engine.parts.id,
                          vector=engine.parts.vector)  # fmt: skip
    with pytest.raises(InvalidInput):
        cs.Gallery.mirror(engine.address(NAME), str(path), cs.EmbeddingVersion("v1", dim=5), id=engine.parts.id,
                          vector=engine.parts.vector)  # fmt: skip
    with pytest.raises(CompatStoreError):
        cs.Gallery.mirror("pinecone:x#y", str(path), "v1")
    assert not path.exists()
    assert engine.objects() == objects
    plain = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=2))
    with pytest.raises(UpgradeError, match="mirrors a store"):
        plain.sync()


def test_one_process_syncs_at_a_time(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    with link.syncing(gallery._catalog, cs.upgrade.progress.UNOBSERVED), pytest.raises(CompatStoreError, match="other"):
        gallery.sync()
    assert gallery.sync().added == 0


def test_a_search_takes_candidates_from_the_stores_indexes(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    upgraded(gallery, 0.5)
    texts = ["word1 word2 word3", "word4 word4 word7"]
    queries = {"v1": old(texts), "v2": new(texts)}
    here = gallery.search(queries, k=5, columns=["id"])
    there = gallery.search(queries, k=5, columns=["id"], serving=cs.StoreIndexes(depth=ROWS))
    assert there["id"].to_pylist() == here["id"].to_pylist()
    np.testing.assert_allclose(there["_distance"].to_numpy(), here["_distance"].to_numpy(), atol=1e-5)
    few = gallery.search(queries, k=5, columns=["id"], serving=cs.StoreIndexes(depth=1))
    assert 2 <= few.num_rows <= 4
    plan = str(gallery.explain(queries, k=5, serving=cs.StoreIndexes()))
    assert f"candidates: indexes of {gallery.status().store.store} over v1 and v2; ranked here" in plan
    gallery.register(cs.EmbeddingVersion("v3", dim=3))
    with pytest.raises(UpgradeError, match="v3"):
        cs.StoreIndexes().candidates(gallery._catalog, {"v3": np.ones((1, 3), np.float32)}, 1)


def test_a_rollback_keeps_rows_that_the_app_added_after_the_cutover(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    if not link.describe(gallery.status().store.store, vector=engine.parts.vector, id=engine.parts.id).switch:
        pytest.skip("the app changes the name that it reads itself")
    added = row_of(key(engine, 1001), "word3 word4 word5")
    engine.put(NAME, [added | {"vector": new([added["text"]])[0].tolist()}])
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted) == (1, 0, 0)
    assert gallery.search(new([added["text"]])[0], k=1, columns=["id"])["id"].to_pylist() == [added["id"]]
    gallery.rollback()
    assert gallery.sync().deleted == 0
    assert added["id"] in gallery.scan(["id"]).to_arrow()["id"].to_pylist()


def test_maintenance_keeps_the_ledger(engine, rows, tmp_path):
    gallery = mirror(engine, tmp_path)
    gallery.maintenance.optimize(grace=0.0)
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted) == (0, 0, 0)
    assert not [each for each in gallery.maintenance.verify().findings if each.severity == "error"]
