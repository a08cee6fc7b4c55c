"""Names that do not exist, extras that are not installed, and what an error carries."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import pytest

import compatstore as cs
from compatstore import errors, trainers
from compatstore.former import FORMER


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Galery'"):
        cs.Galery  # noqa: B018


def test_an_error_carries_its_operands():
    error = errors.InvalidInput("add 3 items", expected="128 values", found="64", fix="Resize them.", dim=64)
    assert str(error) == "add 3 items; expected 128 values; found 64. Resize them."
    assert isinstance(error, ValueError)
    assert error.to_dict()["expected"] == "128 values"
    assert (error.dim, error.duplicates) == (64, ())
    copied = pickle.loads(pickle.dumps(errors.NotFound("get 1 items", found="no item x", kind="item")))
    assert (str(copied), copied.kind, copied.to_dict()["kind"]) == ("get 1 items; found no item x.", "item", "item")


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_former_class_names_what_it_was_merged_into(former, now):
    home = cs if "() alone" in now else trainers if former in ("Refit", "DMUModel") else errors
    with pytest.raises(AttributeError, match=re.escape(f"no attribute '{former}': use {now}")):
        getattr(home, former)
    if home is errors:
        assert issubclass(getattr(errors, now.partition(",")[0]), errors.CompatStoreError)


def test_an_unknown_class_of_errors_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"no attribute 'NotFond'$"):
        errors.NotFond  # noqa: B018


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


def test_encoders_are_listed_before_any_is_used():
    said = subprocess.run(
        [sys.executable, "-c", "import compatstore as cs; print(*dir(cs.encoders))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(cs.encoders.__all__) <= set(said.split())
    assert "Function" in said.split()


@pytest.mark.parametrize("verb", ["get", "search"])
def test_rows_are_typed_as_arrow_tables(verb):
    assert getattr(cs.Gallery, verb).__annotations__["return"] == "ArrowTable"


def test_a_function_in_an_encoders_place_names_the_encoder_of_functions():
    with pytest.raises(errors.InvalidInput, match=r"encoders\.Function\(function, dim, fingerprint=\.\.\.\)"):
        cs.EmbeddingVersion("v1", dim=2, encoder=lambda texts: [[0.0, 1.0] for _ in texts])
