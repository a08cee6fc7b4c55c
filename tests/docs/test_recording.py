"""The recorded session is the one that `docs/tools/record.py` runs, with what its models are."""

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


def test_the_recording_is_of_the_session_that_its_tool_runs():
    record, page = recorder(), (ROOT / "docs" / "recording.md").read_text()
    assert record.MODELS.rstrip() in page
    assert [line[2:] for line in page.splitlines() if line.startswith("$ ")] == list(record.SESSION)
    assert "(exit code" not in page
