"""What only FAISS has: kinds of indexes, files of ids, and a switch of two files that a kill cannot spoil."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compatstore.errors import InvalidInput, NotFound, StorageError, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.store import ID, KNOWN, MADE_FROM, VECTOR, Parts, matrix, vector_column

faiss = pytest.importorskip("faiss")

COUNT, DIM, LONG = 200, 8, 12
X, Y = (np.random.default_rng(seed).normal(size=(COUNT, dim)).astype(np.float32) for seed, dim in ((0, DIM), (1, LONG)))
OWN = np.arange(COUNT) * 3 + 5
UNNAMED = Parts()
TEXTS = [f"ü{number}" for number in range(COUNT)]

# An end of the process at the n-th change of a file's name.
KILLED = """
import os, sys
from compatstore.stores.address import Address

left = [int(sys.argv[3])]

def ending(call):
    def counted(*arguments, **options):
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return call(*arguments, **options)
    return counted

store = Address.of(f"faiss:{sys.argv[1]}").open()
os.replace, os.link, os.unlink = ending(os.replace), ending(os.link), ending(os.unlink)
getattr(store, sys.argv[2])("v2")
"""


def index_of(factory, vectors=X, ids=None, metric=faiss.METRIC_L2):
    index = faiss.index_factory(vectors.shape[1], factory, metric)
    index.train(vectors)
    if ids is None:
        index.add(vectors)
    else:
        index.add_with_ids(vectors, ids)
    return index


@pytest.fixture
def path(tmp_path):
    return tmp_path / "docs.faiss"


def save(path, index, texts=None):
    faiss.write_index(index, str(path))
    if texts is not None:
        Path(f"{path}.ids.json").write_text(json.dumps(texts))


def opened(path):
    return closing(Address.of(f"faiss:{path}").open())


def scanned(store, parts=UNNAMED):
    rows = {}
    for table in store.scan(parts):
        rows |= dict(zip(table[ID].to_pylist(), matrix(table[VECTOR]), strict=True))
    return rows


def push(store, ids, vectors=Y):
    store.prepare("v2", LONG, "l2")
    there = scanned(store)
    columns = {
        ID: pa.array(ids),
        VECTOR: vector_column(vectors[: len(ids)], LONG),
        MADE_FROM: vector_column(np.array([there[key] for key in ids]), DIM),
        KNOWN: pa.nulls(len(ids), pa.binary()),
    }
    assert list(store.write("v2", pa.table(columns))) == list(ids)


@pytest.mark.parametrize(
    ("factory", "has_own", "kind"),
    [
        ("Flat", False, "IndexFlat"),
        ("HNSW16", False, "IndexHNSWFlat"),
        ("IVF4,Flat", False, "IndexIVFFlat"),
        ("IVF4,Flat", True, "IndexIVFFlat"),
        ("IDMap,Flat", True, "IndexIDMap2"),
        ("IDMap2,HNSW8", True, "IndexIDMap2"),
        ("Flat,RFlat", False, "IndexFlat"),
    ],
)
def test_exact_indexes_are_read_and_the_targets_is_of_their_kind(path, factory, has_own, kind):
    save(path, index_of(factory, ids=OWN if has_own else None))
    ids = OWN.tolist() if has_own else list(range(COUNT))
    with opened(path) as store:
        about = store.describe()
        assert (about.id_type, about.dim, about.metric, about.rows) == ("int64", DIM, "l2", COUNT)
        assert about.is_atomic
        there = scanned(store)
        np.testing.assert_array_equal([there[key] for key in ids], X)
        push(store, ids)
        store.switch("v2")
        assert store.search(None, Y[7], 1)[0] == [ids[7]]
    assert type(faiss.read_index(str(path))).__name__.startswith(kind)


@pytest.mark.parametrize("factory", ["PQ4x4", "SQ8", "IVF4,PQ4x4"])
def test_indexes_that_approximate_say_so(path, factory):
    save(path, index_of(factory))
    with opened(path) as store:
        assert any("approximations" in note for note in store.describe().notes)
        assert len(scanned(store)) == COUNT


@pytest.mark.parametrize("suffix", ["npy", "json", "txt", "parquet"])
def test_ids_are_read_from_a_file_beside_the_index(path, suffix):
    save(path, index_of("Flat"))
    file = Path(f"{path}.ids.{suffix}")
    if suffix == "npy":
        np.save(file, np.array(TEXTS))
    elif suffix == "json":
        file.write_text(json.dumps(TEXTS))
    elif suffix == "txt":
        file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    else:
        lists = pa.array([[1.0]] * COUNT)
        pq.write_table(pa.table({"id": TEXTS, "size": range(COUNT), "parts": lists}), file, row_group_size=70)
    with opened(path) as store:
        about = store.describe()
        assert about.parts.metadata == (("size",) if suffix == "parquet" else ())
        assert any("parts" in note for note in about.notes) == (suffix == "parquet")
        assert list(scanned(store)) == TEXTS
        push(store, TEXTS[:50])
        store.switch("v2")
        assert list(scanned(store)) == TEXTS[:50]
        if suffix == "parquet":
            found = store.read([TEXTS[3]], Parts(metadata=("size",)))
            assert found["size"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("ids", "found"),
    [(TEXTS[:-1], "199 ids of 200"), ([*TEXTS[:-1], TEXTS[0]], "twice"), ([None, *TEXTS[1:]], "1 nulls")],
)
def test_ids_that_are_not_one_for_each_vector_are_refused(path, ids, found):
    save(path, index_of("Flat"), ids)
    with opened(path) as store, pytest.raises(InvalidInput, match=found):
        store.describe()


def test_what_does_not_belong_together_is_refused(path):
    save(path, index_of("IDMap,Flat", ids=OWN), list(range(COUNT)))
    with opened(path) as store, pytest.raises(InvalidInput, match="the index"):
        store.describe()
    Path(f"{path}.ids.txt").write_text("a\n")
    with opened(path) as store, pytest.raises(InvalidInput, match="one file of ids"):
        store.describe()


def test_what_is_no_index_is_refused(path):
    with opened(path) as store, pytest.raises(NotFound):
        store.describe()
    path.write_bytes(b"no index of vectors")
    with opened(path) as store, pytest.raises(StorageError, match="not recognized"):
        store.describe()
    save(path, index_of("Flat", metric=faiss.METRIC_L1))
    with opened(path) as store, pytest.raises(InvalidInput, match="METRIC_L2"):
        store.describe()


def test_an_inner_product_is_cosine_for_vectors_of_unit_length(path):
    for vectors, metric in ((X, "dot"), (X / np.linalg.norm(X, axis=1, keepdims=True), "cosine")):
        save(path, index_of("Flat", vectors, metric=faiss.METRIC_INNER_PRODUCT))
        with opened(path) as store:
            assert store.describe().metric == metric


def test_a_switch_of_positions_needs_a_target_vector_at_each(path):
    save(path, index_of("Flat"))
    with opened(path) as store:
        push(store, list(range(COUNT - 1)))
        with pytest.raises(UpgradeError, match="1 without one"):
            store.switch("v2")
        assert not store.is_switched("v2")
        np.testing.assert_array_equal(list(scanned(store).values()), X)


def test_a_file_that_the_app_replaces_is_read_again(path):
    save(path, index_of("Flat"), TEXTS)
    with opened(path) as store:
        assert len(scanned(store)) == COUNT
        save(path, index_of("Flat", X[:50]), TEXTS[:50])
        assert len(scanned(store)) == 50
        push(store, TEXTS[:50])
        save(path, index_of("Flat", X[:40]), TEXTS[:40])
        store.switch("v2")
        assert list(scanned(store)) == TEXTS[:40]


def test_rows_that_the_app_added_after_a_switch_are_kept_at_the_switch_back(path):
    save(path, index_of("Flat"), TEXTS)
    with opened(path) as store:
        push(store, TEXTS)
        store.switch("v2")
        both = np.concatenate([Y, Y[:1] + 1])
        save(path, index_of("Flat", both), [*TEXTS, "added"])
        store.switch_back("v2")
        assert list(scanned(store)) == TEXTS
    with opened(path.with_name("docs_after_v2.faiss")) as store:
        assert list(scanned(store)) == [*TEXTS, "added"]


@pytest.mark.full
@pytest.mark.parametrize("verb", ["switch", "switch_back"])
def test_a_switch_goes_on_after_an_end_at_any_of_its_steps(tmp_path, verb):
    for steps in range(20):
        path = tmp_path / f"{steps}" / "docs.faiss"
        path.parent.mkdir()
        save(path, index_of("Flat"), TEXTS)
        with opened(path) as store:
            push(store, TEXTS[:150])
            if verb == "switch_back":
                store.switch("v2")
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), verb, str(steps)], check=False)
        assert done.returncode in (0, 9)
        with opened(path) as store:
            getattr(store, verb)("v2")
            rows = scanned(store)
            expected = (TEXTS[:150], Y[:150]) if verb == "switch" else (TEXTS, X)
            assert list(rows) == expected[0]
            np.testing.assert_array_equal(list(rows.values()), expected[1])
            store.switch_back("v2")
            np.testing.assert_array_equal(list(scanned(store).values()), X)
            store.drop("v2")
        assert {file.name for file in path.parent.iterdir()} == {"docs.faiss", "docs.faiss.ids.json"}
        if done.returncode == 0:
            break
    assert steps > 2
