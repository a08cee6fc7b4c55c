"""What people read of an upgrade has lines of 80 columns; commands to copy alone may be longer."""

from __future__ import annotations

import pytest

import compatstore as cs
from compatstore.shown import view, wrapped
from tests.taught_galleries import FIRST, World

WIDTH = 80


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """A gallery whose upgrade has learned from a quarter of its items, without labels."""
    gallery = World().gallery(tmp_path_factory.mktemp("lines"))
    gallery.upgrade("v2", backfill=0.25, learn=FIRST)
    return gallery


def plan_of(gallery):
    later = cs.EmbeddingVersion("v3", dim=20, metric="cosine", encoder=gallery.version("v2").encoder)
    return gallery.upgrade(later, backfill=0.25, learn=FIRST, dry_run=True)


def width_of(part):
    """Columns that a line or a table takes where nothing is folded."""
    if isinstance(part, str):
        return len(part)
    return sum(max(map(len, column)) + 2 for column in zip(part.headings, *part.rows, strict=True))


def is_command(part):
    return isinstance(part, str) and part.startswith("next: ")


@pytest.mark.parametrize(
    "look",
    [
        plan_of,
        lambda gallery: gallery.upgrade("v2", backfill=0.25, learn=FIRST),
        lambda gallery: gallery.status(),
        lambda gallery: gallery.evaluate("v2", sample=200),
        lambda gallery: gallery.evaluate("v2", sample=200, labels="label"),
        lambda gallery: gallery.report("v2", details=cs.Details(by="label")),
    ],
    ids=["plan", "upgrade", "status", "evaluate", "evaluate by labels", "report"],
)
def test_lines_are_no_longer(gallery, look):
    result = look(gallery)
    path = gallery.status().gallery  # as long as it is
    parts = [part.replace(path, "g.lance") if isinstance(part, str) else part for part in view(result)]
    assert [part for part in parts if width_of(part) > WIDTH and not is_command(part)] == []


def test_a_retired_version_lacks_no_vectors(upgradable):
    upgradable.upgrade("v2")
    upgradable.cutover("v2")
    upgradable.retire("v1")
    (versions,) = [part for part in view(upgradable.status()) if not isinstance(part, str)]
    places = [versions.headings.index(name) for name in ("native", "transformed", "missing")]
    found = {row[0]: [row[place] for place in places] for row in versions.rows}
    assert found == {"v1": ["", "", ""], "v2": ["0", "10", "0"]}
    assert all(versions.numeric[place] for place in places)


def test_a_sentence_keeps_its_words_and_its_margin():
    lines = wrapped(f"{'word ' * 60}end-of-it", "    ")
    assert {line[:4] for line in lines} == {"    "}
    assert " ".join(" ".join(lines).split()) == f"{'word ' * 60}end-of-it"
