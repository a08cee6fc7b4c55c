"""Every snippet of the README and of docs/ runs, and prints what it says."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_sessions_print_what_they_say(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = "\n".join(blocks(document, "pycon"))
    parsed = doctest.DocTestParser().get_doctest(session, {}, document.name, str(document), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(parsed)
    assert runner.failures == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks(document, "python"):
        exec(compile(block, str(document), "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_have_at_most_120_characters(document):
    lines = document.read_text().splitlines()
    # A row of a table is one line, however long.
    too_long = [number for number, line in enumerate(lines, 1) if len(line) > 120 and not line.startswith("|")]
    assert too_long == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"<!-- command: (\w+) -->\n```\n([^\n]+)\n```", text)
    assert [name for name, _ in commands] == ["demo", "tests"]
    assert commands[0][1].endswith("compatstore demo demo-gallery")


def named_commands():
    """Every `compatstore VERB ...` in a document's code, one (document, words) each."""
    for document in DOCUMENTS:
        text = document.read_text()
        code = [
            *re.findall(r"`([^`\n]+)`", text),
            *"\n".join(re.findall(r"^```.*?^```", text, re.M | re.S)).splitlines(),
        ]
        for line in code:
            found = re.match(r"(?:\$ )?compatstore ([a-z][^|]*)", line)
            if found:
                yield document.name, re.sub(r"[][]", "", found[1])


@pytest.mark.parametrize(("document", "words"), sorted(set(named_commands())))
def test_commands_and_options_that_are_named_exist(document, words):
    import click

    from compatstore.cli.app import app

    verb, *rest = shlex.split(words)
    assert verb in app.commands, f"{document}: compatstore {words}"
    command = app.commands[verb]
    if rest and isinstance(command, click.Group) and rest[0] in command.commands:
        command = command.commands[rest[0]]
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    options = {name for one in commands for parameter in one.get_params(click.Context(one)) for name in parameter.opts}
    assert {word for word in rest if word.startswith("-")} <= options, f"{document}: compatstore {words}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    from compatstore.demo import run_demo

    folder = tmp_path_factory.mktemp("readme")
    run_demo(folder / "demo-gallery")
    return folder


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_succeed_on_the_demos_gallery(document, demo, monkeypatch):
    from click.testing import CliRunner

    from compatstore.cli.app import app

    monkeypatch.chdir(demo)
    for block in blocks(document, "console"):
        for line in re.findall(r"^\$ compatstore (.+)$", block, flags=re.MULTILINE):
            result = CliRunner().invoke(app, shlex.split(line))
            assert result.exit_code == 0, f"{line}\n{result.output}"
            assert result.stdout
