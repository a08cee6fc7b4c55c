"""Options made from dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

import click
import hypothesis.strategies as st
import pytest
from click.testing import CliRunner
from hypothesis import assume, given

from compatstore.cli.settings import Options, descriptions, read_settings, settings_table
from compatstore.errors import InvalidInput, NotFound
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


OPTIONS = Options(f"{__name__}:Settings")


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


def read(*words, config=None, kinds=None, **named):
    """What a verb makes of `--set` and `--config`."""
    return read_settings(kinds or {"": Settings}, config=config, words=words, given=named, where="compatstore c")


def toml(values):
    """A TOML file's lines."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


@given(
    st.fixed_dictionaries(
        {"count": st.integers(-(10**9), 10**9)},
        optional={
            "rate": st.floats(0, 1e6),
            "name": st.text("abcäß -", min_size=1).filter(lambda text: text.strip() == text and text != "none"),
            "form": st.sampled_from(["round", "square"]),
            "on": st.booleans(),
            "steps": st.lists(st.integers(0, 99), min_size=1),
            "words": st.lists(st.text("abc=> -", min_size=1), min_size=1).filter(
                lambda words: words[-1] == words[-1].strip()
            ),
            "weight": st.floats(0, 1e6),
        },
    )
)
@examples(50)
def test_a_setting_by_a_word_and_by_a_file_is_the_same(tmp_path_factory, values):
    file = tmp_path_factory.mktemp("settings") / "f.toml"
    file.write_text(toml(values), encoding="utf-8")
    wanted = Settings(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    assert read(config=str(file))[""] == wanted
    said = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()}
    words = [f"{name}={str(value).lower() if value in (True, False) else value}" for name, value in said.items()]
    words = [word for word in words if not word.startswith("words= ")]  # blanks around a value are none of its own
    assume(len(words) == len(values))
    assert read(*words)[""] == wanted


def test_a_word_goes_before_the_file_and_an_option_before_both(tmp_path):
    (tmp_path / "f.toml").write_text("[one]\ncount = 1\nname = 'file'\nweight = 2\n[two]\nrate = 0.25\n")
    made = read(
        *("one.count=2", "one.name=word"),
        config=str(tmp_path / "f.toml"),
        kinds={"one": Settings, "two": Base},
        **{"one.count": 3},
    )
    assert made == {"one": Settings(count=3, name="word", weight=2.0), "two": Base(rate=0.25)}
    assert read("count=1", "weight=50%")[""].weight == 0.5
    assert read("count=1", "name=none")[""].name is None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("count=1", "wieght=2"), "Did you mean 'weight'?"),
        (("count=1", "thing=2"), "thing"),
        (("count=one",), "'one' is not a valid integer"),
        (("count=1", "form=oval"), "'round', 'square'"),
        (("count",), "NAME=VALUE"),
        (("rate=1",), "Set it: --set count=..."),
    ],
)
def test_a_setting_that_does_not_exist_or_fit_is_refused(words, found):
    with pytest.raises((InvalidInput, click.UsageError)) as refused:
        read(*words)
    assert found in (refused.value.message if isinstance(refused.value, click.UsageError) else str(refused.value))


def test_a_name_without_its_section_finds_it():
    with pytest.raises(InvalidInput, match=r"Did you mean 'one\.weight'"):
        read("weight=2", kinds={"one": Settings})


@pytest.mark.parametrize("text", ["count = ", "count = {a = 1}", "[count]\na = 1", "[[count]]\na = 1", "\0"])
def test_a_file_that_is_no_toml_of_settings_is_refused(tmp_path, text):
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises((InvalidInput, click.UsageError)):
        read(config=str(tmp_path / "f.toml"))
    with pytest.raises(NotFound):
        read(config=str(tmp_path / "none.toml"))


def test_the_table_of_the_help_has_every_setting():
    table = dict(settings_table({"one": Settings}))
    assert table["one.form=round|square"] == "Which."
    assert table["one.count=N"] == "How many.  [required]"
    assert table["one.steps=A,B,..."] == "At which.  [default: 1,2]"
    assert table["one.weight=KG"] == "How heavy."
    assert not any("thing" in name for name in table)


def test_old_words_are_answered_with_the_new_ones(run):
    for words, meant in (
        (("plan", "g", "v2"), "`plan` is `upgrade --dry-run`"),
        (("fuse", "g", "v2"), "`evaluate --weight best`"),
        (("upgrade", "g", "v2", "--max-rows", 3), "--set backfill.max_rows=VALUE"),
        (("upgrade", "g", "v2", "--no-learn"), "--set learn=none"),
        (("upgrade", "g", "v2", "--via", "x"), "--transform"),
        (("train", "fct", "--epochs", 3), "--set epochs=VALUE"),
    ):
        answer = run(*words)
        assert (answer.code, meant in answer.err) == (2, True), answer.err


def test_a_verb_may_take_some_fields_alone():
    some = Options(f"{__name__}:Settings", only=["count", "rate"])
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
