"""Each public docstring has an example, and it prints what it says."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "api"
PRINTED_AS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# What a page begins with; the examples of all that it describes go on from there.
BEGINNINGS = {
    place: "".join(re.findall(r"^```pycon\n(.*?)^```", (PAGES / page).read_text(), flags=re.MULTILINE | re.DOTALL))
    for place, page in (
        ("compatstore.Gallery", "gallery.md"),
        ("compatstore.Cache", "gallery.md"),
        ("compatstore.Nearest", "gallery.md"),
        ("compatstore.evaluation", "evaluation.md"),
    )
}
ALIASES = {"FloatArray"}  # a type of NumPy with a name


def public():
    """(name, what it is) of all that `compatstore`, its encoders and its evaluation export, and the gallery's verbs."""
    for place in (cs, cs.encoders, cs.evaluation):
        for name in sorted(set(place.__all__) - ALIASES):
            value = getattr(place, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{place.__name__}.{name}", value
    for name, verb in inspect.getmembers_static(cs.Gallery):
        # `tests/test_asynchronous.py` runs the same examples through the async forms of the verbs.
        if not name.startswith("_") and not inspect.iscoroutinefunction(verb):
            yield f"compatstore.Gallery.{name}", verb
    for name, verb in vars(cs.Cache).items():
        if not name.startswith("_") and inspect.isfunction(verb) and name != "close":
            yield f"compatstore.Cache.{name}", verb


def run(session, names, title):
    parsed = doctest.DocTestParser().get_doctest(session, names, title, None, 0)
    runner = doctest.DocTestRunner(optionflags=PRINTED_AS)
    runner.run(parsed, clear_globs=False)
    assert runner.failures == 0
    return parsed.globs


@pytest.mark.parametrize(("name", "value"), [pytest.param(*found, id=found[0]) for found in public()])
def test_a_docstring_has_an_example_that_runs(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = inspect.getdoc(value) or ""
    assert ">>> " in document
    names = {"cs": cs, "np": np}
    for place, beginning in BEGINNINGS.items():
        if name.startswith(place):
            names = run(beginning, names, place)
    run(document, names, name)
