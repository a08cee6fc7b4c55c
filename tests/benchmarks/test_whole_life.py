"""The tables of a gallery's life: exponents, ratios of one run, and what they lead to."""

from __future__ import annotations

import pytest

from benchmarks.claims import printed
from benchmarks.whole_life.measure import measured
from benchmarks.whole_life.page import tables

SMALL, LARGE = 10**6, 10**7


def record(rows: int, step: str, cpu_s: float, **more: float) -> dict[str, object]:
    took = {"wall_s": 2 * cpu_s, "cpu_s": cpu_s, "before_mib": 100.0, "peak_mib": 512.0, "read_mb": 0.0}
    return {"rows": rows, "step": step, **took, "written_mb": 3.6e3, "grown_mb": 1.0, "others": 0.5, **more}


@pytest.fixture
def page():
    return tables(
        [
            record(SMALL, "Lance, append", 3.0),
            record(LARGE, "Lance, append", 30.0),
            record(SMALL, "add", 36.0),
            record(LARGE, "add", 360.0, written_mb=3.6e4),
        ]
    )


def test_ten_times_the_rows_for_ten_times_as_much_is_an_exponent_of_one(page):
    assert printed(page, set(), "CPU, to 10,000,000", "add") == "1.00"
    assert printed(page, set(), "peak, to 10,000,000", "add") == "0.00"


def test_a_ratio_is_of_the_same_size(page):
    assert printed(page, set(), f"CPU, {SMALL:,}", "add / Lance, append") == "12.0"


def test_a_thousand_million_rows_by_the_slope(page):
    assert printed(page, set(), "CPU, core hours", "add") == "10.0"
    assert printed(page, set(), "peak, GiB", "add") == "0.50"
    # 3.6e6 MB at 1 GB/s take longer than 36,000 core seconds on 32 cores.
    assert printed(page, set(), "at best, hours of 32 cores and a disk of 1 GB/s", "add") == "1.00"


def test_what_went_on_after_it_was_cut_off_is_named_and_compared_with_nothing():
    page = tables([record(SMALL, "add", 1.0), record(LARGE, "add", 1.0, cut_off=True)])
    assert f"| add (the rest of it) | {LARGE:,} |" in page
    assert page.count("| add") == 3 + 2  # two sizes and an exponent; of the ratios two without a figure
    assert "| add | | |".replace(" ", "") in page.replace(" ", "")


def test_work_is_measured_in_its_own_bytes_and_memory(tmp_path):
    def work():
        (tmp_path / "file").write_bytes(bytes(2_000_000))
        return {"answer": 42}

    found = measured(work, tmp_path)
    assert found["grown_mb"] == 2
    assert found["answer"] == 42
    assert found["peak_mib"] >= found["before_mib"] > 0
    assert found["wall_s"] > 0 <= found["cpu_s"]
