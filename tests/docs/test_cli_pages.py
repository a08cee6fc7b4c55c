"""The pages of the command line say what the program says: every verb, method and option."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
WRITTEN = runpy.run_path(str(DOCS / "tools" / "cli_pages.py"))["pages"]()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_is_what_the_program_says(name):
    assert (DOCS / "reference" / name).read_text() == WRITTEN[name], "run: python docs/tools/cli_pages.py"


def test_every_verb_and_method_has_its_place():
    from compatstore.cli.app import app

    assert all(f"\n## {verb}\n" in WRITTEN["cli.md"] for verb in app.commands)
    assert all(f"\n## {method}\n" in WRITTEN["cli-train.md"] for method in app.commands["train"].commands)
