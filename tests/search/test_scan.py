"""Items by ids and by conditions alone."""

from __future__ import annotations

import pytest

from compatstore.errors import InvalidInput, NotFound


def test_unknown_ids_are_skipped_where_that_is_asked_for(gallery):
    with pytest.raises(NotFound, match="lost"):
        gallery.get(["c", "lost", "a"])
    assert gallery.get(["c", "lost", "a", "c"], ["id"], missing="skip")["id"].to_pylist() == ["c", "a", "c"]
    assert gallery.get(["lost"], missing="skip").num_rows == 0
    assert gallery.get([], missing="skip").num_rows == 0


def test_items_are_read_by_a_condition(gallery):
    assert gallery.scan(["id"], "number < 3").to_arrow()["id"].to_pylist() == ["a", "b", "c"]
    assert gallery.scan(["id", "number"], ["number < 3", "id <> 'a'"]).to_arrow().to_pylist() == [
        {"id": "b", "number": 1},
        {"id": "c", "number": 2},
    ]
    assert gallery.scan(limit=2).to_arrow().to_pylist()[1] == {"id": "b", "source": "b.jpg", "number": 1}
    assert gallery.scan(limit=0).to_arrow().num_rows == 0
    assert len(gallery.scan()) == len(gallery) == 10
    assert len(gallery.scan(where="number < 3")) == 3


@pytest.mark.parametrize("condition", ["number < 3) OR (TRUE", "lost = 1", "", "number < 3; DROP TABLE x"])
def test_a_condition_that_is_none(gallery, condition):
    for read in (lambda: gallery.scan(where=condition), lambda: len(gallery.scan(where=condition))):
        with pytest.raises(InvalidInput, match="a condition in SQL"):
            read()


def test_wrong_columns_and_limits(gallery):
    with pytest.raises(InvalidInput, match="lost"):
        gallery.scan(["lost"])
    with pytest.raises(InvalidInput, match="limit"):
        gallery.scan(limit=-1)
