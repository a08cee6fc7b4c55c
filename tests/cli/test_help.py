"""Every command says what it is for, with an example that can be run; listing commands loads nothing heavy."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys

import click
import pytest

import compatstore
from compatstore.cli.app import app


def commands(group=app, path=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield pytest.param((*path, name), command, id=" ".join((*path, name)))


def examples(command):
    """The command lines at the end of a help."""
    return re.findall(r"^  (compatstore .+)", command.epilog or "", re.MULTILINE)


COMMANDS = list(commands())


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_every_command_has_help_and_an_example(path, command):
    context = click.Context(command, info_name=" ".join(path))
    assert command.help
    assert command.get_help(context).count("\n") > 5
    assert 1 <= len(examples(command)) <= 3
    shown = "".join(f"    {example}\n" for example in examples(command))
    assert command.get_help(context).endswith(f"  Examples:\n{shown}".rstrip("\n")), "whole, and at the end"


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_every_option_has_help_and_every_command_json(path, command):
    params = command.get_params(click.Context(command))
    options = [param for param in params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []
    assert "--json" in {flag for option in options for flag in option.opts}


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_an_example_is_read_by_its_own_verb(path, command):
    """Its options exist, what is required is there, and the settings that it makes are in their range."""
    for example in examples(command):
        program, *words = shlex.split(example.partition(" > ")[0])
        assert (program, words[: len(path)]) == ("compatstore", list(path))
        context = command.make_context(" ".join(path), words[len(path) :])
        for options in command.requests().values():
            if not context.params.get("queries"):  # names a file, which is read at once
                options.collect(dict(context.params))


@pytest.mark.parametrize("group", [app, *(each for each in app.commands.values() if isinstance(each, click.Group))])
def test_a_group_has_examples_of_its_verbs(group):
    found = examples(group)
    assert 1 <= len(found) <= 3
    listed = {" ".join(path): command for path, command in (case.values for case in COMMANDS)}
    for example in found:
        words = shlex.split(example)[1:]
        path = next(name for name in (" ".join(words[:2]), words[0]) if name in listed)
        listed[path].make_context(path, words[len(path.split()) :])


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


def test_help_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from compatstore.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "app(['train', '--help'], standalone_mode=False)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = set(ast.literal_eval(found.splitlines()[-1]))
    assert not loaded & {"torch", "lance", "lancedb", "pyarrow", "numpy", "PIL"}
