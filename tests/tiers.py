"""The two tiers of tests: `full` marks what the README's command leaves out and `.ci/run` runs."""

from __future__ import annotations

import pytest


def few(count, cases):
    """Cases of a parametrised test: `count`, spread evenly, are of the fast tier, the others of the full one."""
    cases = list(cases)
    fast = {round(number * len(cases) / count) for number in range(count)}
    return [case if place in fast else _full(case) for place, case in enumerate(cases)]


def _full(case):
    if isinstance(case, type(pytest.param())):
        return case._replace(marks=[*case.marks, pytest.mark.full])
    values = case if isinstance(case, tuple | list) else (case,)
    return pytest.param(*values, marks=pytest.mark.full)
