"""Names that do not exist, extras that are not installed, and what an error carries."""

from __future__ import annotations

import subprocess
import sys

import pytest

import compatstore as cs
from compatstore import errors, trainers


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Galery'"):
        cs.Galery  # noqa: B018


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


def test_an_unknown_trainer_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'FastFil'"):
        trainers.FastFil  # noqa: B018
