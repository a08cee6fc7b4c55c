"""Every example runs, and shows what its first line says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

EXAMPLES = Path(__file__).parents[1] / "examples"


def figures(text, name):
    """The first figures behind each line that begins with a name."""
    return [float(found) for found in re.findall(rf"^{name}\D*([\d.]+)", text, flags=re.MULTILINE)]


def upgrade(text):
    status_quo, hop, _, full = (float(found) for found in re.findall(r"CMC-1 ([\d.]+)", text))
    assert status_quo < hop < full
    assert "plan: expand, hop, backfill, catch-up, cutover" in text
    assert "active=v2 items=800" in text


def compatible_model(text):
    status_quo, as_is, refreshed = (float(found) for found in re.findall(r"CMC-1 ([\d.]+)", text))
    assert status_quo < as_is
    assert status_quo + 0.03 < refreshed


def adopt(text):
    assert re.search(r"the app finds \['photo-3', 'new'\]", text)
    assert re.findall(r"^not in v2: (\d)", text, flags=re.MULTILINE) == ["1", "0"]
    assert text.endswith("active v2 and back v1\n")


def priority_backfill(text):
    (share,) = figures(text, "A backfill of ")
    embedded, items = map(int, re.findall(r"embedded (\d+) of (\d+) items", text)[0])
    assert 0 < share < 1
    assert embedded == int(round(share * items, 6))
    assert figures(text, "hop alone")[0] < figures(text, f"backfill {share:.0%}")[0]


def teach_itself(text):
    items, embedded, cost = (float(found) for found in re.findall(r"\d[\d.]*", text.splitlines()[0]))
    assert embedded == 300 < items
    assert cost == 0.03
    assert len(re.findall(r"weight [\d.]+: .* at a native share of", text)) == 3
    assert "irectory" in text.splitlines()[-1]


def teach_itself_on_images(text):
    waves = re.findall(r"wave \d: (\d+) native", text)
    assert [int(native) for native in waves] == [100, 224]
    assert "ranked by the fusion of" in text
    assert re.search(r"nearest to a (\d): \[\1, \1, \1, \1, \1\]", text)


def async_service(text):
    *during, after = text.splitlines()
    assert during
    assert all(re.fullmatch(r"during the upgrade: 100 of 100 right, by v\d", line) for line in during)
    assert after == "after the upgrade: 100 of 100 right, by v2"


def served_throughout(text):
    """Each state finds more than the one before, as ever more is asked and found by the new model."""
    states = re.findall(r"^([\w ]+): (\d+) of 50 found", text, flags=re.MULTILINE)
    assert [state for state, _ in states] == ["v1", "fused", "cut over", "v2 alone"]
    found = [int(count) for _, count in states]
    assert 0 < found[0] < found[1] < found[2] <= found[3]


SHOWS = {
    "upgrade": upgrade,
    "compatible_model": compatible_model,
    "adopt": adopt,
    "priority_backfill": priority_backfill,
    "teach_itself": teach_itself,
    "async_service": async_service,
    "teach_itself_on_images": teach_itself_on_images,
    "langchain": served_throughout,
    "haystack": served_throughout,
    "llamaindex": served_throughout,
}


# Half a minute: two models, and two rounds that labels judge. The example on texts runs the same call in full, and
# tests/upgrade has rounds that labels judge.
SLOW = "06_teach_itself_on_images"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == SLOW else [])
        for path in sorted(EXAMPLES.glob("[0-9]*.py"))
    ],
)
def test_an_example_shows_what_it_says(path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)  # as for a script that is run by its path
    runpy.run_path(str(path))
    SHOWS[path.stem.split("_", 1)[1]](capsys.readouterr().out)
