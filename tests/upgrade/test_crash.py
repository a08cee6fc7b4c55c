"""The comparisons of the harness that kills and suspends processes (tests/benchmarks/test_lives.py) see damage."""

from __future__ import annotations

import shutil
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.columns import InputHashes
from tests.known.checks import Expected, State, violations
from tests.known.galleries import OWN, initial_items, make_template
from tests.known.vectors import ENCODERS, SIDE_ENCODERS, label, source_vector


@pytest.fixture(scope="module")
def cut_over(tmp_path_factory):
    path = make_template(tmp_path_factory.mktemp("cut-over"), OWN, fragments=2, rows=100)
    gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="sigma"))
    gallery.cutover("v2")
    return path


def first_rows(table, count=1):
    return table.to_table(limit=count)


def overwrite(**columns):
    """Damage the first row: other values, past all checks."""
    return lambda table: table.update(columns, where=f"id = '{first_id(table)}'")


def first_id(table, condition="v2__origin <> 'native'"):
    return table.to_table(columns=["id"], filter=condition, limit=1)["id"][0].as_py().replace("'", "''")


def first_native(table):
    return first_id(table, "v2__origin = 'native'")


DAMAGES = {
    "1 rows are lost": lambda table: table.delete(f"id = '{first_id(table)}'"),
    "1 rows are doubled": lambda table: table.insert(first_rows(table)),
    "1 sources are not": overwrite(source="'another'"),
    "1 source vectors are not": overwrite(v1="[0,0,0,0,0,0,0,0,0,0,0,0]"),
    "1 target vectors are not": overwrite(v2="[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"),
    "without an origin": overwrite(v2__origin="NULL"),
    "1 items have no vector": overwrite(v2="NULL", v2__origin="NULL"),
    "1 natives have not the side-information": lambda table: table.update(
        {"v2__side": "[0,0,0,0,0]"}, where=f"id = '{first_native(table)}'"
    ),
    "1 rows that are not native have side-information": lambda table: table.update(
        {"v2__side": "[0,0,0,0,0]"}, where=f"id = '{first_id(table)}'"
    ),
}


@pytest.mark.parametrize("expected", DAMAGES)
def test_the_harness_sees_damage(cut_over, tmp_path, expected):
    path = tmp_path / "items.lance"
    shutil.copytree(cut_over, path)
    memory = Expected(initial_items(fragments=2, rows=100))
    assert violations(State.read(path), memory, OWN) == []
    DAMAGES[expected](lance.dataset(str(path)))
    found = violations(State.read(path), memory, OWN)
    assert any(expected in violation for violation in found), found


def test_the_harness_sees_a_stale_vector_that_no_input_hash_tells_of(cut_over):
    state = State.read(cut_over)
    items = initial_items(fragments=2, rows=100)
    item = state.table["id"][0].as_py()
    known = Expected(items | {item: f"{item}/1"}, {item}, {item: {items[item]}})
    vector = source_vector(f"{item}/1")
    changed = {"source": f"{item}/1", "label": label(f"{item}/1"), "v1": vector.tolist()}
    honest = replace(state, table=replace_first_row(state.table, **changed))
    assert violations(honest, known, OWN) == []
    now = InputHashes.of(vector[None], np.ones(1, bool), pa.array([f"{item}/1"]))
    lying = replace(state, table=replace_first_row(state.table, **changed, v2__input_hash=int(now.transformed[0])))
    assert violations(lying, known, OWN) == [
        f"1 target vectors belong to an earlier source and no input hash tells: {item}"
    ]


def replace_first_row(table, **columns):
    rows = table.to_pylist()
    rows[0] |= columns
    return pa.Table.from_pylist(rows, table.schema)
