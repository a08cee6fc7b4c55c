"""The boundary checks what signatures declare, and hides no error of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from odd_values import Hostile

import compatstore as cs
from compatstore.boundary import array_of, checked, checked_fields, foreign, shown
from compatstore.errors import InvalidInput


@checked
def public(
    text: str = "",
    whole: int = 0,
    number: float = 0.0,
    truth: bool = True,
    path: str | Path = "",
    names: Sequence[str] = (),
    shares: tuple[float, ...] = (),
    pair: tuple[str, int] = ("", 0),
    table: Mapping[str, int] | None = None,
    call: Callable[[], None] | None = None,
    way: Literal["a", "b"] = "a",
    version: cs.EmbeddingVersion | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    """Give back what arrived."""
    return dict(locals())


FINE = [
    ("text", "é", "é"),
    ("whole", np.int64(3), 3),
    ("number", 3, 3),
    ("number", np.float32(0.5), 0.5),
    ("truth", np.bool_(False), False),
    ("path", Path("a"), Path("a")),
    ("names", ("a", "b"), ["a", "b"]),
    ("names", np.array(["a"]), ["a"]),
    ("shares", [0.5, np.float64(1)], (0.5, 1.0)),
    ("pair", ["a", np.int8(1)], ("a", 1)),
    ("table", {"a": 1}, {"a": 1}),
    ("table", None, None),
    ("way", "b", "b"),
    ("anything", {1}, {1}),
]


@pytest.mark.parametrize(("name", "value", "arrives"), FINE)
def test_what_fits_arrives_as_pythons_own(name, value, arrives):
    found = public(**{name: value})[name]
    assert found == arrives
    assert type(found) is type(arrives)


WRONG = [
    ("text", b"a", "text: a text; found b'a'"),
    ("text", "\ud800", r"half characters; found '\\ud800'"),
    ("whole", 1.0, "a whole number"),
    ("whole", True, "a whole number"),
    ("whole", 2**64, "64 bits"),
    ("whole", np.timedelta64("NaT", "s"), "a whole number"),
    ("number", "1", "a number"),
    ("number", 10**400, "64 bits"),
    ("truth", 1, "True or False"),
    ("path", "a\0b", "a path without NUL"),
    ("path", 3, "a text or a Path"),
    ("names", "ab", "a list or tuple"),
    ("names", {"a"}, "a list or tuple"),
    ("names", ["a", 1], "each item a text"),
    ("shares", [0.5, "x"], "each item a number"),
    ("shares", range(2**40), "at most"),
    ("pair", ("a",), "2 values"),
    ("table", {"a": "b"}, "each value a whole number"),
    ("table", {1: 1}, "each key a text"),
    ("call", 3, "a function"),
    ("way", 3, "'a' or 'b'"),
    ("way", "c", "'a' or 'b'"),
    ("way", ["a"], "'a' or 'b'"),
    ("version", "v1", "an EmbeddingVersion or None"),
    ("version", cs.EmbeddingVersion, "an EmbeddingVersion"),
    ("text", Hostile(), "found a Hostile"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_what_does_not_fit_is_refused_with_one_error(name, value, message):
    with pytest.raises(InvalidInput, match=f"call public; expected {name}.*{message}|{message}"):
        public(**{name: value})


def test_more_of_the_same_are_checked_too():
    with pytest.raises(InvalidInput, match="native: a list or tuple, each item a text"):
        cs.Gallery.scan(None, native=["v1", 3])


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Settings:
    rows: int = 3
    share: float = 0.5


def test_settings_are_checked_and_made_pythons_own():
    assert type(Settings(rows=np.int64(4)).rows) is int
    for wrong in ({"rows": 0.5}, {"share": "x"}, {"share": float("nan")}):
        with pytest.raises(InvalidInput, match="make Settings"):
            Settings(**wrong)


def test_an_error_of_our_own_stays_what_it_is():
    @checked
    def broken(whole: int) -> int:
        return whole // 0

    with pytest.raises(ZeroDivisionError):
        broken(1)
    with pytest.raises(TypeError, match="missing"):
        broken()


def test_what_another_library_raises_for_a_callers_value_is_one_error():
    with pytest.raises(InvalidInput, match="read; expected a number; found TypeError"), foreign("read", "a number"):
        float([])
    with pytest.raises(InvalidInput, match="twice"), foreign("read", "a number"):
        raise InvalidInput("twice")


def test_arrays_are_read_without_what_is_behind_a_mask():
    assert array_of([[1, 2]], "read", "rows", ndim=2).shape == (1, 2)
    with pytest.raises(InvalidInput, match="1 masked"):
        array_of(np.ma.masked_array([1, 2], [True, False]), "read", "rows")
    for value in (3, [1, 2]):
        with pytest.raises(InvalidInput, match="2 dimensions"):
            array_of(value, "read", "rows", ndim=2)
    with pytest.raises(InvalidInput, match="RuntimeError: no array"):
        array_of(Hostile(), "read", "rows")


def test_values_are_shown_short_and_in_ascii():
    assert shown("\x1bé\ud800") == "'\\x1b\\xe9\\ud800'"
    assert len(shown("x" * 1000)) == 120
    assert shown(Hostile()) == "a Hostile"


def test_no_message_holds_half_a_character():
    error = InvalidInput("find \ud800", found="\udfff")
    assert str(error) == "find \\ud800; found \\udfff."
    assert error.operation == "find \ud800"


def test_a_class_that_is_made_otherwise_names_how():
    with pytest.raises(InvalidInput, match=r"Gallery\.create or Gallery\.open or Gallery\.adopt") as refused:
        cs.Gallery("photos.lance")
    assert "expected catalog: a Catalog; found 'photos.lance'" in str(refused.value)
