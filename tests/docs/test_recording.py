"""The tool that records sessions fills its part of a page, and takes the photographs that it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def recorder():
    spec = importlib.util.spec_from_file_location("record", ROOT / "docs" / "tools" / "record.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
