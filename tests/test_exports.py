"""What `compatstore` exports is what it says, and the tree of errors is the one in its docstring."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import compatstore as cs
from compatstore import errors


def test_all_names_exist():
    assert sorted(cs.__all__) == cs.__all__
    for name in cs.__all__:
        assert getattr(cs, name) is not None
    assert set(dir(cs)) == set(cs.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Galery'"):
        cs.Galery  # noqa: B018


def test_the_tree_of_errors_is_the_one_it_shows():
    drawn = re.findall(r"(?:├──|└──|^)\s*(\w+)(?: \((\w+)\))?", errors.__doc__ or "", flags=re.MULTILINE)
    classes = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }
    shown = {name: base for name, base in drawn if name in classes}
    assert shown.keys() == classes.keys()
    for name, base in shown.items():
        if base:
            assert any(parent.__name__ == base for parent in classes[name].__mro__), name


def test_an_error_carries_its_operands():
    error = errors.DimensionMismatch("add 3 items", expected="128 values", found="64", fix="Resize them.")
    assert str(error) == "add 3 items; expected 128 values; found 64. Resize them."
    assert isinstance(error, ValueError)
    assert error.to_dict()["expected"] == "128 values"


def test_trainers_without_torch_say_what_to_install():
    program = """
import sys
sys.modules["torch"] = None
import compatstore.errors
try:
    import compatstore.trainers
except compatstore.errors.MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 'pip install "compatstore[train]"' in said
