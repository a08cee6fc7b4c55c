"""The help of the program itself: the list of its commands, exit codes and the version."""

from __future__ import annotations

import re

import compatstore
from compatstore.cli.app import VERBS, app


def listed(text):
    """The lines of a help that list verbs, by their headings."""
    sections = re.findall(r"^(\w+):\n((?:  .+\n)+)", text, re.MULTILINE)
    return {heading: lines.splitlines() for heading, lines in sections if heading in VERBS}


def test_verbs_are_listed_by_what_they_are_for_each_on_one_line(run):
    found = listed(run("--help").out)
    assert {heading: [line.split()[0] for line in lines] for heading, lines in found.items()} == {
        heading: [verb.name for verb in verbs] for heading, verbs in VERBS.items()
    }
    assert sum(map(len, found.values())) == len(app.commands)


def test_a_missing_command_is_answered_with_the_list_of_commands(run):
    answer = run()
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == run("--help").out


def test_a_method_of_training_has_a_help_of_its_own(run):
    told = run("train", "fastfill", "--help").out
    assert "epochs=N" in told
    assert "--pairs SOURCE TARGET" in told
    assert "--images" not in told
    assert "--images FOLDER" in run("train", "bct", "--help").out
    assert "Methods on images" in run("train", "--help").out


def test_the_help_explains_exit_codes(run):
    assert "130  stopped by Ctrl-C" in run("--help").out


def test_version(run):
    assert run("--version").out == f"compatstore, version {compatstore.__version__}\n"
