"""export: an ONNX file, its loss in 8 bits, and the program that applies it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import compatstore as cs
from compatstore.devices import runner
from exported import DIM, SIDE, forward, plain, rows, second


@pytest.fixture
def saved(tmp_path):
    for name, artifact in {"plain": plain(), "first": forward(), "second": second()}.items():
        artifact.save(tmp_path / f"{name}.compat")
    table = pa.table({"vector": list(rows(90)), "side": list(rows(90, SIDE))})
    parquet.write_table(table, tmp_path / "vectors.parquet")
    np.save(tmp_path / "vectors.npy", rows(90))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"), [("plain", "vectors.npy"), ("plain", "vectors.parquet"), ("first", "vectors.parquet")]
)
def test_int8_with_the_loss_it_measures(run, saved, name, file):
    words = (saved / f"{name}.compat", saved / "h.onnx", "--int8", "--vectors", saved / file)
    told = run("export", *words, "--runner", saved / "up.py")
    assert told.code == 0
    assert "int8 against float32: cosine 0.99" in told.out
    assert "on 90 vectors\n" in told.out
    assert (saved / "up.py").read_text() == Path(runner.__file__).read_text()
    again = run("export", *words, "--overwrite", "--json").json
    assert again["int8_loss"]["rows"] == 90
    assert again["bytes"] == (saved / "h.onnx").stat().st_size
    assert run("export", *words).code == 4


def test_a_chain(run, saved):
    told = run("export", saved / "first.compat", saved / "h.onnx", "--then", saved / "second.compat", "--json")
    first, then = (cs.Artifact.load(saved / f"{name}.compat").short_id for name in ("first", "second"))
    assert told.json["origin"] == f"{first}+{then}"
    assert runner.DeviceModel(saved / "h.onnx").apply(rows(2), rows(2, SIDE)).vectors.shape == (2, 5)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("none.compat", "h.onnx"), 3, "a directory written by Artifact.save"),
        (("plain.compat", "h.txt"), 2, "ends in .onnx"),
        (("plain.compat", "h.onnx", "--int8"), 2, "--vectors FILE"),
        (("plain.compat", "h.onnx", "--int8", "--vectors", "no.npy"), 2, "readable file"),
        (("plain.compat", "h.onnx", "--then", "plain.compat"), 2, f"expected {DIM} values"),
        (("first.compat", "h.onnx", "--runner", "up.txt"), 2, "ends in .py"),
        (("plain.compat", "vectors.npy/h.onnx"), 6, "a place that can be written"),
        (("plain.compat",), 2, "OUT.onnx"),
    ],
)
def test_export_refuses(run, saved, monkeypatch, words, code, said):
    monkeypatch.chdir(saved)
    before = sorted(saved.iterdir())
    refused = run("export", *words)
    assert (refused.code, refused.out) == (code, "")
    assert said in refused.err
    assert sorted(saved.iterdir()) == before
