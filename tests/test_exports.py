"""What `compatstore` exports is what it says, and the tree of errors is the one in its docstring."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import pytest

import compatstore as cs
from compatstore import errors, trainers


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
import compatstore.trainers
try:
    compatstore.trainers.Ridge
except compatstore.errors.MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 'pip install "compatstore[train]"' in said


def test_trainers_export_what_they_say():
    assert sorted(trainers.__all__) == dir(trainers)
    assert set(trainers.__all__) == trainers._HOMES.keys()
    for name in trainers.__all__:
        found = getattr(trainers, name)
        assert found.__name__ == name
        assert found.__module__ == trainers._HOMES[name]


def test_every_trainer_is_exported():
    modules = [
        importlib.import_module(m.name) for m in pkgutil.walk_packages(trainers.__path__, "compatstore.trainers.")
    ]
    classes = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    fitted = {
        kind.__name__
        for kind in classes
        if kind.__module__.startswith("compatstore.trainers.")
        and hasattr(kind, "fit")
        and not inspect.isabstract(kind)
        and not getattr(kind, "_is_protocol", False)
    }
    assert len(fitted) >= 27
    assert fitted <= set(trainers.__all__)


def test_an_unknown_trainer_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'FastFil'"):
        trainers.FastFil  # noqa: B018


def test_importing_trainers_loads_no_torch():
    program = "import compatstore.trainers, sys; print(sorted({name.split('.')[0] for name in sys.modules}))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not set(ast.literal_eval(said)) & {"torch", "numpy", "accelerate", "lance"}
