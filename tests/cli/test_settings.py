"""Options made from dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import click
import hypothesis.strategies as st
import pytest
from click.testing import CliRunner
from hypothesis import given

from compatstore.cli.settings import Earlier, Options, descriptions
from properties import examples


@dataclass(frozen=True, kw_only=True)
class Base:
    """What all have.

    Args:
        rate: How fast,
            and how far.

    Raises:
        ValueError: Never: of this nobody speaks.
    """

    rate: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Settings(Base):
    """All kinds of fields.

    Args:
        count: How many.
        name: Of what.
        form: Which.
        on: Whether.
        off: Whether not.
        either: Whether or not.
        steps: At which.
        words: Which ones.
        weight: How heavy.
        thing: No option can say it.
    """

    count: int
    name: str | None = None
    form: Literal["round", "square"] | None = None
    on: bool = True
    off: bool = False
    either: bool | None = None
    steps: tuple[int, ...] = (1, 2)
    words: tuple[str, ...] = ()
    weight: float | None = field(default=None, metadata={"unit": "KG"})
    thing: Base = Base()


OPTIONS = Options(kind=Settings)
RENAMED = Options(
    kind=Settings,
    flags={"weight": "--mass"},
    earlier={"form": Earlier(flag="--shape", values={"ring": "round"}), "weight": Earlier(flag="--weight")},
)


def parse(*words, options=OPTIONS):
    """What a command with these options makes of a command line."""
    made = []

    def body(**values):
        made.append(options.collect(values))

    command = click.Command("c", params=options.made(), callback=body)
    result = CliRunner().invoke(command, list(words), catch_exceptions=False)
    return made[0] if made else result


def test_defaults_are_the_dataclass_s_own():
    assert parse("--count", "3") == Settings(count=3)


def test_a_field_without_a_default_is_required():
    assert parse().exit_code == 2


@pytest.mark.full
@given(
    st.builds(
        Settings,
        rate=st.floats(0, 1e6),
        count=st.integers(-(10**9), 10**9),
        name=st.none() | st.text("abcäß -", min_size=1),
        form=st.sampled_from([None, "round", "square"]),
        on=st.booleans(),
        off=st.booleans(),
        either=st.none() | st.booleans(),
        steps=st.lists(st.integers(0, 99), min_size=1).map(tuple),
        words=st.lists(st.text("abc=>, -", min_size=1)).map(tuple),
        weight=st.none() | st.floats(0, 1e6),
        thing=st.just(Base()),
    )
)
@examples(50)
def test_every_setting_can_be_said(wanted):
    words = [f"--rate={wanted.rate}", f"--count={wanted.count}", f"--steps={','.join(map(str, wanted.steps))}"]
    words += [] if wanted.name is None else [f"--name={wanted.name}"]
    words += [] if wanted.form is None else [f"--form={wanted.form}"]
    words += ["--on" if wanted.on else "--no-on", *(["--off"] if wanted.off else [])]
    words += [] if wanted.either is None else ["--either" if wanted.either else "--no-either"]
    words += [f"--words={word}" for word in wanted.words]
    words += [] if wanted.weight is None else [f"--weight={wanted.weight}"]
    assert parse(*words) == wanted


def test_an_earlier_name_is_read_and_not_shown():
    named = parse("--count", "3", "--mass", "2.5", "--form", "round", options=RENAMED)
    assert parse("--count", "3", "--weight", "2.5", "--shape", "ring", options=RENAMED) == named
    shown = parse("--help", options=RENAMED).output
    assert "--mass KG" in shown
    assert "--shape" not in shown
    assert "--weight" not in shown


def test_an_option_beside_its_earlier_name_is_refused():
    refused = parse("--count", "3", "--mass", "2.5", "--weight", "2.5", options=RENAMED)
    assert (refused.exit_code, "--weight is --mass by its earlier name" in refused.output) == (2, True)


def test_a_verb_may_take_some_fields_alone():
    some = Options(kind=Settings, only=["count", "rate"])
    assert [option.name for option in some.made()] == ["rate", "count"]
    assert parse("--count", "3", options=some) == Settings(count=3)


def test_help_comes_from_the_docstrings_of_all_bases():
    assert descriptions(Settings) == {
        "rate": "How fast, and how far.",
        "count": "How many.",
        "name": "Of what.",
        "form": "Which.",
        "on": "Whether.",
        "off": "Whether not.",
        "either": "Whether or not.",
        "steps": "At which.",
        "words": "Which ones.",
        "weight": "How heavy.",
        "thing": "No option can say it.",
    }
