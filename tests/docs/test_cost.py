"""The table of costs is what its tool computes, and the tool computes what a reader would."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "docs" / "tools" / "cost.py"


@pytest.fixture(scope="module")
def cost():
    spec = importlib.util.spec_from_file_location("cost", TOOL)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_that_the_tool_makes(cost):
    text = cost.PAGE.read_text()
    assert cost.written(text) == text, "run python docs/tools/cost.py --write"


def test_money_and_time_of_a_case(cost):
    case = cost.Case("texts", items=1_000_000, tokens=200, price=0.02, rate=500)
    assert case.money(100_000) == pytest.approx(100_000 * 200 / 1e6 * 0.02)
    assert case.seconds(100_000) == pytest.approx(1_000_000 / cost.HOP_RATE + 200)
    assert cost.table([case], [0.1]).splitlines()[-1] == "| texts | 0.01; 54 s | 0.40; 4 min |"


def test_the_first_sample_is_that_of_an_upgrade(cost):
    samples = {items: cost.Case("", items, 0, 0, 1).first() for items in (50, 1_000, 50_000, 1_000_000)}
    assert samples == {50: 50, 1_000: 100, 50_000: 1_000, 1_000_000: 2_000}
