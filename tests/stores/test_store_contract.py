"""Every store holds to the protocol of `compatstore/stores/store.py`, on its real engine."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from compatstore.errors import CompatStoreError, NotFound
from compatstore.stores.address import Address
from compatstore.stores.store import (
    BATCH,
    ID,
    KNOWN,
    MADE_FROM,
    SOURCE,
    VECTOR,
    Parts,
    digests,
    matrix,
    vector_column,
)
from properties import examples

NAME, TARGET, DIM, LONG = "notes", "v2", 8, 12
LENGTHS = {"cosine": 1.0, "l2": 3.0, "dot": 3.0}
ODD = ("", "a'b", 'a"b', "ü 漢字 🦜", "x" * 200, "a;b--", "a\\b", "%s", "$1", " a ", "None", "0", "1", "{}", "a\nb")
_numbers = count()


def unit(values):
    values = np.asarray(values, np.float32)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def of(seed, dim, length=1.0):
    """A vector that depends on the seed alone."""
    return (unit(np.random.default_rng(seed).normal(size=dim)) * np.float32(length)).astype(np.float32)


def row_of(number, key, dim=DIM, length=1.0, **values):
    row = {"id": key, "vector": of([1, number], dim, length).tolist(), "text": f"text {number}", "lang": "en"}
    return {**row, **values}


def key_of(engine, number):
    """An id of texts, or of UUIDs for an engine that has no texts for ids."""
    return f"00000000-0000-4000-8000-{number:012d}" if getattr(engine, "text_ids", "") == "uuid" else f"row-{number}"


def id_types(engine):
    return getattr(engine, "id_types", ("string", "int64"))


def made(engine, count=30, collection=NAME, metric="cosine", **options):
    """A collection of some rows; of those of an id type that the engine has."""
    id_type = options.pop("id_type", id_types(engine)[0])
    keys = [number if id_type == "int64" else key_of(engine, number) for number in range(1, count + 1)]
    rows = [row_of(number, key, length=LENGTHS[metric]) for number, key in enumerate(keys)]
    engine.create(collection, DIM, metric, id_type=id_type, rows=rows, **options)
    return rows


def opened(engine, collection=NAME):
    return closing(Address.of(engine.address(collection)).open())


def scanned(store, parts):
    """Rows of a scan by id."""
    rows = {}
    for table in store.scan(parts):
        rows |= by_id(table)
    return rows


def by_id(table):
    return {row[ID]: row for row in table.to_pylist()}


def targets(store, ids=None):
    """Target vectors by id."""
    return {key: row[VECTOR] for table in store.read_target(TARGET, ids) for key, row in by_id(table).items()}


def batch(store, engine, ids, number=2, known=None):
    """Target vectors to write, made of the source vectors that the store has now."""
    there = by_id(store.read(list(ids), engine.parts))
    here = [there[key][VECTOR] for key in ids]
    present = [vector is not None for vector in here]
    sources = np.array([vector if vector is not None else [0.0] * DIM for vector in here], np.float32)
    columns = {
        ID: pa.array(list(ids), pa.int64() if isinstance(next(iter(ids)), int) else pa.string()),
        VECTOR: vector_column(np.array([of([number, *str(key).encode()], LONG) for key in ids]), LONG),
        MADE_FROM: vector_column(sources, DIM, present),
        KNOWN: pa.array([None] * len(ids) if known is None else known, pa.binary()),
    }
    return pa.table(columns)


def require_rows(found, expected, parts):
    """Rows of a scan are those of the engine."""
    assert set(found) == set(expected)
    for key, row in expected.items():
        if row["vector"] is None:
            assert found[key][VECTOR] is None
        else:
            np.testing.assert_allclose(found[key][VECTOR], row["vector"], atol=1e-6)
        assert found[key][SOURCE] == row["text"]
        assert [found[key][name] for name in parts.metadata] == [row["lang"] for _ in parts.metadata]


def require_same(rows, others):
    """Rows of the engine are as they were, to the last bit."""
    assert set(rows) == set(others)
    for key, row in rows.items():
        assert (row["text"], row["lang"]) == (others[key]["text"], others[key]["lang"])
        np.testing.assert_array_equal(row["vector"], others[key]["vector"])


def require_directions(found, expected):
    """Vectors by id have the directions of others: a store may scale them."""
    assert set(found) == set(expected)
    for key, vector in expected.items():
        np.testing.assert_allclose(unit(found[key]), unit(vector), atol=1e-5)


def rows_of(table):
    return dict(zip(table[ID].to_pylist(), matrix(table[VECTOR]), strict=True))


# Describe


@pytest.mark.parametrize("count", [0, 1, 30])
def test_describe_counts_rows_and_names_parts(engine, count):
    for id_type in id_types(engine):
        collection = f"{NAME}_{id_type}"
        made(engine, count, collection, id_type=id_type)
        objects = engine.objects()
        with opened(engine, collection) as store:
            about = store.describe(engine.parts)
        assert about.rows == count
        assert about.id_type == id_type or (count == 0 and getattr(engine, "types_ids_by_rows", False))
        assert about.dim == DIM or (about.dim, count) == (0, 0)
        assert (about.parts.id, about.parts.vector) == (engine.parts.id, engine.parts.vector)
        assert {engine.parts.source, *engine.parts.metadata} - {None} <= set(about.columns)
        assert about.beside in ("column", "collection", "table", "file")
        assert not [note for note in about.notes if not note.endswith(".")]
        assert engine.objects() == objects


@pytest.mark.parametrize("metric", LENGTHS)
def test_describe_names_the_metric(engine, metric):
    if metric not in getattr(engine, "metrics", LENGTHS):
        pytest.skip(f"{engine.name} has no {metric}")
    made(engine, 12, metric=metric)
    with opened(engine) as store:
        assert store.describe(engine.parts).metric == metric


# Scan and read


@pytest.mark.parametrize("float16", [False, True])
def test_scan_gives_all_rows(engine, float16):
    rows = made(engine, 30, float16=float16)
    if getattr(engine, "keeps_nulls", True):
        engine.put(NAME, [row_of(3, rows[3]["id"], vector=None), row_of(4, rows[4]["id"], text=None, lang=None)])
    with opened(engine) as store:
        store.describe(engine.parts)
        require_rows(scanned(store, engine.parts), engine.rows(NAME), engine.parts)


def test_scan_of_an_empty_collection_gives_nothing(engine):
    made(engine, 0)
    with opened(engine) as store:
        assert scanned(store, engine.parts) == {}


def test_scan_follows_what_the_app_writes(engine):
    rows = made(engine)
    with opened(engine) as store:
        assert len(scanned(store, engine.parts)) == 30
        engine.delete(NAME, [rows[0]["id"]])
        engine.put(NAME, [row_of(99, rows[1]["id"])])
        require_rows(scanned(store, engine.parts), engine.rows(NAME), engine.parts)


def test_read_leaves_out_what_is_not_there(engine):
    rows = made(engine)
    ids = [row["id"] for row in rows]
    absent = 12345 if isinstance(ids[0], int) else key_of(engine, 12345)
    with opened(engine) as store:
        found = store.read([ids[7], absent, ids[2]], engine.parts)
        there = engine.rows(NAME)
        require_rows(by_id(found), {key: there[key] for key in (ids[7], ids[2])}, engine.parts)
        assert store.read([], engine.parts).num_rows == 0
        none = store.read([absent], engine.parts)
        assert none.num_rows == 0
        assert {ID, VECTOR, SOURCE, *engine.parts.metadata} <= set(none.column_names)


# Targets


def test_target_vectors_are_written_read_and_removed(engine):
    rows = made(engine)
    ids, before, objects = [row["id"] for row in rows], engine.rows(NAME), engine.objects()
    with opened(engine) as store:
        store.describe(engine.parts)
        assert not store.has(TARGET)
        assert engine.objects() == objects
        for _ in range(2):
            store.prepare(TARGET, LONG, "cosine")
            assert store.has(TARGET)
        assert not store.has("v3")
        assert targets(store) == {}
        some = batch(store, engine, ids[:20])
        assert set(store.write(TARGET, some)) == set(ids[:20])
        require_directions(targets(store), rows_of(some))
        require_directions(targets(store, ids[15:]), rows_of(some.slice(15)))
        held = targets(store)
        known = digests(vector_column([held[key] for key in ids[:20]], LONG))
        assert set(store.write(TARGET, some.set_column(3, KNOWN, pa.array(known, pa.binary())))) == set(ids[:20])
        assert targets(store) == held
        other = batch(store, engine, ids[:5], number=3, known=known[:5])
        assert set(store.write(TARGET, other)) == set(ids[:5])
        require_directions(targets(store, ids[:5]), rows_of(other))
        for _ in range(2):
            store.remove(TARGET, [*ids[:3], ids[29]])
            assert set(targets(store)) == set(ids[3:20])
        store.remove(TARGET, [])
    require_same(engine.rows(NAME), before)
    there = engine.rows(NAME, target=TARGET)
    assert {key for key, row in there.items() if row["target"] is not None} == set(ids[3:20])


def test_rows_that_the_app_changed_are_not_written_for_what_they_were(engine):
    rows = made(engine)
    ids = [row["id"] for row in rows]
    with opened(engine) as store:
        conditional = store.describe(engine.parts).is_conditional
        store.prepare(TARGET, LONG, "cosine")
        some = batch(store, engine, ids)
        engine.delete(NAME, [ids[0]])
        engine.put(NAME, [row_of(99, ids[1])])
        there = engine.rows(NAME)
        done = set(store.write(TARGET, some))
        assert done >= set(ids[2:])
        if conditional:
            assert done == set(ids[2:])
            require_directions(targets(store), {key: row for key, row in rows_of(some).items() if key in done})
    require_same(engine.rows(NAME), there)


def test_a_row_without_a_vector_has_a_target_vector(engine):
    if not getattr(engine, "keeps_nulls", True):
        pytest.skip(f"each row of {engine.name} has a vector")
    rows = made(engine, 5)
    engine.put(NAME, [row_of(0, rows[0]["id"], vector=None)])
    with opened(engine) as store:
        store.describe(engine.parts)
        store.prepare(TARGET, LONG, "cosine")
        some = batch(store, engine, [row["id"] for row in rows])
        assert set(store.write(TARGET, some)) == {row["id"] for row in rows}
        require_directions(targets(store), rows_of(some))


def test_drop_leaves_what_was_there(engine):
    rows = made(engine)
    made(engine, 5, f"{NAME}_v3")
    before, other, objects = engine.rows(NAME), engine.rows(f"{NAME}_v3"), engine.objects()
    with opened(engine) as store:
        store.describe(engine.parts)
        store.drop(TARGET)
        store.prepare(TARGET, LONG, "cosine")
        store.write(TARGET, batch(store, engine, [row["id"] for row in rows]))
    assert engine.objects() != objects
    with opened(engine) as store:
        store.describe(engine.parts)
        for _ in range(2):
            store.drop(TARGET)
            assert not store.has(TARGET)
    assert engine.objects() == objects
    require_same(engine.rows(NAME), before)
    require_same(engine.rows(f"{NAME}_v3"), other)


# Switch


def prepared(engine, store):
    """Target vectors of all rows of the collection."""
    about = store.describe(engine.parts)
    store.prepare(TARGET, LONG, "cosine")
    some = batch(store, engine, list(engine.rows(NAME)))
    store.write(TARGET, some)
    return about, rows_of(some)


def test_a_switch_gives_the_app_the_target_and_back(engine):
    made(engine)
    before = engine.rows(NAME)
    with opened(engine) as store:
        about, expected = prepared(engine, store)
        assert not store.is_switched(TARGET)
        for _ in range(2):
            store.switch(TARGET)
            assert store.is_switched(TARGET)
        require_directions({key: row[VECTOR] for key, row in scanned(store, engine.parts).items()}, expected)
        require_directions(targets(store), expected)
        address, named = store.place(TARGET)
    parts = replace(engine.parts, id=named.id, vector=named.vector)
    assert address == str(Address.of(address))
    if about.switch:
        require_directions({key: row["vector"] for key, row in engine.rows(NAME).items()}, expected)
    with closing(Address.of(address).open()) as store:
        store.describe(parts)
        there = scanned(store, parts)
        require_directions({key: row[VECTOR] for key, row in there.items()}, expected)
        assert {key: row[SOURCE] for key, row in there.items()} == {key: row["text"] for key, row in before.items()}
    with opened(engine) as store:
        store.describe(engine.parts)
        assert store.is_switched(TARGET) == bool(about.switch)
        if not about.switch:
            assert store.app_change(TARGET).endswith(".")
            store.switch(TARGET)
        for _ in range(2):
            store.switch_back(TARGET)
            assert not store.is_switched(TARGET)
        require_rows(scanned(store, engine.parts), before, engine.parts)
        require_directions(targets(store), expected)
    require_same(engine.rows(NAME), before)


def test_vectors_are_written_after_a_switch_too(engine):
    made(engine)
    with opened(engine) as store:
        _, expected = prepared(engine, store)
        made_from = batch(store, engine, list(expected))[MADE_FROM]
        held = targets(store)
        store.switch(TARGET)
        ids = list(expected)
        vectors = np.array([of([3, number], LONG) for number in range(4)])
        known = digests(vector_column([held[key] for key in ids[:4]], LONG))
        columns = {
            ID: pa.array(ids[:4], pa.int64() if isinstance(ids[0], int) else pa.string()),
            VECTOR: vector_column(vectors, LONG),
            MADE_FROM: made_from.slice(0, 4),
            KNOWN: pa.array(known, pa.binary()),
        }
        assert set(store.write(TARGET, pa.table(columns))) == set(ids[:4])
        expected |= dict(zip(ids[:4], vectors, strict=True))
        require_directions(targets(store), expected)
        store.switch_back(TARGET)
        require_directions(targets(store), expected)


def test_after_a_switch_the_apps_old_vectors_are_dropped(engine):
    made(engine)
    with opened(engine) as store:
        _, expected = prepared(engine, store)
        store.switch(TARGET)
        address, named = store.place(TARGET)
        for _ in range(2):
            store.drop_source(TARGET)
    parts = replace(engine.parts, id=named.id, vector=named.vector)
    with closing(Address.of(address).open()) as store:
        assert store.describe(parts).dim == LONG
        require_directions({key: row[VECTOR] for key, row in scanned(store, parts).items()}, expected)


# Search


@pytest.mark.parametrize("metric", LENGTHS)
def test_search_finds_the_nearest(engine, metric):
    if metric not in getattr(engine, "metrics", LENGTHS):
        pytest.skip(f"{engine.name} has no {metric}")
    made(engine, metric=metric)
    query = of([9], DIM, LENGTHS[metric])
    rows = engine.rows(NAME)
    vectors = np.array([row["vector"] for row in rows.values()], np.float64)
    far = np.sum((vectors - query) ** 2, axis=1) if metric == "l2" else -(vectors @ query)
    with opened(engine) as store:
        store.describe(engine.parts)
        ids, distances = store.search(None, query, 5)
        assert list(ids) == [list(rows)[at] for at in np.argsort(far)[:5]]
        assert np.all(np.diff(distances) >= 0)
        _, expected = prepared(engine, store)
        query = of([10], LONG)
        ids, distances = store.search(TARGET, query, 5)
        nearest = np.argsort([-float(vector @ query) for vector in expected.values()])
        assert list(ids) == [list(expected)[at] for at in nearest[:5]]
        assert np.all(np.diff(distances) >= 0)


# Odd values


def keys(engine):
    """Ids as a strategy."""
    if getattr(engine, "text_ids", "") == "uuid":
        return st.uuids(version=4).map(str)
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    odd = [key for key in ODD if key not in getattr(engine, "refused_ids", ())]
    return st.sampled_from(odd) | st.text(letters, min_size=1, max_size=60)


@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_odd_ids_and_texts_come_through(engine, data):
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    if "string" not in id_types(engine):
        ids = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=12, unique=True))
    else:
        ids = data.draw(st.lists(keys(engine), min_size=1, max_size=12, unique=True))
    texts = data.draw(st.lists(st.text(letters, min_size=1, max_size=30), min_size=len(ids), max_size=len(ids)))
    rows = [row_of(number, key, text=text) for number, (key, text) in enumerate(zip(ids, texts, strict=True))]
    collection = f"odd_{next(_numbers)}"
    engine.create(collection, DIM, "cosine", id_type="string" if isinstance(ids[0], str) else "int64", rows=rows)
    with opened(engine, collection) as store:
        store.describe(engine.parts)
        require_rows(scanned(store, engine.parts), engine.rows(collection), engine.parts)
        assert set(engine.rows(collection)) == set(ids)
        store.prepare(TARGET, LONG, "cosine")
        some = batch(store, engine, ids)
        assert set(store.write(TARGET, some)) == set(ids)
        require_directions(targets(store, ids), rows_of(some))
        store.remove(TARGET, ids[:1])
        assert set(targets(store)) == set(ids[1:])


def test_odd_names_of_collections_work(engine):
    for name in getattr(engine, "odd_names", ()):
        made(engine, 5, name)
        with opened(engine, name) as store:
            store.describe(engine.parts)
            objects = engine.objects()
            store.prepare(TARGET, LONG, "cosine")
            some = batch(store, engine, list(engine.rows(name)))
            assert len(store.write(TARGET, some)) == 5
            require_directions(targets(store), rows_of(some))
            require_rows(scanned(store, engine.parts), engine.rows(name), engine.parts)
            store.drop(TARGET)
        assert engine.objects() == objects


# Errors


def test_what_is_not_there_is_named(engine):
    made(engine, 3)
    with pytest.raises(NotFound) as found, opened(engine, "absent") as store:
        store.describe()
    assert getattr(engine, "secret", "no secret") not in str(found.value)
    with pytest.raises(CompatStoreError), opened(engine, "absent") as store:
        scanned(store, engine.parts)
    with opened(engine) as store, pytest.raises(CompatStoreError):
        store.describe(Parts(id=engine.parts.id, vector="no such column"))
    with opened(engine) as store, pytest.raises(CompatStoreError):
        scanned(store, Parts(engine.parts.id, engine.parts.vector, "no such column"))
    with opened(engine) as store:
        store.describe(engine.parts)
        with pytest.raises(CompatStoreError):
            targets(store)


@pytest.mark.slow
def test_many_rows_are_streamed_while_the_app_writes(engine):
    rows, ids = 50_000, id_types(engine)[-1]
    keys = [number if ids == "int64" else key_of(engine, number) for number in range(rows)]
    vectors = unit(np.random.default_rng(0).normal(size=(rows, DIM))).tolist()
    start = BATCH * 2
    whole = [
        {"id": key, "vector": vector, "text": f"{key}", "lang": "en"} for key, vector in zip(keys, vectors, strict=True)
    ]
    engine.create(NAME, DIM, "cosine", id_type=ids, rows=whole)
    with opened(engine) as store:
        assert store.describe(engine.parts).rows == rows
        store.prepare(TARGET, LONG, "cosine")
        seen, sizes = set(), []
        for table in store.scan(engine.parts):
            if not seen:
                engine.delete(NAME, keys[100:200])
                engine.put(NAME, [row_of(number, keys[number]) for number in range(start, start + 10)])
            seen.update(table[ID].to_pylist())
            sizes.append(table.num_rows)
        assert seen >= {*keys[:100], *keys[200:]}
        assert max(sizes) <= 2 * BATCH
        left = [*keys[:100], *keys[200:]]
        for start in range(0, len(left), BATCH):
            some = batch(store, engine, left[start : start + BATCH])
            assert len(store.write(TARGET, some)) == some.num_rows
        assert sum(table.num_rows for table in store.read_target(TARGET)) == len(left)
