"""Errors whose fix is a line that ends them: it is run as it stands."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from lazily import Lazy

lancedb = Lazy("lancedb")

V1 = cs.EmbeddingVersion("v1", dim=4, metric="l2")
MATRIX = np.random.default_rng(0).normal(size=(12, 4))
IDS = {
    "uint64": pa.array([2**63 + n for n in range(12)], pa.uint64()),
    "bytes": pa.array([n.to_bytes(16, "big") for n in range(12)], pa.binary(16)),
    "floats": pa.array([n / 2 for n in range(12)], pa.float64()),
}


def a_table(folder, ids, kind="float32"):
    values = pa.array(MATRIX.reshape(-1)).cast(kind)
    columns = {"key": ids, "embedding": pa.FixedSizeListArray.from_arrays(values, 4)}
    return lancedb.connect(folder).create_table("notes", pa.table(columns))


@pytest.mark.parametrize("ids", IDS)
def test_ids_that_are_neither_texts_nor_whole_numbers(tmp_path, ids):
    table = a_table(tmp_path, IDS[ids])
    with pytest.raises(InvalidInput) as error:
        cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    line = error.value.fix.partition("LanceDB: ")[2].partition("; and")[0]
    eval(line, {"table": table})
    assert len(cs.Gallery.adopt(table, V1, vector="embedding", id="id")) == 12


def test_vectors_in_double_precision(tmp_path):
    table = a_table(tmp_path, pa.array([f"{n}" for n in range(12)]), "float64")
    with pytest.raises(InvalidInput) as error:
        cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    eval(error.value.fix.partition("LanceDB: ")[2], {"table": table, "pa": pa})
    gallery = cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    np.testing.assert_allclose(gallery.vectors(["3"]), MATRIX[3:4], rtol=1e-6)


def test_a_dry_run_of_a_version_that_is_new_plans_and_writes_nothing(tmp_path, run):
    table = a_table(tmp_path, pa.array([f"{n}" for n in range(12)]))
    gallery = cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    np.savez(tmp_path / "v2.npz", id=np.array([f"{n}" for n in range(12)]), vector=np.ones((12, 3), np.float32))
    words = ["upgrade", f"{tmp_path}#notes", "v2", "--encoder", f"precomputed:{tmp_path}/v2.npz", "--backfill", "100%"]
    before = gallery.status().table_version
    planned = run(*words, "--dry-run", "--json")
    assert planned.code == 0
    assert planned.json["backfill"] == 1.0
    assert gallery.status().table_version == before
    assert gallery.versions() == ("v1",)
    assert run(*words, "--json").json["backfilled"] == 12


def test_a_column_of_the_apps_that_is_dropped_is_listed(tmp_path):
    table = a_table(tmp_path, pa.array([f"{n}" for n in range(12)]))
    gallery = cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    encoder = cs.encoders.Precomputed({f"{n}": [float(n), 1.0, 2.0] for n in range(12)})
    gallery.register(cs.EmbeddingVersion("v2", dim=3, metric="l2", encoder=encoder))
    gallery.upgrade("v2", backfill=1.0)
    gallery.cutover("v2")
    assert gallery.retire("v1", drop_adopted=True).dropped[0] == "embedding"
