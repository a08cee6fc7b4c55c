"""Source files that pages name are there, and where the table of layers says they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = ("compatstore", "trainers", "cli", "tests", "benchmarks", "examples", "docs/tools")
FILE = re.compile(r"(?<![\w./<-])(?:[\w-]+/)*[\w-]+\.py\b")


def sources():
    """Paths of all source files from the repository's root."""
    found = (path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return {f"/{path.relative_to(ROOT)}" for path in found}


def named(page):
    """Source files that a page names in code, as the end of a path: `hop.py`, `upgrade/hop.py`."""
    code = re.findall(r"`([^`\n]+)`", page.read_text())
    return {name for text in code for name in FILE.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_that_is_named_is_there(page):
    there = sources()
    assert [name for name in sorted(named(page)) if not any(path.endswith(f"/{name}") for path in there)] == []


def layers():
    """(layer, names of files and folders) of each row of the table of layers; a layer of one file names none."""
    rows = re.findall(r"^\| `(\w+)` \|.*?\|(.*)\|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    return [(layer, re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|/))`", files)) for layer, files in rows]


def test_the_files_of_a_layer_are_in_its_folder():
    named = layers()
    assert {"cli", "trainers", "search", "upgrade", "storage", "artifacts"} <= {layer for layer, _ in named}
    for layer, files in named:
        missing = [name for name in files if not (ROOT / "compatstore" / layer / name).exists()]
        assert missing == [], f"{layer} has no {', '.join(missing)}"
