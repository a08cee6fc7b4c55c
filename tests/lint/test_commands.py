"""Commands of `compatstore`: those that pages show are read by the program, and each verb's help has what it needs."""

from __future__ import annotations

import re
import shlex

import pytest
from lint.program import examples, verbs
from lint.tree import assert_none, planted_page, read_pages


def listed_commands(pages):
    """(page:line, words) of every whole command of a listing; "[OPTIONS]" of the reference is no command."""
    for page in pages:
        for block in page.blocks:
            lines = block.code.replace("\\\n", " ").splitlines() if block.language in ("", "console") else ()
            for line in lines:
                for command in re.findall(r"(?:^|&& )(?:\$ )?compatstore ([a-z].*?)(?=$| && | > )", line):
                    if "[OPTIONS]" not in command:
                        yield f"{page.place}:{block.line}", command


def named_commands(pages):
    """(page:line, words) of every `compatstore VERB ...` in a page's code."""
    for page in pages:
        text = page.text.replace("\\\n", " ")
        blocks = "\n".join(re.findall(r"^```.*?^```", text, re.M | re.S)).splitlines()
        for line in [*re.findall(r"`([^`\n]+)`", text), *blocks]:
            if match := re.match(r"(?:\$ )?compatstore ([a-z][^|]*)", line):
                yield page.at(line), re.sub(r"[][]", "", match[1])


def misread(command, words):
    """The error with which a command reads words; it does not run, for want of its files."""
    try:
        command.make_context(command.name, list(words))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def unreadable(app, commands):
    """Commands that the verb does not read: a requirement is missing, or a word is too much."""
    for place, text in commands:
        command, rest = app, shlex.split(re.sub(r"\s#\s.*", "", text))
        while command is not None and hasattr(command, "commands"):
            command, rest = command.commands.get(rest[0]) if rest else None, rest[1:]
        error = "no such verb" if command is None else misread(command, rest)
        if error:
            yield f"{place}: compatstore {text}: {error}"


def unknown(app, commands):
    """Verbs and options that are named and do not exist."""
    import click

    for place, text in commands:
        verb, *rest = shlex.split(text)
        command = app.commands.get(verb)
        if command is None:
            yield f"{place}: compatstore {text}: no such verb"
            continue
        if rest and isinstance(command, click.Group) and rest[0] in command.commands:
            command = command.commands[rest[0]]
        below = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        options = {name for one in below for each in one.get_params(click.Context(one)) for name in each.opts}
        missing = {word for word in rest if word.startswith("-")} - options
        yield from (f"{place}: compatstore {text}: no option {option}" for option in sorted(missing))


def lacks(words, command):
    """Properties of a good help that a command's help lacks."""
    import click

    context = click.Context(command, info_name=words)
    listed, text = examples(command), command.get_help(context)
    if not 1 <= len(listed) <= 3:
        yield f"{len(listed)} examples"
    if hasattr(command, "commands"):
        return
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    yield from (f"no help of {option.name}" for option in options if not option.help)
    if "--json" not in {flag for option in options for flag in option.opts}:
        yield "no --json"
    if not command.help or text.count("\n") <= 5:
        yield "no help"
    shown = "".join(f"    {example}\n" for example in listed)
    if not text.endswith(f"  Examples:\n{shown}".rstrip("\n")):
        yield "examples that are cut or not at the end"


def poor_help(commands):
    """Commands without help, examples, help of an option or `--json`."""
    for words, command in commands:
        yield from (f"compatstore {' '.join(words)}: {each}" for each in lacks(" ".join(words), command))


def unusable_examples(app, commands):
    """Examples of another verb, and those that the verb does not read or whose settings are out of their range."""
    for path, command in commands:
        for example in examples(command):
            program, *words = shlex.split(example.partition(" > ")[0])
            if (program, *words[: len(path)]) != ("compatstore", *path):
                yield f"{' '.join(path)}: {example}: of another verb"
            elif hasattr(command, "commands"):
                yield from unreadable(app, [(f"{' '.join(path)}: {example}", shlex.join(words))])
            elif error := misread(command, words[len(path) :]) or out_of_range(command, words[len(path) :]):
                yield f"{' '.join(path)}: {example}: {error}"


def out_of_range(command, words):
    """The error with which the settings of a command line are refused."""
    from compatstore.cli.settings import read_settings
    from compatstore.cli.training import METHODS
    from compatstore.cli.upgrades import settings_kinds

    context = command.make_context(command.name, list(words))
    if context.params.get("queries"):  # names a file, which is read at once
        return None
    kinds = {"train": lambda: {"": METHODS[context.params["method"]].load()}, "upgrade": settings_kinds}
    try:
        if command.name in kinds:
            words = context.params["words"]
            if context.params["config"] is None:  # a file is read at once
                read_settings(kinds[command.name](), config=None, words=words, given={}, where=command.name)
        for options in command.requests.values():
            options.collect(dict(context.params))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.fixture(scope="module")
def app():
    from compatstore.cli.app import app

    return app


def test_a_command_of_a_listing_is_read_by_its_verb(app):
    assert_none(unreadable(app, dict.fromkeys(listed_commands(read_pages()))))


def test_commands_and_options_that_are_named_exist(app):
    assert_none(unknown(app, dict.fromkeys(named_commands(read_pages()))))


def test_every_command_has_help_examples_and_json(app):
    assert_none(poor_help([((), app), *verbs(app)]))


def test_an_example_is_read_by_its_own_verb(app):
    assert_none(unusable_examples(app, [((), app), *verbs(app)]))


def test_each_rule_finds_a_planted_offender(app):
    import click

    page = planted_page(
        "```\ncompatstore status a.lance b.lance\ncompatstore stats a.lance\n```\n`compatstore ls -x`\n"
    )
    wrong = list(unreadable(app, listed_commands([page])))
    assert [each.split(": ")[:2] for each in wrong] == [
        ["docs/planted.md:1", f"compatstore {words}"] for words in ("status a.lance b.lance", "stats a.lance")
    ]
    assert list(unknown(app, [("a:1", "status --no-such"), ("a:2", "stats")])) == [
        "a:1: compatstore status --no-such: no option --no-such",
        "a:2: compatstore stats: no such verb",
    ]
    assert ("docs/planted.md:5", "ls -x") in named_commands([page])

    @click.command("status", epilog="\b\nExamples:\n  compatstore get a\n  compatstore status\n\nMore.")
    @click.argument("gallery")
    @click.option("--bare")
    def status(**_):
        pass

    assert {each.rpartition(": ")[2] for each in poor_help([(("status",), status)])} == {
        "no help of bare",
        "no --json",
        "no help",
        "examples that are cut or not at the end",
    }
    assert list(poor_help([((), click.Group("compatstore"))])) == ["compatstore : 0 examples"]
    first, second = unusable_examples(app, [(("status",), status)])
    assert first.endswith("of another verb")
    assert "MissingParameter" in second
    assert "epochs" in out_of_range(app.commands["train"], ["fct", "--out", "a.compat", "--set", "epochs=0"])
