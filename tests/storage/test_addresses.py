"""Rows are read where they were last, if they still are there, and by their ids else."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.storage.ids import ADDRESS, UNKNOWN, read_rows
from properties import examples

IDS = [*range(30), 3, 3, 12]  # of a table that others own: ids may repeat
NOWHERE = (7 << 32) + 5


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows in four fragments; every fifth row is deleted."""
    path = str(tmp_path_factory.mktemp("rows") / "table.lance")
    data = pa.table({"id": [f"it's {number}" for number in IDS], "row": range(len(IDS))})
    return lance.write_dataset(data, path, max_rows_per_file=9).delete("row % 5 = 4") and lance.dataset(path)


@pytest.fixture(scope="module")
def rows(table):
    return table.to_table(with_row_address=True).to_pylist()


def test_without_addresses_all_rows_of_the_ids_are_read(table):
    found = read_rows(table, "id", ["it's 3", "it's 5", "none"])
    assert sorted(found["row"].to_pylist()) == [3, 5, 30, 31]
    assert found.column_names == ["id", "row", ADDRESS]


def test_a_row_that_is_still_there_is_read_there(table, rows):
    of_three = [row for row in rows if row["id"] == "it's 3"]
    found = read_rows(table, "id", ["it's 3"], np.array([of_three[1][ADDRESS]]), ["id"])
    assert found.to_pylist() == [{"id": "it's 3", ADDRESS: of_three[1][ADDRESS]}]


def test_nothing_is_read_of_no_ids(table):
    assert read_rows(table, "id", [], np.zeros(0, np.int64)).num_rows == 0
    assert read_rows(table, "id", []).num_rows == 0


@pytest.mark.full
@examples(150)
@given(data=st.data())
def test_wrong_addresses_change_nothing_but_which_rows_of_an_id_are_read(table, rows, data):
    anywhere = st.sampled_from([UNKNOWN, NOWHERE, *(row[ADDRESS] for row in rows)])
    right = st.sampled_from([(row["id"], row[ADDRESS]) for row in rows])
    wanted = data.draw(st.lists(st.one_of(right, st.tuples(st.sampled_from([f"it's {n}" for n in IDS]), anywhere))))
    ids, addresses = [each for each, _ in wanted], np.array([address for _, address in wanted], np.int64)
    found = read_rows(table, "id", ids, addresses).to_pylist()
    assert len({row[ADDRESS] for row in found}) == len(found), "each row once"
    assert all(row in rows for row in found)
    held = {row[ADDRESS]: row["id"] for row in rows}
    expected = {address for each, address in wanted if held.get(address) == each}
    lost = {each for each, address in wanted if held.get(address) != each}
    expected |= {row[ADDRESS] for row in rows if row["id"] in lost}
    assert {row[ADDRESS] for row in found} == expected
