"""What did not change is not counted again, and what changed is."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from compatstore.storage.location import locate
from compatstore.storage.store import Store
from compatstore.upgrade.context import FragmentCounts, forget_counts

EVEN, NONE = "n % 2 = 0", "n < 0"


@pytest.fixture
def store(tmp_path):
    path = str(tmp_path / "t.lance")
    (tmp_path / "t.lance").mkdir()
    for start in (0, 100, 200):
        lance.write_dataset(pa.table({"n": range(start, start + 100), "m": np.ones(100)}), path, mode="append")
    (tmp_path / "t.lance" / "_compatstore").mkdir()
    return Store.open(locate(path))


def counts(store):
    return FragmentCounts(store, "v2", ["n"])


def hide(store, fragment):
    """Take the files of a fragment away; gives how to bring them back."""
    names = [file.path for file in store.snapshot().get_fragment(fragment).metadata.files]
    files = [lance_file(store, name) for name in names]
    for file in files:
        file.rename(f"{file}.hidden")

    def bring_back():
        for file in files:
            file.with_name(f"{file.name}.hidden").rename(file)

    return bring_back


def lance_file(store, name):
    from pathlib import Path

    return Path(store.location.uri, "data", name)


def test_what_did_not_change_is_not_read_by_the_next_process_either(store):
    known = counts(store)
    assert known.count(store.snapshot(), EVEN) == 150
    known.save()
    for fragment in (0, 1, 2):
        hide(store, fragment)
    assert counts(store).count(store.snapshot(), EVEN) == 150


def test_only_the_fragments_that_changed_are_read(store):
    known = counts(store)
    known.count(store.snapshot(), EVEN)
    lance.dataset(store.location.uri).delete("n = 102 OR n = 103")
    lance.write_dataset(pa.table({"n": [2, 3], "m": [0.0, 0.0]}), store.location.uri, mode="append")
    hide(store, 0)
    assert known.count(store.snapshot(), EVEN) == 150
    assert known.count(store.snapshot(), EVEN) == 150


def test_none_stays_none_whatever_is_deleted(store):
    known = counts(store)
    assert known.count(store.snapshot(), NONE) == 0
    lance.dataset(store.location.uri).delete("n % 3 = 0")
    for fragment in (0, 1, 2):
        hide(store, fragment)
    assert known.count(store.snapshot(), NONE) == 0


def test_rows_that_come_back_are_counted(store):
    table = lance.dataset(store.location.uri)
    before = table.version
    table.delete(EVEN)
    known = counts(store)
    assert known.count(store.snapshot(), EVEN) == 0
    table.checkout_version(before).restore()
    lance.dataset(store.location.uri).delete("n % 2 = 1")
    assert known.count(store.snapshot(), EVEN) == 150


def test_a_column_that_was_dropped_and_added_again_is_another(store):
    known = FragmentCounts(store, "v2", ["n", "m"])
    assert known.count(store.snapshot(), "m IS NULL") == 0
    known.save()
    store.drop_columns(["m"])
    store.add_columns([pa.field("m", pa.float64())])
    assert FragmentCounts(store, "v2", ["n", "m"]).count(store.snapshot(), "m IS NULL") == 300


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"0\n{}", b"null", b'x\n{"columns":{},"counts":{}}'])
def test_a_damaged_record_is_none(store, damage):
    known = counts(store)
    known.count(store.snapshot(), EVEN)
    known.save()
    (record,) = (lance_file(store, "").parent / "_compatstore").iterdir()
    record.write_bytes(damage)
    assert counts(store).count(store.snapshot(), EVEN) == 150


def test_an_edited_record_is_none(store):
    known = counts(store)
    known.count(store.snapshot(), EVEN)
    known.save()
    (record,) = (lance_file(store, "").parent / "_compatstore").iterdir()
    edited = record.read_text().replace(",50]", ",49]")
    assert edited != record.read_text()
    record.write_text(edited)
    assert counts(store).count(store.snapshot(), EVEN) == 150
    forget_counts(store, "v2")
    assert not record.exists()
