"""The benchmark on pairs runs, goes on where it was stopped, and searches nothing that it learned from."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.pairs.embedded import EmbeddedSet
from benchmarks.pairs.journal import Journal
from benchmarks.pairs.scenario import SETTINGS, scenario
from benchmarks.pairs.settings import SIZES
from lazily import Lazy

pytestmark = pytest.mark.full

chains = Lazy("benchmarks.pairs.chains")
methods = Lazy("benchmarks.pairs.methods")
report = Lazy("benchmarks.pairs.report")
run = Lazy("benchmarks.pairs.run")

TINY = SIZES["tiny"]


def run_all(data, journal):
    """Measure every row and chain."""
    run.run(data, TINY, 1, journal, (*run.PARTS, run.CHAINS))


@pytest.fixture(scope="module")
def data():
    """600 items of 10 classes in three versions, the first two with side-information."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 600)
    items = random.normal(size=(10, 8))[labels] + 0.4 * random.normal(size=(600, 8))
    vectors = {
        version: (items @ random.normal(size=(8, dim))).astype(np.float32)
        for version, dim in (("source", 6), ("middle", 8), ("target", 8))
    }
    head = np.stack([vectors["target"][labels == label].mean(axis=0) for label in range(10)])
    sides = {version: vectors[version][:, :4] for version in ("source", "middle")}
    fresh = np.arange(600) % 2 == 0
    return EmbeddedSet(name="Blobs", labels=labels, fresh=fresh, vectors=vectors, sides=sides, heads={"target": head})


@pytest.fixture(scope="module")
def journal(data, tmp_path_factory):
    journal = Journal(tmp_path_factory.mktemp("run") / "journal.jsonl")
    run_all(data, journal)
    return journal


@pytest.mark.parametrize("setting", SETTINGS)
def test_only_fresh_items_are_searched_and_none_of_them_is_learned_from(data, setting):
    trial = scenario(data, setting, TINY, seed=1)
    searched = np.concatenate([trial.gallery, trial.queries])
    assert len(np.unique(searched)) == len(searched) == TINY.gallery + TINY.queries
    assert data.fresh[searched].all()
    assert not data.fresh[trial.pairs].any(), "what is kept from the models is kept from the transforms too"
    assert not np.isin(searched, trial.pairs).any()
    shared = np.intersect1d(data.labels[searched], data.labels[trial.pairs])
    assert len(shared) == (10 if setting == "seen" else 0)


def test_pairs_are_labelled_by_rows_of_the_head(data):
    trial = scenario(data, "unseen", TINY, seed=2)
    pairs = trial.learn()
    assert len(pairs.head) == len(trial.classes) == 5
    assert (trial.classes[pairs.labels] == data.labels[trial.pairs]).all()


def test_a_set_is_read_as_it_was_written(data, tmp_path):
    data.save(tmp_path / "set.npz")
    read = EmbeddedSet.load(tmp_path / "set.npz")
    assert read.name == data.name
    assert read.vectors.keys() == data.vectors.keys()
    assert (read.sides["middle"] == data.sides["middle"]).all()
    assert (read.fresh == data.fresh).all()


def test_every_row_and_chain_is_measured_once_and_a_second_run_adds_nothing(data, journal):
    lines = journal.path.read_text().splitlines()
    names = [json.loads(line)["method"] for line in lines]
    for name in ["none", *(method.name for method in methods.METHODS), *chains.chains(data)]:
        assert names.count(name) == len(SETTINGS)
    run_all(data, Journal(journal.path))
    assert journal.path.read_text().splitlines() == lines


def test_what_fastfill_chose_stands_beside_fixed_scales_in_every_order(data, tmp_path):
    lengths = np.linalg.norm(data.vectors["target"], axis=1, keepdims=True)
    unit = replace(data, name="Unit", vectors=data.vectors | {"target": data.vectors["target"] / lengths})
    journal = Journal(tmp_path / "balance.jsonl")
    for each in (data, unit):
        run.run(each, TINY, 1, journal, [run.FASTFILL], ["seen"])
    filled = report.fill("<!-- table: balance -->\n<!-- end -->", journal.records)
    for name, chosen, fixed in (("Blobs", "disc weight", 0), ("Unit", "scale", 9)):
        table = filled.partition(f"#### {name}, classes seen")[2].partition("####")[0].splitlines()
        assert len([line for line in table if line.startswith("| FastFill default | ") and chosen in line]) == 6
        assert len([line for line in table if line.startswith("| FastFill scale ")]) == fixed


def test_a_line_cut_off_by_a_crash_is_measured_again(data, journal, tmp_path):
    text = journal.path.read_text()
    cut = tmp_path / "cut.jsonl"
    cut.write_text(text[:-20])
    run_all(data, Journal(cut))
    again = [json.loads(line) for line in cut.read_text().splitlines()]
    assert [line["method"] for line in again] == [json.loads(line)["method"] for line in text.splitlines()]


def test_the_order_of_a_backfill_changes_neither_its_beginning_nor_its_end(journal):
    for record in journal.records:
        curves = [order["curve"]["map"] for order in record.get("orders", {}).values()]
        assert len({(curve[0], curve[-1]) for curve in curves}) <= 1


def test_documents_get_the_tables_that_they_name(journal):
    document = "".join(f"before\n<!-- table: {name} -->\nold\n<!-- end -->\nafter\n" for name in report.TABLES)
    filled = report.fill(document, journal.records)
    assert "old" not in filled
    assert filled.count("before\n") == filled.count("after\n") == len(report.TABLES)
    assert "| FastFill | least-confidence |" in filled
    assert "| chained, with side-information carried by g |" in filled
    assert report.fill(filled, journal.records) == filled
