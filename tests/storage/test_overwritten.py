"""An adopted table that its app overwrites: it is noticed, and adopted again as it is."""

from __future__ import annotations

import shlex

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore import next_step
from compatstore.cli.app import app
from compatstore.errors import InvalidInput, TableChanged
from lazily import Lazy

lancedb = Lazy("lancedb")


def rows(seed, dim=4, n=12):
    matrix = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), dim)
    return pa.table({"key": [f"{number}" for number in range(n)], "embedding": column})


def version(name, dim=4, **settings):
    return cs.EmbeddingVersion(name, dim=dim, metric="l2", **settings)


@pytest.fixture
def address(tmp_path):
    """An adopted table whose upgrade to v2 is ready."""
    lancedb.connect(tmp_path).create_table("notes", rows(0))
    gallery = cs.Gallery.adopt(f"{tmp_path}#notes", version("v1"), vector="embedding", id="key")
    lookup = cs.encoders.Precomputed({f"{n}": [float(n), 1.0, 2.0] for n in range(12)})
    gallery.register(version("v2", 3, encoder=lookup))
    gallery.upgrade("v2", backfill=1.0)
    return f"{tmp_path}#notes"


def overwrite(address, table):
    folder, _, name = address.rpartition("#")
    return lancedb.connect(folder).create_table(name, table, mode="overwrite")


def found(address):
    return {finding.check: finding for finding in cs.Gallery.open(address).maintenance.verify().findings}


def test_the_compaction_of_an_indexed_table_is_none(tmp_path):
    table = lancedb.connect(tmp_path).create_table("notes", rows(0, n=200))
    table.add(rows(1, n=200).set_column(0, "key", pa.array([f"later-{number}" for number in range(200)])))
    address = f"{tmp_path}#notes"
    gallery = cs.Gallery.adopt(address, version("v1"), vector="embedding", id="key")
    gallery.maintenance.index("v1").create(kind="IVF_FLAT", num_partitions=2)
    table.checkout_latest()
    table.delete("key LIKE '%1'")
    table.optimize()
    assert len(table.to_lance().get_fragments()) == 1, "rows of the index were moved"
    assert gallery.maintenance.verify().clean
    overwrite(address, rows(1))
    assert found(address)["overwritten"].severity == "error"


def test_it_is_found_although_the_columns_are_as_before(tmp_path):
    lancedb.connect(tmp_path).create_table("notes", rows(0))
    address = f"{tmp_path}#notes"
    cs.Gallery.adopt(address, version("v1"), vector="embedding", id="key")
    table = lancedb.connect(tmp_path).open_table("notes")
    table.add(rows(5, n=3))
    table.optimize()
    assert "overwritten" not in found(address)
    overwrite(address, rows(1))
    cs.Gallery.open(address).register(version("v2", 3, model="other"))  # what comes later hides it from nobody
    assert found(address)["overwritten"].severity == "error"
    with next_step.speaking_shell():
        command = shlex.split(found(address)["overwritten"].repair.partition("compatstore ")[2])
    assert CliRunner().invoke(app, command).exit_code == 0
    assert cs.Gallery.open(address).maintenance.verify().clean
    assert cs.Gallery.open(address).versions() == ("v1",)


def test_with_columns_of_other_lengths_the_way_out_keeps_the_apps_data(address):
    overwrite(address, rows(1, dim=6, n=20))
    gallery = cs.Gallery.open(address)
    for call in (gallery.status, lambda: gallery.search(np.ones(4, np.float32))):
        with pytest.raises(TableChanged, match="again=True"):
            call()
    with pytest.raises(InvalidInput):
        cs.Gallery.adopt(address, version("v1", 6), vector="embedding", id="key")
    again = cs.Gallery.adopt(address, version("v1", 6), vector="embedding", id="key", again=True)
    assert (len(again.scan()), again.versions(), again.maintenance.verify().clean) == (20, ("v1",), True)
    lookup = cs.encoders.Precomputed({f"{n}": [float(n), 1.0, 5.0] for n in range(20)})
    again.register(version("v2", 3, encoder=lookup))
    assert again.upgrade("v2", backfill=1.0).missing == 0
    assert again.vectors(["7"], "v2").tolist() == [[7.0, 1.0, 5.0]]
    assert next(entry.step for entry in again.maintenance.history()) == "adopt"
    assert again.maintenance.verify().clean


def test_vectors_of_another_model_are_found_where_items_are_embedded_again(tmp_path):
    lancedb.connect(tmp_path).create_table("notes", rows(0))
    address, table = f"{tmp_path}#notes", rows(0)
    vectors = dict(zip(table["key"].to_pylist(), table["embedding"].to_pylist(), strict=True))
    model = cs.encoders.Precomputed(vectors)
    cs.Gallery.adopt(address, version("v1", encoder=model), vector="embedding", id="key")

    def vectors_found():
        findings = cs.Gallery.open(address, encoders={"v1": model}).maintenance.verify(embed=True).findings
        return [finding.severity for finding in findings if finding.check == "vectors"]

    assert vectors_found() == []
    written = lancedb.connect(tmp_path).open_table("notes")
    written.merge_insert("key").when_matched_update_all().execute(rows(1, n=3))
    assert vectors_found() == ["warning"]
    written.checkout_latest()
    written.merge_insert("key").when_matched_update_all().execute(rows(1))
    assert vectors_found() == ["error"]
    assert "vectors" not in found(address)  # without a model nothing tells


def test_a_version_without_a_model_is_noted(tmp_path):
    lancedb.connect(tmp_path).create_table("notes", rows(0))
    gallery = cs.Gallery.adopt(f"{tmp_path}#notes", version("v1"), vector="embedding", id="key")
    (finding,) = [one for one in gallery.maintenance.verify(embed=True).findings if one.check == "vectors"]
    assert finding.severity == "note"
    assert "encoders={'v1': ...}" in finding.repair
    result = CliRunner().invoke(app, ["verify", f"{tmp_path}#notes", "--embed"])
    assert result.exit_code == 0
    assert "not compared with its model" in " ".join(result.output.split())
