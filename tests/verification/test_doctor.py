"""The examination of the environment: what it looks at, and what it leaves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import compatstore.verification as verification
from compatstore.cli.app import app


def by_topic(examination):
    return {diagnosis.topic: diagnosis for diagnosis in examination.diagnoses}


@pytest.fixture(scope="module")
def environment():
    return verification.doctor()


@pytest.mark.full
def test_this_environment_is_fit(environment):
    assert environment.fit
    topics = by_topic(environment)
    assert {"Python", "pylance", "lancedb", "pyarrow", "numpy", "torch", "memory"} <= topics.keys()


def test_extras_say_how_to_get_them(environment):
    extras = {topic: d for topic, d in by_topic(environment).items() if topic.startswith("extra ")}
    assert "extra train" in extras
    assert "extra dev" not in extras
    for topic, diagnosis in extras.items():
        if diagnosis.what != "installed":
            assert diagnosis.fix == f'Run: pip install "compatstore[{topic.removeprefix("extra ")}]"'


@pytest.mark.full
def test_a_library_of_another_version_is_a_problem(monkeypatch):
    """A distribution of that name, further up the path, says that it is another version."""
    program = """
import sys
from importlib import metadata
found = metadata.version
metadata.version = lambda name: "0.1" if name == "pylance" else found(name)
from compatstore.verification.examination import needed_libraries
for d in needed_libraries():
    if d.topic == "pylance":
        print(d.level, "|", d.what, "|", d.fix)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    level, what, fix = said.strip().split(" | ")
    assert level == "problem"
    assert what.startswith("0.1, needed: ")
    assert fix.startswith('Run: pip install "pylance')


def test_a_gallery_is_looked_at_and_left_as_it_was(at, files):
    path = at("upgradable")
    before = files(path)
    topics = by_topic(verification.doctor(path))
    assert topics["gallery"].what == f"{path}: 239 items"
    assert topics["writing"].level == "ok"
    assert topics["clocks"].level == "ok"
    assert "needed by the versions that are registered" in topics["disk"].what
    assert files(path) == before


@pytest.mark.full
def test_a_finished_upgrade_needs_no_room(at):
    assert "needed" not in by_topic(verification.doctor(at("cutover")))["disk"].what


@pytest.mark.full
def test_a_gallery_that_is_not_there_is_a_problem(tmp_path):
    result = CliRunner().invoke(app, ["doctor", str(tmp_path / "nothing"), "--json"])
    assert result.exit_code == 9
    found = next(d for d in json.loads(result.stdout)["diagnoses"] if d["topic"] == "gallery")
    assert (found["level"], found["fix"].startswith("Make one: compatstore init")) == ("problem", True)


@pytest.mark.full
def test_the_core_loads_no_torch_for_it():
    program = "import sys\nimport compatstore.verification\nprint('torch' in sys.modules, 'lancedb' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]
