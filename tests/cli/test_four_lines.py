"""Four lines bring an app's LanceDB table to another model; each one typed wrongly names the command that is next."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import compatstore as cs
from lazily import Lazy

lancedb = Lazy("lancedb")

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "lancedb.md").read_text()
PROGRAM = re.search(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[1]
LINES = re.findall(r"^\$ compatstore (.+)", GUIDE, re.MULTILINE)[:4]
PLACE = "app-db#notes"


@pytest.fixture
def app(tmp_path, monkeypatch):
    """The app of the guide; its texts, from the first to the last."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(PROGRAM)
    return runpy.run_path("app.py")["texts"]


def line(run, number):
    return run(*shlex.split(LINES[number]))


@pytest.mark.full
def test_the_lines_each_wrong_first_right_then_and_twice(app, run):
    def refused(told, code, *expected):
        assert (told.code, told.out) == (code, "")
        error = told.err.splitlines()
        assert len([each for each in error if each.startswith("Error: ")]) == 1
        for part in expected:
            assert part in error[-1], error[-1]

    refused(run("adopt", "app-db#nots"), 3, "Name one of its tables: app-db#notes.")
    refused(run("adopt", "ap-db#notes"), 3, "There is no folder ap-db")
    refused(run("adopt", PLACE, "--vector", "vectr"), 2, "no column 'vectr'", "id, text, vector")
    refused(run("adopt", PLACE, "--id", "name"), 2, "no column 'name'")
    refused(run("status", PLACE), 6, "adopt")
    assert lancedb.connect("app-db").open_table("notes").version == 1, "nothing is written by what is refused"

    adopted = line(run, 0)
    assert adopted.code == 0
    taken, without = adopted.err.splitlines()
    assert taken == "Taken: vector as the vectors, id as the ids, text as the sources."
    assert without.endswith("compatstore register 'app-db#notes' v1 --encoder ENCODER")
    again = line(run, 0)
    refused(again, 2, "It is adopted: compatstore status 'app-db#notes'")

    refused(line(run, 2), 3, "Begin one: compatstore upgrade 'app-db#notes'")
    refused(line(run, 3), 3, "compatstore upgrade 'app-db#notes' v2 --encoder ENCODER")
    refused(run("upgrade", PLACE, "v2"), 3, "compatstore upgrade 'app-db#notes' v2 --encoder ENCODER")
    refused(run("upgrade", PLACE, "v2", "--encoder", "model2vec:nowhere"), 3, "hf download nowhere")
    refused(run("upgrade", PLACE, "v2", "--encoder", "new-model"), 3, "KIND:ARGUMENT")
    assert cs.Gallery.open(PLACE).versions() == ("v1",)

    upgraded = line(run, 1)
    assert upgraded.code == 0
    assert " 0 missing" in upgraded.out
    # Which of learning and a full backfill takes less time is the machine's: both end in a cutover.
    whole = run("upgrade", PLACE, "v2", "--backfill", "1.0")
    assert " 0 missing" in whole.out
    assert "next: " in whole.out
    assert "cutover" in whole.out, "at once, or after a measurement where the rounds found no gain"
    assert line(run, 1).code == 0
    assert len(cs.Gallery.open(PLACE).scan(native=["v2"])) == 400

    refused(run("report", PLACE, "v3", "--out", "report.html"), 3, "v2")
    reported = line(run, 2)
    assert reported.code == 0
    assert reported.err.splitlines()[-1] == "wrote report.html"
    assert "<title>" in Path("report.html").read_text()

    assert line(run, 3).out == "v2 is active, v1 before\n"
    assert line(run, 3).out == "v2 is active; nothing to do\n"
    found = run("search", PLACE, "--text", app[0], "-k", 1, "--json").json[0]
    assert (found["text"].split()[:3], found["_version"]) == (app[0].split()[:3], "v2")
    table = lancedb.connect("app-db").open_table("notes")
    (row,) = table.search().where("id = 'n0'").limit(1).to_list()
    assert (row["text"], len(row["vector"])) == (app[0], 12), "the app's rows are as it wrote them"


def written(columns):
    """A table of one row, whose lists are vectors."""
    kinds = {name: pa.list_(pa.float32(), len(value)) for name, value in columns.items() if isinstance(value, list)}
    return pa.table({name: pa.array([value], kinds.get(name)) for name, value in columns.items()})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": "a", "vector": [1.0], "image": [2.0]}, "compatstore adopt db#t --vector vector"),
        ({"id": "a", "text": "b"}, "none of id, text"),
        ({"name": "a", "vector": [1.0]}, "compatstore adopt db#t --id name"),
        ({"score": 0.5, "vector": [1.0]}, "compatstore adopt db#t --id COLUMN"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(run, tmp_path, monkeypatch, columns, said):
    monkeypatch.chdir(tmp_path)
    lancedb.connect("db").create_table("t", written(columns))
    refused = run("adopt", "db#t")
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err.replace("'", "")


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        ({"key": "a", "caption": "b", "v": [1.0]}, "v as the vectors, key as the ids, no column as the sources"),
        ({"id": 1, "path": "a.jpg", "v": [1.0]}, "v as the vectors, id as the ids, path as the sources"),
        ({"uri": "a.jpg", "content": "b", "v": [1.0]}, "v as the vectors, uri as the ids, content as the sources"),
    ],
)
def test_usual_columns_are_taken_and_said(run, tmp_path, monkeypatch, columns, taken):
    monkeypatch.chdir(tmp_path)
    lancedb.connect("db").create_table("t", written(columns))
    told = run("adopt", "db#t")
    assert told.code == 0
    assert taken in told.err
    named = [*("--vector", "v"), *("--id", taken.partition("vectors, ")[2].split()[0]), *("--source", "v")]
    assert run("adopt", "db#t", *named).code == 2, "it is a gallery"


def test_an_encoder_of_ones_own_is_found_where_one_works(run, tmp_path, monkeypatch, gallery):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_encoder_of_four_lines.py").write_text(
        "import numpy as np\nfrom compatstore.encoders import Function\n"
        "encoder = Function(lambda texts: np.ones((len(texts), 3), np.float32), 3, fingerprint='ones')\n"
    )
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    assert run("register", gallery, "own", "--encoder", "python:own_encoder_of_four_lines:encoder").code == 0
    assert sys.path[-1] == str(tmp_path), "behind what is installed"
