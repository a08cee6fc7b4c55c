"""Every benchmark runs at its smallest, and its tables and chart are made from what it gives."""

from __future__ import annotations

import pytest

from benchmarks import charts
from benchmarks.__main__ import start
from benchmarks.record import Record, benchmark_names, load
from tiers import few

# Start several processes, and take a minute.
SLOW = {"lives", "object_store", "http_encoder", "plain_app", "whole_life"}


def cases():
    names = benchmark_names("SMOKE")
    quick = few(1, [name for name in names if name not in SLOW])
    return quick + [pytest.param(name, marks=pytest.mark.slow) for name in names if name in SLOW]


@pytest.mark.parametrize("name", cases())
def test_a_benchmark_runs_at_its_smallest(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.record.RESULTS", tmp_path)
    assert start(name, ["--smoke", "--out", str(tmp_path / f"{name}.json")]) == 0
    record = Record.read(name)
    assert record.rows
    assert all(isinstance(row, dict) for row in record.rows)
    assert f"{record.rows[0]}"[:9].replace("'", '"') in capsys.readouterr().out
    if hasattr(load(name), "chart"):
        assert charts.svg(load(name).chart(record)).count("</svg>") == 1
