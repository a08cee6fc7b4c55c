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
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"<!-- command: (\w+) -->\n```\n([^\n]+)\n```", text)
    assert [name for name, _ in commands] == ["demo", "tests"]
    assert commands[0][1].endswith("compatstore demo demo-gallery")


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
