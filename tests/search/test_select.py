"""Items by ids and by conditions alone."""

from __future__ import annotations

import pytest

from compatstore.errors import InvalidInput, UnknownId


def test_unknown_ids_are_skipped_where_that_is_asked_for(gallery):
    with pytest.raises(UnknownId, match="lost"):
        gallery.get(["c", "lost", "a"])
    assert gallery.get(["c", "lost", "a", "c"], ["id"], missing="skip")["id"].to_pylist() == ["c", "a", "c"]
    assert gallery.get(["lost"], missing="skip").num_rows == 0
    assert gallery.get([], missing="skip").num_rows == 0


def test_items_are_selected_by_a_condition(gallery):
    assert gallery.select("number < 3", ["id"])["id"].to_pylist() == ["a", "b", "c"]
    assert gallery.select(["number < 3", "id <> 'a'"], ["id", "number"]).to_pylist() == [
        {"id": "b", "number": 1},
        {"id": "c", "number": 2},
    ]
    assert gallery.select(limit=2).to_pylist()[1] == {"id": "b", "source": "b.jpg", "number": 1}
    assert gallery.select(limit=0).num_rows == 0
    assert gallery.count() == len(gallery) == 10
    assert gallery.count("number < 3") == 3


@pytest.mark.parametrize("condition", ["number < 3) OR (TRUE", "lost = 1", "", "number < 3; DROP TABLE x"])
def test_a_condition_that_is_none(gallery, condition):
    for verb in (gallery.select, gallery.count):
        with pytest.raises(InvalidInput, match="a condition in SQL"):
            verb(condition)


def test_wrong_columns_and_limits(gallery):
    with pytest.raises(InvalidInput, match="lost"):
        gallery.select(columns=["lost"])
    with pytest.raises(InvalidInput, match="limit"):
        gallery.select(limit=-1)
