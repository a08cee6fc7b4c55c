"""What a shell is offered: verbs, options and values that are known, fast, and never an error in somebody's prompt."""

from __future__ import annotations

import ast
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete, get_completion_class

import compatstore as cs
from compatstore.cli.app import app
from compatstore.cli.completion import SHELLS, VARIABLE
from compatstore.cli.offers import COMPUTED, ENCODERS, FIGURES, ORDERS
from compatstore.encoders.registry import _KINDS
from compatstore.search import COMPUTED as SEARCHED
from compatstore.upgrade.backfilling.policies import POLICIES
from compatstore.upgrade.requests.gates import METRICS
from lazily import Lazy

lancedb = Lazy("lancedb")

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "docs" / "tools" / "cli_pages.py"))


def offered(*words):
    """What is offered for the last word, as (type, value)."""
    asked = BashComplete(app, {}, "compatstore", VARIABLE)
    *before, begun = [str(word) for word in words]
    return [(item.type, item.value) for item in asked.get_completions(before, begun)]


def names(*words):
    found = offered(*words)
    assert {kind for kind, _ in found} <= {"plain"}
    return [value for _, value in found]


@pytest.fixture
def made(tmp_path):
    """A gallery of two versions with metadata, and its table in a LanceDB database."""
    rows = [
        {"key": f"n{n}", "text": f"note {n}", "views": n, "vector": [float(n), 1.0], "two words": "x", "$(id)": "y"}
        for n in range(3)
    ]
    lancedb.connect(tmp_path / "db").create_table("notes", rows)
    place = f"{tmp_path}/db#notes"
    gallery = cs.Gallery.adopt(place, cs.EmbeddingVersion("v1", dim=2), vector="vector", id="key", source="text")
    gallery.register(cs.EmbeddingVersion("v2", dim=3))
    return place


@pytest.mark.full
def test_verbs_methods_options_and_choices(made):
    assert names("") == list(app.commands)
    assert names("re") == ["register", "retire", "report"]
    assert names("train", "fast") == ["fastfill"]
    assert names("search", made, "--serving", "c") == ["cascade"]
    assert names("completion", "") == list(SHELLS)
    assert {"--backfill", "--cutover", "--latency-bound", "--json"} <= set(names("upgrade", made, "v2", "--"))
    assert "--policy" not in names("upgrade", made, "v2", "--"), "an earlier name is read and not shown"
    assert "--epochs" in names("train", "fct", "--")
    assert names("plan", made, "v2", "--criterion", "nd") == ["ndcg@10"]


def test_versions_columns_and_orders_are_those_of_the_gallery_on_the_line(made):
    assert names("upgrade", made, "") == ["v1", "v2"]
    assert names("cutover", made, "v2", "--") != []
    assert names("search", made, "--version", "v") == ["v1", "v2"]
    assert names("train", "ridge", "--gallery", made, "--from", "") == ["v1", "v2"]
    assert names("train", "ridge", "--gallery", made, "--source", "v") == ["v1", "v2", "vector"]
    assert names("plan", made, "v2", "--labels", "") == ["key", "text", "views"]
    assert names("doctor", made, "--vector", "") == ["vector"]
    assert names("doctor", made, "--id", "k") == ["key"]
    assert names("plan", made, "v2", "--order", "") == [
        *(*ORDERS, "column:views"),
        *("spread-sigma:key", "spread-sigma:text", "spread-sigma:views"),
    ]
    assert names("search", made, "--columns", "key,_") == [f"key,{name}" for name in COMPUTED]
    assert names("search", made, "--columns", "te") == ["text"]
    assert names("plan", made, "v2", "--seed", "3", "--policy", "sigma", "--labels", "te") == ["text"]


def test_the_values_an_option_knows_are_those_that_the_program_reads():
    assert set(names("register", "g", "v2", "--encoder", "")) == set(ENCODERS) == {f"{kind}:" for kind in _KINDS}
    assert tuple(names("plan", "g", "v2", "--require", "")) == FIGURES == METRICS
    assert tuple(SEARCHED) == COMPUTED
    assert set(ORDERS) == set(POLICIES)


def test_paths_are_left_to_the_shell_and_tables_are_named(made, tmp_path):
    assert offered("status", "pho") == [("dir", "pho")]
    assert offered("doctor", "pho") == [("file", "pho")], "files of vectors too"
    assert offered("add", made, "x", "fo") == [("file", "fo")]
    assert offered("train", "bct", "--images", "fo") == [("dir", "fo")]
    assert offered("export", "h.") == [("file", "h.")]
    assert offered("link", made, "h.") == [("file", "h.")]
    assert names("status", f"{tmp_path}/db#") == [made]
    assert names("status", f"{tmp_path}/db#x") == []


def test_artifacts_are_offered_by_their_ids(linked):
    (artifact,) = cs.Gallery.open(linked).artifacts
    assert names("unlink", linked, artifact.id[:3]) == [artifact.id[:12]]
    assert names("upgrade", linked, "v2", "--via", "") == [artifact.id[:12]]
    assert offered("upgrade", linked, "v2", "--via", "h.c") == [("file", "h.c")]
    assert names("unlink", linked, "zz") == []


def test_names_that_a_shell_would_read_as_something_else_are_not_offered(made, tmp_path):
    for odd in ("two words", "$(id)"):
        assert odd not in names("plan", made, "v2", "--labels", "")
        assert names("plan", made, "v2", "--labels", odd[:2]) == []
    (tmp_path / "db" / "-rf *.lance").mkdir()
    (tmp_path / "db" / "a;b.lance").mkdir()
    assert names("status", f"{tmp_path}/db#") == [made]


@pytest.mark.parametrize(
    "words",
    [
        ("upgrade", "{}/none.lance", ""),
        ("upgrade", "{}/broken.lance", ""),
        ("upgrade", "{}/broken.lance", "v2", "--labels", ""),
        ("status", "{}/none#"),
        ("cutover", "s3://bucket/g.lance", ""),
        ("cutover", "ftp://no", ""),
        ("unlink", "\0", ""),
        ("upgrade", "--no-such-option", "g", ""),
        ("search", "{}/broken.lance", "-k", "many", "--version", ""),
        ("upgrade", "{}/broken.lance", "v2", "--backfill"),
    ],
)
def test_what_is_broken_or_absent_has_no_completions_and_says_nothing(words, tmp_path, capfd):
    folder = tmp_path / "broken.lance" / "_versions"
    folder.mkdir(parents=True)
    (folder / "18446744073709551611.manifest").write_bytes(b"\xff" * 200 + b"LANC")
    assert [value for kind, value in offered(*(word.format(tmp_path) for word in words)) if value != words[-1]] == []
    assert capfd.readouterr() == ("", "")


def asked_of(verb, words):
    """The context in which a shell asks for a verb."""
    context = click.Context(app, info_name="compatstore", resilient_parsing=True)
    for word in words.split():
        context = click.Context(verb, info_name=word, parent=context, resilient_parsing=True)
    return context


def form(parameter):
    """How the line is read by a parameter."""
    option = isinstance(parameter, click.Option)
    kind = (parameter.is_flag, parameter.multiple) if option else ()
    return parameter.name, parameter.opts, parameter.secondary_opts, parameter.nargs, kind


@pytest.mark.full
def test_a_verb_has_the_same_options_for_a_shell_as_in_earnest():
    for words, verb in TOOL["verbs"]():
        earnest, shells = verb.get_params(click.Context(verb)), verb.get_params(asked_of(verb, words))
        assert list(map(form, earnest)) == list(map(form, shells)), words


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


EMPTY = "''"  # the word that is about to begin
PROGRAM = "from compatstore.cli.app import main; main()"


def asked(line, shell="bash"):
    """The program as a shell calls it."""
    environment = {**os.environ, VARIABLE: f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


def test_nothing_heavy_loads_for_a_completion(made):
    program = (
        "import sys\n"
        "from click.shell_completion import BashComplete\n"
        "from compatstore.cli.app import app\n"
        "asked = BashComplete(app, {}, 'compatstore', 'X')\n"
        "for line in sys.argv[1:]:\n"
        "    *before, begun = line.split(' ')\n"
        "    assert asked.get_completions(before, begun)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    lines = [f"upgrade {made} ", f"plan {made} v2 --labels ", "train fct --ep", "train bct --", f"search {made} --"]
    found = subprocess.run([sys.executable, "-c", program, *lines], capture_output=True, text=True, check=True).stdout
    loaded = set(ast.literal_eval(found))
    assert not loaded & {"torch", "lance", "lancedb", "pyarrow", "pandas", "PIL", "rich"}


def test_a_program_that_fails_writes_nothing_into_the_prompt():
    for shell in ("bash", "powershell"):
        done = asked("compatstore upgrade /none ", shell)
        assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes(made, tmp_path, run):
    program = tmp_path / "bin" / "compatstore"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{PROGRAM}' \"$@\"\n")
    program.chmod(0o755)
    script = tmp_path / "completion.bash"
    script.write_text(run("completion", "bash").out)
    lines = [f"upgrade {made} ?", f"plan {made} v2 --order s", "train dmu", "status /nowhere/none.lance --js"]
    ask = "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _compatstore_completion compatstore"
    asking = [f"COMP_WORDS=(compatstore {line.replace('?', EMPTY)}); {ask}; echo ${{COMPREPLY[*]}}" for line in lines]
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    text = "\n".join([f"source {script}", *asking, ""])
    done = subprocess.run(["bash", "--norc"], input=text, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "v1 v2",
        "spread sigma spread-then-sigma spread-sigma spread-sigma:key spread-sigma:text spread-sigma:views",
        *("dmu dmu-head", "--json"),
    ]
    assert done.stderr == ""
