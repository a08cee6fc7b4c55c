"""Inserts of the same ids by two writers, and lookups of many ids."""

import string

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.storage.ids import CHUNK, build_index, known_among
from compatstore.storage.inserts import Insert, insert_or_replace
from compatstore.storage.location import locate
from compatstore.storage.snapshot import CommitConflictError
from compatstore.storage.store import PRIMARY_KEY, Store

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY), pa.field("number", pa.int64())])


def rows(*ids, number=0):
    return pa.table({"id": list(ids), "number": pa.array([number] * len(ids), pa.int64())}, SCHEMA)


@pytest.fixture(params=["empty", "filled"])
def store(tmp_path, request):
    """A table with an index of its ids."""
    made = Store.create(locate(str(tmp_path / "items.lance")), SCHEMA)
    if request.param == "filled":
        Insert(rows("a", "b")).commit(made, made.writer())
        Insert(rows("c", "d")).commit(made, made.writer())
    build_index(made, "id")
    return made


def insert(store, writer, table):
    Insert(table).commit(store, writer)


def replace(store, writer, table):
    insert_or_replace(store, writer, "id", table)


def numbers(store):
    table = store.snapshot().to_table()
    return dict(zip(table["id"].to_pylist(), table["number"].to_pylist(), strict=True))


@pytest.mark.parametrize("second", [insert, replace])
@pytest.mark.parametrize("first", [insert, replace])
def test_of_two_writers_from_one_table_version_the_second_is_refused(store, first, second):
    one, other = store.writer(), store.writer()
    first(store, one, rows("new", number=1))
    with pytest.raises(CommitConflictError):
        second(store, other, rows("new", number=2))
    assert numbers(store)["new"] == 1
    second(store, store.writer(), rows("newer", number=2))
    assert numbers(store)["newer"] == 2
    assert store.count() == len(numbers(store))


BESIDE = {
    "a delete": lambda writer: writer.delete("id = 'a'"),
    "an index": lambda writer: writer.create_scalar_index("number", "BTREE"),
    "an update of the index": lambda writer: writer.optimize.optimize_indices(),
    "a merge of fragments": lambda writer: writer.optimize.compact_files(),
    "a setting": lambda writer: writer.update_config({"key": "value"}),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_an_insert_passes_beside(store, beside):
    before, late = store.count(), store.writer()
    BESIDE[beside](store.writer())
    insert(store, late, rows("new"))
    early = store.writer()
    insert(store, store.writer(), rows("newer"))
    BESIDE[beside](early)
    assert numbers(store).keys() >= {"new", "newer"}
    assert store.count() in (before + 2, before + 1), "the delete removes one"


def test_rows_are_written_again_only_if_the_columns_changed(store, files):
    late, attempt = store.writer(), Insert(rows("new", number=1))
    insert(store, store.writer(), rows("rival"))
    with pytest.raises(CommitConflictError):
        attempt.commit(store, late)
    data = store.location.child("data")
    written = files(data)
    attempt.commit(store, store.writer())
    assert files(data) == written

    late, attempt = store.writer(), Insert(rows("newer", number=2))
    store.add_columns([pa.field("colour", pa.string())])
    with pytest.raises(CommitConflictError):
        attempt.commit(store, late)
    attempt.commit(store, store.writer())
    found = store.snapshot().to_table(filter="id IN ('new', 'newer')").sort_by("id").to_pylist()
    assert found == [{"id": "new", "number": 1, "colour": None}, {"id": "newer", "number": 2, "colour": None}]


TEXTS = st.text(string.printable + "äß漢'\0", max_size=6)


@pytest.fixture(scope="module")
def shelves(tmp_path_factory):
    """Tables of texts and of whole numbers, and their ids."""
    found = {}
    for kind, ids in (
        (pa.string(), [f"{n:05d}'" for n in range(0, 40_000, 2)] + ["", "ä", "漢", "it's"]),
        (pa.int64(), [*range(-20_000, 20_000, 2), -(2**63), 2**63 - 1]),
    ):
        field = pa.field("id", kind, nullable=False, metadata=PRIMARY_KEY)
        made = Store.create(locate(str(tmp_path_factory.mktemp("shelf") / "items.lance")), pa.schema([field]))
        shuffled = np.random.default_rng(0).permutation(len(ids))
        for half in np.array_split(shuffled, 2):
            Insert(pa.table({"id": pa.array([ids[n] for n in half], kind)}, pa.schema([field]))).commit(
                made, made.writer()
            )
            build_index(made, "id")  # the second half stays out of it
        found[kind] = made.snapshot(), set(ids)
    return found


@given(few=st.lists(TEXTS, unique=True, max_size=20), numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
@pytest.mark.parametrize("many", [0, CHUNK + 1], ids=["few", "many"])
@pytest.mark.parametrize("step", [1, 3])
def test_ids_that_are_there_are_found(shelves, few, numbers, many, step):
    wanted = {
        pa.string(): {*few, *(f"{n:05d}'" for n in range(0, step * many, step))},
        pa.int64(): {*numbers, *range(-many, step * many, step)},
    }
    for kind, (snapshot, held) in shelves.items():
        known = known_among(snapshot, "id", pa.array(sorted(wanted[kind]), kind))
        assert sorted(known) == sorted(held & wanted[kind])
