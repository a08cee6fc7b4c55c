"""How often items were candidates: added up, bounded, of one upgrade, and never in the way of a search."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from compatstore.errors import StorageError
from compatstore.storage import traffic
from compatstore.storage.location import locate
from compatstore.storage.traffic import Traffic


@pytest.fixture
def counts(tmp_path):
    return Traffic(locate(str(tmp_path / "g.lance")), "v2", pa.string(), "first")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "g.lance" / "_compatstore").mkdir(parents=True)


def as_dict(counts):
    return dict(zip(*counts.load().to_pydict().values(), strict=True))


def test_counts_add_up(counts):
    assert as_dict(counts) == {}
    counts.add({"it's": 2, "b": 1})
    counts.add({"b": 4, "c": 1})
    assert as_dict(counts) == {"it's": 2, "b": 5, "c": 1}


def test_what_was_seen_least_is_forgotten_where_there_are_too_many(counts, monkeypatch):
    monkeypatch.setattr(traffic, "MOST_ITEMS", 2)
    counts.add({"a": 1, "b": 3, "c": 2, "d": 1})
    assert as_dict(counts) == {"b": 3, "c": 2}


def test_another_upgrade_begins_from_nothing(counts, tmp_path):
    counts.add({"a": 1})
    later = Traffic(locate(str(tmp_path / "g.lance")), "v2", pa.string(), "second")
    assert as_dict(later) == {}
    later.add({"b": 1})
    assert as_dict(later) == {"b": 1}
    later.clear()
    assert as_dict(later) == {}


def test_damage_is_told_and_does_not_last(counts, tmp_path):
    counts.add({"a": 1})
    (file,) = Path(tmp_path, "g.lance", "_compatstore").glob("traffic-v2.arrow")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(StorageError, match="rm "):
        counts.load()
    counts.add({"b": 1})
    assert as_dict(counts) == {"b": 1}
