"""The tiers of tests and the number of examples of a property are what `.ci/run` and the README's command rely on."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import settings

import properties
from properties import examples
from tiers import few

ROOT = Path(__file__).parents[1]


def fast(cases):
    """Places of the cases without the mark `full`."""
    marks = [getattr(case, "marks", ()) for case in cases]
    return [place for place, found in enumerate(marks) if all(mark.name != "full" for mark in found)]


def test_a_few_cases_of_many_are_fast_and_spread_evenly():
    assert fast(few(1, "abcdef")) == [0]
    assert fast(few(3, "abcdef")) == [0, 2, 4]
    assert fast(few(9, "ab")) == [0, 1]
    assert fast(few(1, [])) == []


def test_values_ids_and_marks_of_cases_stay():
    kept, plain, pair = few(1, [1, pytest.param(2, id="two", marks=pytest.mark.slow), (3, 4)])
    assert kept == 1
    assert (plain.values, plain.id, [mark.name for mark in plain.marks]) == ((2,), "two", ["slow", "full"])
    assert pair.values == (3, 4)


@pytest.mark.parametrize(("profile", "count", "steps"), [("fast", 25, 8), ("full", 300, 18)])
def test_the_profile_decides_how_many_examples_are_tried(monkeypatch, profile, count, steps):
    monkeypatch.setattr(properties, "PROFILE", profile)
    found = examples(300, steps=18)
    assert (found.max_examples, found.stateful_step_count, found.deadline) == (count, steps, None)
    assert examples(3).max_examples == 3
    assert settings.get_profile(profile).deadline is None


def test_ci_runs_the_lints_both_tiers_and_all_examples():
    script = (ROOT / ".ci" / "run").read_text()
    addopts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert "not full and not slow" in addopts
    parts = ["tests/lint", "COMPATSTORE_EXAMPLES=full", 'bash -euo pipefail -c "$command"', '-m "full and not slow"']
    assert sorted(parts, key=script.index) == parts
