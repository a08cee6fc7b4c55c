"""The pages of the command line say what the program says: every verb, method and option."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import click
import pytest

from compatstore.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
WRITTEN = runpy.run_path(str(DOCS / "tools" / "cli_pages.py"))["pages"]()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_is_what_the_program_says(name):
    assert (DOCS / "reference" / name).read_text() == WRITTEN[name], "run: python docs/tools/cli_pages.py"


def commands(group, path=()):
    """(words, command) of every command, those of groups included."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def section(words):
    """What the site says of a command, as it is committed; "" for nothing."""
    page, name = ("cli-train.md", words[1]) if words[0] == "train" and words[1:] else ("cli.md", " ".join(words))
    text = (DOCS / "reference" / page).read_text()
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def unsaid(words, command):
    """What the site leaves out of a command: options, arguments, examples, choices."""
    said, context = section(words), click.Context(command, info_name=" ".join(("compatstore", *words)))
    cells = re.findall(r"^\| `([^`]+)` \|", said, re.MULTILINE)
    flags = {flag for cell in cells for flag in re.findall(r"(?<!\S)--?[a-z][\w-]*", cell.replace("\\|", "|"))}
    options = [o for o in command.get_params(context) if isinstance(o, click.Option) and not o.hidden]
    wanted = [flag for option in options for flag in (*option.opts, *option.secondary_opts)]
    arguments = [a.make_metavar(context) for a in command.get_params(context) if isinstance(a, click.Argument)]
    examples = re.findall(r"^  (compatstore .+)", command.epilog or "", re.MULTILINE)
    choices = [word for o in options if isinstance(o.type, click.Choice) for word in o.type.choices]
    return [word for word in wanted if word not in flags] + [
        word for word in (*arguments, *examples, *choices) if not said or word not in said
    ]


@pytest.mark.parametrize(("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands(app)])
def test_the_site_says_every_command_with_all_its_options(words, command):
    assert section(words), f"the site has no {' '.join(words)}"
    assert unsaid(words, command) == []


def test_an_omission_is_found():
    @click.command("status", epilog="\b\nExamples:\n  compatstore status elsewhere.lance")
    @click.argument("gallery")
    @click.argument("unheard")
    @click.option("--watch", type=click.Choice(["never-said"]))
    @click.option("--wat")
    def command(**_):
        pass

    expected = ["--wat", "UNHEARD", "compatstore status elsewhere.lance", "never-said"]
    assert unsaid(("status",), command) == expected
    assert section(("nobody",)) == section(("train", "nobody")) == ""


def test_the_pages_are_in_the_site():
    pages = (DOCS.parent / "mkdocs.yml").read_text()
    assert all(f"reference/{name}" in pages for name in WRITTEN)


def test_every_verb_and_method_has_its_place():
    assert all(f"\n## {verb}\n" in WRITTEN["cli.md"] for verb in app.commands)
    assert all(f"\n## {method}\n" in WRITTEN["cli-train.md"] for method in app.commands["train"].commands)
