"""What a shell is offered: verbs, methods, options and choices by click's own completion, and never an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete, get_completion_class

from compatstore.cli.app import SHELLS, VARIABLE, app


def offered(*words):
    """What is offered for the last word, as (type, value)."""
    asked = BashComplete(app, {}, "compatstore", VARIABLE)
    *before, begun = [str(word) for word in words]
    return [(item.type, item.value) for item in asked.get_completions(before, begun)]


def names(*words):
    found = offered(*words)
    assert {kind for kind, _ in found} <= {"plain"}
    return [value for _, value in found]


def test_verbs_methods_options_and_choices():
    assert names("") == list(app.commands)
    assert names("re") == ["register", "retire", "report"]
    assert names("train", "fast") == ["fastfill"]
    assert names("search", "g", "--serving", "c") == ["cascade"]
    assert names("completion", "") == list(SHELLS)
    assert {"--backfill", "--cutover", "--set", "--json"} <= set(names("upgrade", "g", "v2", "--"))
    assert {"--pairs", "--images", "--set"} <= set(names("train", "fct", "--"))
    assert names("evaluate", "g", "v2", "--criterion", "nd") == ["ndcg@10"]
    assert offered("status", "pho") == [("file", "pho")]


@pytest.mark.parametrize(
    "words", [("upgrade", "/none.lance", ""), ("unlink", "\0", ""), ("upgrade", "--no-such-option", "g", "")]
)
def test_what_is_broken_or_absent_has_no_completions_and_says_nothing(words, capfd):
    assert [value for kind, value in offered(*words) if value != words[-1]] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_clicks(run, shell):
    told = run("completion", shell)
    assert told.code == 0
    expected = get_completion_class(shell)(click.Command("compatstore"), {}, "compatstore", VARIABLE).source()
    assert told.out.rstrip("\n") == expected.rstrip("\n")
    assert run("completion", shell, "--json").json["script"] == expected
    refused = run("completion", "cmd.exe")
    assert refused.code == 2
    assert "'bash', 'zsh', 'fish'" in refused.err


PROGRAM = "from compatstore.cli.app import main; main()"


def asked(line, shell="bash"):
    """The program as a shell calls it."""
    environment = {**os.environ, VARIABLE: f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


def test_a_program_that_fails_writes_nothing_into_the_prompt():
    for shell in ("bash", "powershell"):
        done = asked("compatstore upgrade /none ", shell)
        assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes(tmp_path, run):
    program = tmp_path / "bin" / "compatstore"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{PROGRAM}' \"$@\"\n")
    program.chmod(0o755)
    script = tmp_path / "completion.bash"
    script.write_text(run("completion", "bash").out)
    lines = ["roll", "evaluate g v2 --criterion nd", "train dmu", "status /nowhere/none.lance --js"]
    ask = "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _compatstore_completion compatstore"
    asking = [f"COMP_WORDS=(compatstore {line}); {ask}; echo ${{COMPREPLY[*]}}" for line in lines]
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    text = "\n".join([f"source {script}", *asking, ""])
    done = subprocess.run(["bash", "--norc"], input=text, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["rollback", "ndcg@10", "dmu-head dmu", "--json"]
    assert done.stderr == ""
