"""Benchmarks and examples: modules are imported, commands that texts name are parsed, examples are short."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
import sys

from lint.tree import assert_none, planted, planted_page, read_pages, read_sources

from benchmarks.__main__ import arguments_of
from benchmarks.pages import BLOCK
from benchmarks.record import load

PYTHON = re.compile(r"python (?:-m )?((?:benchmarks|examples)[./][\w./]+)([^`|\n]*)")
NAMED = re.compile(r"python -m benchmarks (\w+)([^`|\n]*)")
LONGEST, MOST_LINES = 50, 40  # lines of an example, and those of them that hold code


class ParsedError(Exception):
    """The arguments were understood; nothing is to run."""


def benchmarks(sources):
    """The modules of benchmarks."""
    return [each for each in sources if each.name.startswith("benchmarks.") and not each.place.endswith("__init__.py")]


def examples(sources):
    """The examples that are run by their number, and beside them the modules that they share."""
    modules = [each for each in sources if re.fullmatch(r"examples/\w+\.py", each.place)]
    numbered = [each for each in modules if re.match(r"examples/\d", each.place)]
    return numbered, [each for each in modules if each not in numbered]


def texts(pages, sources):
    """(place, text) of pages, without tables that name commands of an earlier commit, and of docstrings."""
    for page in pages:
        yield page.place, BLOCK.sub("", page.text)
    for source in sources:
        if source.place.startswith(("benchmarks/", "examples/")):
            yield source.place, ast.get_docstring(source.tree) or ""


def documented(pages, sources):
    """(module, arguments) -> place of commands that start a benchmark or example, brackets of options taken off."""
    packages = {each.name.removesuffix(".__init__") for each in sources if each.place.endswith("/__init__.py")}
    packages |= {each.name.removesuffix(".__main__") for each in sources if each.place.endswith("/__main__.py")}
    commands = {}
    for place, text in texts(pages, sources):
        for name, rest in PYTHON.findall(_joined(text)):
            module = name.removesuffix(".py").replace("/", ".")
            module += ".__main__" if module in packages else ""
            commands[module, _plain(rest)] = place
    return commands


def not_started(commands, sources):
    """Commands of modules that are no program."""
    starts = {each.name for each in benchmarks(sources) if '__name__ == "__main__"' in each.text}
    starts |= {each.name for each in examples(sources)[0]}
    for (module, _), place in commands.items():
        if module not in starts:
            yield f"{place}: python -m {module}: no such program"


def not_imported(sources):
    """Modules that raise when they are imported."""
    for source in sources:
        try:
            importlib.import_module(source.name)
        except Exception as error:
            yield f"{source.place}: {type(error).__name__}: {error}"


def not_understood(commands, monkeypatch):
    """Commands whose arguments their program does not parse; it runs no further than that."""
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser):
        parse(parser)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    for (module, arguments), place in commands.items():
        monkeypatch.setattr(sys, "argv", [module, *shlex.split(arguments)])
        try:
            importlib.import_module(module).main()
        except ParsedError:
            continue
        except (SystemExit, Exception) as error:
            yield f"{place}: python -m {module} {arguments}: {type(error).__name__} {error}"
        else:
            yield f"{place}: python -m {module} {arguments}: reads no arguments"


def named(pages, sources):
    """(benchmark, arguments) -> place of commands `python -m benchmarks NAME`."""
    found = ((place, *each) for place, text in texts(pages, sources) for each in NAMED.findall(_joined(text)))
    return {(name, _plain(rest)): place for place, name, rest in found if name not in ("NAME", "pages")}


def _joined(text):
    """A text with continued lines as one."""
    return re.sub(r"\\\n\s*", "", text)


def _plain(arguments):
    """Arguments without the brackets of optional ones."""
    return re.sub(r"[][]", "", arguments).strip()


def not_run(commands):
    """Commands of benchmarks that are none, or with arguments that they do not understand."""
    for (name, arguments), place in commands.items():
        try:
            arguments_of(load(name), name).parse_args(shlex.split(arguments))
        except (ModuleNotFoundError, SystemExit) as error:
            yield f"{place}: python -m benchmarks {name} {arguments}: {type(error).__name__} {error}"


def long_examples(sources):
    """Examples that are too long to be read at a glance."""
    for source in examples(sources)[0]:
        lines = source.text.splitlines()
        code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if len(lines) > LONGEST or len(code) > MOST_LINES:
            yield f"{source.place}: {len(lines)} lines, {len(code)} of code"


def little_shared(sources, *, fewest=3):
    """Modules of examples that few of them import."""
    numbered, shared = examples(sources)
    for source in shared:
        users = [each.place for each in numbered if f"from {source.name.split('.')[1]} import" in each.text]
        if len(users) < fewest:
            yield f"{source.place}: imported by {users}"


def test_every_benchmark_imports():
    assert_none(not_imported(benchmarks(read_sources())))


def test_a_documented_command_starts_a_program():
    commands = documented(read_pages(), read_sources())
    assert {"benchmarks.sets.texts", "benchmarks.sets.photographs"} <= {module for module, _ in commands}
    assert_none(not_started(commands, read_sources()))


def test_a_documented_command_is_understood(monkeypatch):
    commands = documented(read_pages(), read_sources())
    assert_none(not_understood({key: place for key, place in commands.items() if key[1]}, monkeypatch))


def test_a_documented_benchmark_is_understood():
    assert_none(not_run(named(read_pages(), read_sources())))


def test_examples_are_short():
    assert_none(long_examples(read_sources()))


def test_a_module_that_examples_share_is_imported_by_several():
    assert_none(little_shared(read_sources()))


def test_each_rule_finds_a_planted_offender(monkeypatch):
    page = planted_page("`python -m benchmarks.gone --no-such`, `python examples/gone.py`")
    commands = documented([page], read_sources())
    assert list(not_started(commands, read_sources())) == [
        f"docs/planted.md: python -m {module}: no such program" for module in ("benchmarks.gone", "examples.gone")
    ]
    page = planted_page("`python -m benchmarks hop --no-such 3`, `python -m benchmarks gone`")
    assert [each.rpartition(": ")[2] for each in not_run(named([page], []))] == [
        "SystemExit 2",
        "ModuleNotFoundError no benchmark gone",
    ]
    wrong = not_understood(dict.fromkeys([("benchmarks.record", "--no-such")], "docs/planted.md"), monkeypatch)
    assert next(wrong).startswith("docs/planted.md: python -m benchmarks.record --no-such: AttributeError")
    assert list(not_imported([planted("", "benchmarks.gone")])) == [
        "benchmarks/gone.py: ModuleNotFoundError: No module named 'benchmarks.gone'"
    ]
    long = planted("# a\n" * 20 + "b\n" * 41, "examples.90_long")
    short = planted("from toy import a\n" + "# a\n" * 40, "examples.91_short")
    toy = planted("", "examples.toy")
    assert list(long_examples([long, short, toy])) == ["examples/90_long.py: 61 lines, 41 of code"]
    assert list(little_shared([long, short, toy])) == ["examples/toy.py: imported by ['examples/91_short.py']"]
