"""The recorded session is the one that `docs/tools/record.py` runs, with what its models are."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def recorder():
    spec = importlib.util.spec_from_file_location("record", ROOT / "docs" / "tools" / "record.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_recording_is_of_the_session_that_its_tool_runs():
    record, page = recorder(), (ROOT / "docs" / "recording.md").read_text()
    assert record.MODELS.rstrip() in page
    assert [line[2:] for line in page.splitlines() if line.startswith("$ ")] == list(record.SESSION)
    assert "(exit code" not in page


@pytest.mark.parametrize("session", ["PHOTOGRAPHS", "TEXTS"])
def test_what_was_recorded_with_real_weights_is_what_the_tool_runs(session):
    record = recorder()
    page = (ROOT / "docs" / "results" / "real_weights.md").read_text()
    part = page.partition(f"begin: {session.lower()}")[2].partition(f"end: {session.lower()}")[0]
    prompts = [f"\n{record.prompt(command)}\n" for command in getattr(record, session)]
    assert [part.count(prompt) for prompt in prompts] == [1] * len(prompts)
    assert part.count("\n$ ") == len(prompts)
    assert "(exit code" not in part


def test_a_recording_fills_its_part_of_a_page_and_no_other(tmp_path):
    record, page = recorder(), tmp_path / "page.md"
    page.write_text(
        "# A\n\n<!-- begin: one -->\nold\n<!-- end: one -->\n\n<!-- begin: two -->\nkept\n<!-- end: two -->\n"
    )
    found = record.record(["echo said", "false"], lambda folder: (folder / "file").write_text(""))
    record.put(page, "one", found)
    text = page.read_text()
    assert "old" not in text
    assert "$ echo said\nsaid\n\n$ false\n(exit code 1)\n```" in text
    assert text.endswith("<!-- begin: two -->\nkept\n<!-- end: two -->\n")


def test_the_photographs_are_the_first_of_the_first_classes(tmp_path):
    record = recorder()
    for name in ("BACKGROUND_Google", "b", "a"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(record.EACH + 3):
            (tmp_path / "all" / name / f"{number:03}.jpg").write_bytes(b"")
    record.photographs(tmp_path / "all", tmp_path)
    found = sorted(path.relative_to(tmp_path / "photos").as_posix() for path in (tmp_path / "photos").rglob("*.jpg"))
    assert found == [f"{name}/{number:03}.jpg" for name in "ab" for number in range(record.EACH)]
