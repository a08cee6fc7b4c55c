"""The page of errors has each error once, with the builtin that it refines and its exit code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from compatstore import errors
from compatstore.cli.exit_codes import exit_code

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| (.+?) \| (.+?) \|$", PAGE, flags=re.MULTILINE)
CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.CompatStoreError) and kind is not errors.CompatStoreError
}


def test_each_error_has_a_row():
    assert sorted(name for name, *_ in ROWS) == sorted(CLASSES)


@pytest.mark.parametrize(("name", "builtin", "code"), [row[:3] for row in ROWS])
def test_a_row_says_what_the_class_is(name, builtin, code):
    kind = CLASSES[name]
    assert builtin in {parent.__name__ for parent in kind.__mro__ if parent.__module__ == "builtins"} - {"Exception"}
    assert exit_code(kind.__new__(kind)) == int(code)
