"""The help of the program itself: the list of its commands, exit codes and the version."""

from __future__ import annotations

import pytest

import compatstore
from compatstore.cli.app import app


def test_a_short_help_fits_its_line(run):
    listed = run("--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert "..." not in listed
    assert len(listed.splitlines()) == len(app.commands)


@pytest.mark.parametrize("words", [(), ("train",)])
def test_a_missing_command_is_answered_with_the_list_of_commands(run, words):
    answer = run(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == run(*words, "--help").out
    assert "..." not in answer.err.partition("Commands:\n")[2].partition("\n\n")[0]


def test_the_help_explains_exit_codes(run):
    assert "130  stopped by Ctrl-C" in run("--help").out


def test_version(run):
    assert run("--version").out == f"compatstore, version {compatstore.__version__}\n"
