"""Words that a reader has to guess at stand in no docstring, comment, message or page."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUESSED = re.compile(
    r"\b(anew|likewise|all\s+the\s+same|so\s+many|in\s+words|on\s+your\s+word|is\s+no\s+accident)\b", re.IGNORECASE
)
FOLDERS = ("compatstore", "cli", "trainers", "examples", "docs")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def texts(path):
    """Docstrings, messages and comments of a source file; a page as a whole."""
    if path.suffix == ".md":
        return path.read_text()
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    names = ("STRING", "COMMENT", "FSTRING_MIDDLE")
    return "\n".join(token.string for token in tokens if tokenize.tok_name[token.type] in names)


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in [*SOURCES, *PAGES]])
def test_no_word_has_to_be_guessed_at(path):
    assert [found[0] for found in GUESSED.finditer(texts(path))] == []


def test_the_check_finds_a_word():
    assert GUESSED.search("it is built\nanew")
    assert GUESSED.search("So   many rows")
    assert not GUESSED.search("a renewed lease")
