"""The recorded session on a page is the one that its tool runs."""

from __future__ import annotations

import re
import runpy

from lint.tree import ROOT, assert_none, page


def unlike_session(place, text, prompts):
    """Differences between a recorded session and the commands that its tool runs, each behind its prompt."""
    shown = re.findall(r"^\$ (?:.*\\\n)*.*", text, flags=re.MULTILINE)
    if shown != prompts:
        yield f"{place}: runs {shown}, its tool {prompts}"
    if "(exit code" in text:
        yield f"{place}: a command that failed"


def test_the_recorded_session_is_the_one_that_its_tool_runs():
    record, recording = runpy.run_path(str(ROOT / "docs" / "tools" / "record.py")), page("docs/recording.md")
    assert record["MODELS"].rstrip() in recording.text
    prompts = [record["prompt"](command) for command in record["SESSION"]]
    assert_none(unlike_session(recording.place, recording.text, prompts))


def test_the_rule_finds_a_planted_offender():
    session = "\n$ a --long \\\n    b\nprinted\n\n$ c\n"
    assert list(unlike_session("a", session, ["$ a --long \\\n    b", "$ c"])) == []
    assert list(unlike_session("a", session, ["$ c", "$ a --long \\\n    b"]))
    assert list(unlike_session("a", session + "(exit code 3)", ["$ a --long \\\n    b", "$ c"]))
