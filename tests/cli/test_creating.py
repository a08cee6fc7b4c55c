"""demo, init and adopt: what the verbs show, and what each refuses. The demo itself is tested with its package."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compatstore.cli.creating import demo_view
from compatstore.cli.output import Output
from compatstore.demo import DemoReport
from compatstore.evaluation import Advice, DecisionRow, DecisionTable, Estimate
from compatstore.gallery import Gallery
from lazily import Lazy

lancedb = Lazy("lancedb")


def test_a_folder_that_holds_something_is_left_alone(run, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = run("demo", tmp_path, "--json")
    assert (refused.code, refused.json["error"]) == (4, "AlreadyExists")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# `python -m compatstore` that hears Ctrl-C: a shell that starts the tests in its background has all that they start
# ignore it.
HEARING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("compatstore", run_name="__main__", alter_sys=True)
"""


@pytest.mark.full
def test_ctrl_c_ends_the_demo_and_another_one_does_not_end_its_tidying_up(tmp_path):
    folder = tmp_path / "demo"
    words = [sys.executable, "-c", HEARING, "demo", folder]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not any((folder / "queries").glob("*/*")):
            assert process.poll() is None
            time.sleep(0.01)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.001)
        said = process.stderr.read()
    assert (process.returncode, folder.exists()) == (130, False)
    assert said.endswith("Stopped.\n")
    assert "Traceback" not in said


def test_a_negative_seed(run, tmp_path):
    assert run("demo", tmp_path, "--seed", -1).code == 2


def test_the_decision_and_the_files_of_the_demo_are_shown(capsys):
    half = Estimate(value=0.5, low=0.5, high=0.5)
    row = DecisionRow(
        name="status quo", notation="s/s", share=0, figures={"map": half}, gains={}, kept={}, flips=None, broken=None
    )
    decision = DecisionTable(
        rows=(row,),
        advice=Advice(verdict="undecided", row=None, share=None, text="Name labels."),
        criterion="map",
        truth="qrels",
        confidence=0.95,
        num_queries=1,
        num_skipped=0,
    )
    report = DemoReport(
        decision=decision,
        files=(Path("report.html"),),
        gallery=Path("gallery.lance"),
        items=1,
        queries=1,
        seed=0,
        seconds=1.0,
        next_commands=("compatstore status gallery.lance",),
    )
    Output(as_json=False).show(report, demo_view)
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "Name labels."
    assert ["status", "quo", "50.0"] in [line.split()[:3] for line in shown.splitlines()]
    assert "report.html" in shown
    assert "  compatstore status gallery.lance" in shown


def vectors(path):
    with np.load(path) as arrays:
        return dict(arrays)


def test_init_shows_the_new_gallery(run, tmp_path):
    words = ("--version", "v1", "--dim", 8, "--metric", "dot", "--normalised", "--side-dim", 4, "--json")
    made = run("init", tmp_path / "g.lance", *words)
    assert made.code == 0
    assert made.json["rows"] == 0
    assert made.json["versions"][0] | {"fingerprint": ""} == {
        "name": "v1",
        "state": "active",
        "dim": 8,
        "metric": "dot",
        "fingerprint": "",
        "encoder": "",
        "native": 0,
        "transformed": 0,
        "bridged": 0,
        "missing": 0,
        "recall": None,
    }


def test_init_takes_the_dimension_from_the_encoder(run, tmp_path, pixels):
    made = run("init", tmp_path / "g.lance", "--version", "v1", "--encoder", pixels, "--json")
    assert made.json["versions"][0]["dim"] == 64


def test_init_without_any_dimension_is_refused(run, tmp_path):
    made = run("init", tmp_path / "g.lance", "--version", "v1")
    assert made.code == 2
    assert "expected --dim, or --encoder" in made.err


def test_init_twice_is_refused(run, empty):
    again = run("init", empty, "--version", "v1", "--dim", 64)
    assert (again.code, again.out) == (4, "")


def test_adopt_a_lancedb_table(run, tmp_path, digits):
    arrays = vectors(digits / "v1.npz")
    matrix = pa.FixedSizeListArray.from_arrays(pa.array(arrays["vector"].ravel()), 64)
    data = pa.table({"uri": arrays["id"].tolist(), "embedding": matrix})
    lancedb.connect(tmp_path / "db").create_table("digits", data)
    place = f"{tmp_path / 'db'}#digits"
    adopted = run("adopt", place, "--version", "v1", "--vector", "embedding", "--id", "uri", "--metric", "l2", "--json")
    assert adopted.code == 0
    assert (adopted.json["rows"], adopted.json["versions"][0]["dim"]) == (300, 64)
    assert run("search", place, "--id", "digit-0001", "-k", 1, "--json").json[0]["uri"] == "digit-0001"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--vector", "no-such", "--id", "uri"), 2),
        (("--vector", "uri", "--id", "uri"), 2),
        (("--vector", "embedding", "--id", "no-such"), 2),
        (("--vector", "embedding", "--id", "uri", "--dim", "7"), 2),
    ],
)
def test_adopt_refuses_what_does_not_fit(run, tmp_path, words, code):
    matrix = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(8, np.float32)), 4)
    lancedb.connect(tmp_path / "db").create_table("t", pa.table({"uri": ["a", "b"], "embedding": matrix}))
    adopted = run("adopt", f"{tmp_path / 'db'}#t", "--version", "v1", *words)
    assert (adopted.code, adopted.out) == (code, "")


def test_adopt_where_nothing_is(run, tmp_path):
    assert run("adopt", tmp_path / "none", "--version", "v1", "--vector", "v", "--id", "i").code == 3


def test_init_with_metadata_columns(run, tmp_path):
    words = ("init", tmp_path / "g.lance", "--version", "v1", "--dim", 2)
    assert run(*words, "--metadata", "year:int64", "--metadata", "a:b:json").code == 0
    schema = Gallery.open(str(tmp_path / "g.lance")).columns.metadata
    assert schema.names == ["year", "a:b"]
    assert (schema.field("year").type, schema.field("a:b").type) == (pa.int64(), pa.json_(pa.string()))


@pytest.mark.parametrize(
    "declared", [["year"], [":int64"], ["year:text"], ["year:int64", "year:string"], ["id:string"]]
)
def test_init_with_columns_that_cannot_be(run, tmp_path, declared):
    options = [word for text in declared for word in ("--metadata", text)]
    refused = run("init", tmp_path / "g.lance", "--version", "v1", "--dim", 2, *options, "--json")
    assert refused.code != 0
    assert refused.json["error"] == "InvalidInput"
    assert not (tmp_path / "g.lance").exists()
