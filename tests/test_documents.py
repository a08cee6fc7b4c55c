"""Every snippet of the README, of docs/ and of the repository's other pages runs, and prints what it says."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PRINTED_AS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def snippets(document):
    """(language, code) of each block of a page, in order; the language of a listing is ""."""
    return re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def run_session(block, names, document):
    """Run a session in the names of those before it, and compare what it prints."""
    parsed = doctest.DocTestParser().get_doctest(block, names, document.name, str(document), 0)
    runner = doctest.DocTestRunner(optionflags=PRINTED_AS)
    runner.run(parsed, clear_globs=False)
    assert runner.failures == 0
    names.update(parsed.globs)


def run_program(block, names, document):
    """Run a program, with no names but its own."""
    exec(compile(block, str(document), "exec"), {})


def run_commands(block, names, document):
    """Run the commands of a block, and compare what they print where the block says it."""
    from click.testing import CliRunner

    from compatstore.cli.app import app

    for line, printed in re.findall(r"^\$ compatstore (.+)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
        result = CliRunner().invoke(app, shlex.split(line))
        assert result.exit_code == 0, f"{line}\n{result.output}"
        assert result.stdout
        assert not printed or doctest.OutputChecker().check_output(printed, result.stdout, PRINTED_AS), result.stdout


RUN = {"pycon": run_session, "python": run_program, "console": run_commands}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_runs_from_top_to_bottom(document, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    code = [(language, block) for language, block in snippets(document) if language in RUN]
    if any(language == "console" and " demo-gallery/" in block for language, block in code):
        shutil.copytree(request.getfixturevalue("demo") / "demo-gallery", "demo-gallery")
    names = {}
    for language, block in code:
        RUN[language](block, names, document)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_listings_do_not_run(document):
    for language, block in snippets(document):
        assert language in {*RUN, ""}
        if language == "console":
            assert all(line.startswith("$ compatstore ") for line in block.splitlines() if line.startswith("$"))
        assert language == "pycon" or ">>> " not in block


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_block_of_code_escapes_these_tests(document):
    """A fence that is indented, of tildes, longer, with settings or left open would be code that nothing runs."""
    fences = re.findall(r"^[ \t>]*(?:`{3,}|~{3,}).*$", document.read_text(), flags=re.MULTILINE)
    assert fences[1::2] == ["```"] * (len(fences) // 2), "each block ends"
    assert [fence for fence in fences[::2] if not re.fullmatch(r"```\w*", fence)] == []
    assert len(fences) == 2 * len(snippets(document))


def listed_commands():
    """Every whole command of a listing, one (document, words) each; "[OPTIONS]" of the reference is no command."""
    for document in DOCUMENTS:
        for language, block in snippets(document):
            lines = block.replace("\\\n", " ").splitlines() if language in ("", "console") else ()
            for line in lines:
                for command in re.findall(r"(?:^|&& )(?:\$ )?compatstore ([a-z].*?)(?=$| && | > )", line):
                    if "[OPTIONS]" not in command:
                        yield document.name, command


@pytest.mark.parametrize(("document", "words"), sorted(set(listed_commands())))
def test_a_command_of_a_listing_is_read_by_its_verb(document, words):
    """Not run, for want of its files: but what it requires is there, and nothing is too much."""
    import click

    from compatstore.cli.app import app

    command, rest = app, shlex.split(re.sub(r"\s#\s.*", "", words))
    while isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(words, rest)


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
        text = document.read_text().replace("\\\n", " ")
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
    """The demo with models that are hardly trained; tests/demo/test_run.py runs it as the README's command does."""
    from compatstore.demo import DemoSettings, run_demo

    folder = tmp_path_factory.mktemp("readme")
    epochs = {"source_epochs": 2, "target_epochs": 4, "side_epochs": 2, "transform_epochs": 10}
    run_demo(folder / "demo-gallery", settings=DemoSettings(target_width=8, transform_width=64, **epochs))
    return folder
