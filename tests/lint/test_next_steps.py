"""Next steps that errors, warnings and views advise: each is a command and a call that exist, in one spelling."""

from __future__ import annotations

import ast
import inspect
import re

from lint.program import verbs
from lint.tree import assert_none, planted, read_packages

import compatstore as cs
from compatstore import next_step, trainers
from compatstore.cli.app import app
from compatstore.cli.settings import named_settings
from compatstore.cli.training import METHODS
from compatstore.cli.upgrades import settings_kinds

# The module that writes commands, the program itself and its demonstration, and a program that needs no compatstore.
OF_THE_SHELL = ("compatstore.next_step", "compatstore.cli", "compatstore.demo", "compatstore.devices.runner")
CALLS = ("next_step.call", "context.call")
COMMAND = re.compile(r"\bcompatstore (?:[a-z-]+ )+(?:GALLERY|\{)|(?:^|[\s(=])--[a-z][a-z-]+")
PIP = re.compile(r"pip install |ray start ")


def advising(sources):
    """Modules whose texts reach both callers in Python and users of a shell."""
    return [source for source in sources if not source.name.startswith(OF_THE_SHELL)]


def texts(tree):
    """(line, text) of all literals but docstrings and the `shell` of `next_step.either`."""
    left_out = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            left_out.add(body[0].value)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "next_step.either":
            left_out.update(part for each in node.keywords if each.arg == "shell" for part in ast.walk(each.value))
    literals = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    yield from sorted((node.lineno, node.value) for node in literals if node not in left_out)


def spelled_for_a_shell(sources):
    """Commands and options in texts: a caller in Python cannot give them."""
    for source in advising(sources):
        for line, text in texts(source.tree):
            if (found := COMMAND.search(text)) and not PIP.search(text):
                yield f"{source.place}:{line}: {found[0].strip()}"


def commands():
    """Words of each command -> its long options."""
    import click

    found = {}
    for words, command in verbs(app):
        options = [each for each in command.get_params(click.Context(command)) if isinstance(each, click.Option)]
        found[" ".join(words)] = {name for each in options for name in (*each.opts, *each.secondary_opts)}
    return found


def called(verb, owner):
    """The function that a call in Python of a verb calls, or None."""
    path = next_step.PYTHON.get(verb, f"gallery.{verb}").removeprefix("cs.Gallery.").removeprefix("gallery.")
    place, _, name = path.rpartition(".")
    return getattr(owners(owner)[place], name, None)


def owners(owner):
    """Classes of the objects that calls are made on."""
    from compatstore.gallery import Maintenance
    from compatstore.gallery.versions import Artifacts
    from compatstore.upkeep.index import ManagedIndex

    whole = cs.Shards if owner == "shards" else cs.Gallery
    return {"": whole, "artifacts": Artifacts, "maintenance": Maintenance, "maintenance.index({})": ManagedIndex}


def literal(node):
    """The value of a literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def in_shell_alone(value):
    return ast.unparse(value).endswith("_IN_SHELL") or ast.unparse(value) == "next_step.IN_SHELL"


def flag(name, verb=""):
    return f"--{next_step.OPTIONS.get((verb, name), name).replace('_', '-')}"


def wrong_steps(sources):
    """Calls of verbs that do not exist, or with options that one of the two does not have."""
    known = commands()
    everything = set().union(*known.values()) | {
        flag(name.rpartition(".")[2]) for name in named_settings(settings_kinds())
    }
    for source in sources:
        for node, name in source.calls:
            place = f"{source.place}:{node.lineno}"
            options = [each for each in node.keywords if each.arg not in (None, "at", "on", "within")]
            if name in CALLS:
                verb = literal(node.args[0])
                if verb is None:
                    continue  # the verb is a variable: its values are literals of other calls
                on = next((literal(each.value) for each in node.keywords if each.arg == "on"), "gallery")
                function = called(verb, on)
                if verb not in known or function is None:
                    yield f"{place}: no verb {verb} of both"
                    continue
                for each in options:
                    of_shell = in_shell_alone(each.value)
                    made = isinstance(each.value, ast.Call) and ast.unparse(each.value.func) == "next_step.made"
                    variable = isinstance(each.value, ast.Name)  # a dataclass that was made before, or a value
                    if not of_shell and each.arg not in inspect.signature(function).parameters:
                        yield f"{place}: {function.__qualname__} takes no {each.arg}"
                    forms = {flag(each.arg, verb), f"--no-{each.arg}"}
                    if not (made or variable) and not forms & known[verb]:
                        yield f"{place}: compatstore {verb} takes no {flag(each.arg, verb)}"
            elif name == "next_step.made":
                fields = inspect.signature(getattr(cs, literal(node.args[0]))).parameters
                for each in options:
                    if each.arg not in fields or flag(each.arg) not in everything:
                        yield f"{place}: {literal(node.args[0])} or the program has no {each.arg}"
            elif name == "next_step.option":
                option = literal(node.args[0])
                within = next((literal(each.value) for each in node.keywords if each.arg == "within"), None)
                if option is not None and flag(option) not in everything:
                    yield f"{place}: no command takes {flag(option)}"
                if option is not None and within and option not in inspect.signature(getattr(cs, within)).parameters:
                    yield f"{place}: {within} has no {option}"
            elif name == "next_step.training" and literal(node.args[0]) not in next_step.TRAINED:
                yield f"{place}: no training {literal(node.args[0])}"


def test_no_text_spells_a_command_or_an_option():
    assert_none(spelled_for_a_shell(read_packages()))


def test_every_step_is_a_command_and_a_call():
    assert_none(wrong_steps(read_packages()))


def test_each_training_is_a_command_and_a_trainer():
    wrong = [name for name, (trainer, *_) in next_step.TRAINED.items() if METHODS[name].trainer != trainer]
    assert not wrong
    assert all(hasattr(getattr(trainers, trainer), "fit") for trainer, *_ in next_step.TRAINED.values())


def test_each_rule_finds_a_planted_offender():
    spelled = planted(
        '"""compatstore status GALLERY is said in a docstring."""\n'
        'a = f"Begin it: compatstore upgrade GALLERY {target}"\n'
        'b = "Take a larger sample: --sample."\n'
        'c = next_step.either(shell="--sample", python="sample")\n'
        'd = "pip install --upgrade compatstore"\n'
    )
    assert list(spelled_for_a_shell([spelled])) == [
        "compatstore/storage/planted.py:2: compatstore upgrade GALLERY",
        "compatstore/storage/planted.py:3: --sample",
    ]
    steps = planted(
        'next_step.call("upgrade", target, backfill=1.0)\n'
        'next_step.call("upgrad", target)\n'
        'next_step.call("status", follow=True)\n'
        'next_step.call("status", watch=next_step.IN_SHELL)\n'
        'next_step.made("Backfill", fraction=0.5)\n'
        'next_step.option("smple")\n'
        'next_step.option("sample", within="Backfill")\n'
        'next_step.training("all")\n'
    )
    assert [each.partition("planted.py:")[2] for each in wrong_steps([steps])] == [
        "2: no verb upgrad of both",
        "3: Gallery.status takes no follow",
        "3: compatstore status takes no --follow",
        "5: Backfill or the program has no fraction",
        "6: no command takes --smple",
        "7: Backfill has no sample",
        "8: no training all",
    ]
