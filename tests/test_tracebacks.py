"""Tracebacks of mistakes: a script's own lines and the message; all frames for who asks for them."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys

import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.trainers import Ridge

MADE = 'import compatstore as cs\ngallery = cs.Gallery.create("g.lance", cs.EmbeddingVersion("v1", dim=2))\n'


def run_script(folder, text, **variables):
    """(lines of the traceback that name a file, all of stderr) of a script that fails."""
    (folder / "script.py").write_text(text)
    surroundings = {name: value for name, value in os.environ.items() if name != "COMPATSTORE_TRACEBACK"} | variables
    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=surroundings, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    return [line.strip() for line in ended.stderr.splitlines() if line.startswith('  File "')], ended.stderr


MISTAKES = {
    "a vector of another length": "gallery.search([1.0, 2.0, 3.0])",
    "an unknown version": 'gallery.upgrade("v2", backfill=1.0)',
    "an argument of another type": 'gallery.search([1.0, 2.0], k="three")',
    "a share out of its range": "cs.Backfill(share=7)",
    "no gallery": 'cs.Gallery.open("nowhere")',
    "a name that cannot be": 'cs.EmbeddingVersion("version 2", dim=3)',
    "items that are none": 'gallery.add({"id": ["a"], "vector": [["x", "y"]]})',
    "a spec of nothing": 'cs.encoders.from_spec("nothing:at-all")',
    "an artifact that is not there": 'cs.Artifact.load("nowhere")',
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_shows_the_line_of_the_script_alone(tmp_path, mistake):
    files, said = run_script(tmp_path, MADE + mistake + "\n")
    assert files == [f'File "{tmp_path / "script.py"}", line 3, in <module>'], said
    assert len(said.splitlines()) <= 5, said
    assert "compatstore.errors." in said.splitlines()[-1]


@pytest.mark.parametrize("mistake", ["gallery.search([1.0, 2.0], top_k=3)", "cs.Backfill(fraction=0.5)"])
def test_an_argument_that_does_not_exist_shows_two_frames_of_ours_at_most(tmp_path, mistake):
    files, said = run_script(tmp_path, MADE + mistake + "\n")
    assert len(files) <= 3, said
    assert "Did you mean" in said.splitlines()[-1]


def test_all_frames_are_there_for_who_asks_for_them(tmp_path):
    files, said = run_script(tmp_path, MADE + MISTAKES["a vector of another length"], COMPATSTORE_TRACEBACK="full")
    assert len(files) > 3, said


def test_the_frames_of_the_scripts_own_code_within_the_call_stay(tmp_path):
    text = """import compatstore as cs

def embed(texts):
    return cs.EmbeddingVersion("a version", dim=3)

encoder = cs.encoders.Function(embed, 2, fingerprint="mine")
gallery = cs.Gallery.create("g.lance", cs.EmbeddingVersion("v1", dim=2, encoder=encoder))
gallery.search("text")
"""
    files, said = run_script(tmp_path, text)
    assert [line.rpartition("line ")[2] for line in files] == ["8, in <module>", "4, in embed"], said


def test_what_another_library_raised_stays_the_cause(tmp_path, monkeypatch):
    monkeypatch.delenv("COMPATSTORE_TRACEBACK", raising=False)
    gallery = cs.Gallery.create(tmp_path / "g.lance", cs.EmbeddingVersion("v1", dim=2))
    with pytest.raises(cs.errors.InvalidInput) as refusal:
        len(gallery.scan(where="number = = 3"))
    assert refusal.value.__cause__ is not None
    assert "compatstore" not in {frame.name for frame in refusal.traceback[1:]}


def test_an_awaited_verb_shows_no_frames_of_ours(tmp_path):
    text = MADE + "import asyncio\nasync def main():\n    await gallery.aio.search([1.0])\nasyncio.run(main())\n"
    files, said = run_script(tmp_path, text)
    assert not [line for line in files if f"{os.sep}compatstore{os.sep}" in line], said
    assert files[-1].endswith("line 5, in main"), said


def settings_of(places):
    """Public dataclasses that check what they are made of, by name."""
    found = {name: getattr(place, name) for place in places for name in place.__all__}
    kinds = {name: kind for name, kind in found.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    return {name: kind for name, kind in kinds.items() if hasattr(kind, "__post_init__")}


def silent_on_arguments(kinds):
    """Dataclasses that do not say what they take where an argument is unknown."""
    for name, kind in kinds.items():
        try:
            kind(no_such=1)
        except TypeError as error:
            if not re.match(rf"{kind.__name__}\(\) got an unexpected .* 'no_such'\. It takes ", str(error)):
                yield f"{name}: {error}"
        else:
            yield f"{name} takes it"


def test_every_public_dataclass_says_what_it_takes():
    kinds = settings_of((cs, cs.encoders, cs.evaluation, trainers))
    assert len(kinds) > 50
    assert list(silent_on_arguments(kinds)) == []


@dataclasses.dataclass
class Silent:
    seed: int = 0


def test_a_dataclass_that_is_silent_is_an_offender():
    (found,) = silent_on_arguments({"Silent": Silent})
    assert found.startswith("Silent: ")


@pytest.mark.parametrize(
    ("make", "meant"),
    [
        (lambda: Ridge(alpha=1), "penalties"),
        (lambda: cs.Backfill(fraction=0.5), "share"),
        (lambda: cs.EmbeddingVersion("v1", dimension=3), "dim"),
        (lambda: cs.EmbeddingVersion("v1", dim=3, distance="l2"), "metric"),
        (lambda: cs.EmbeddingVersion("v1", dim=3, normalized=True), "normalised"),
        (lambda: cs.Gates(criteria="map"), "criterion"),
        (lambda: cs.RunSettings(retry=3), "retries"),
        (lambda: cs.SearchSettings(nprobe=3), "nprobes"),
    ],
)
def test_an_argument_of_another_name_names_the_field_that_is_meant(make, meant):
    with pytest.raises(TypeError, match=rf"Did you mean '{meant}'\? It takes .*{meant}"):
        make()
