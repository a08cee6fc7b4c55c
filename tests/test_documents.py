"""Every snippet of the README, of docs/ and of the repository's other pages runs, and prints what it says."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest
from lint.tree import RUNNABLE, read_pages

PRINTED_AS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Pages that run without the marker `full`.
ALWAYS = ("README.md", "docs/tutorial.md")
# Their commands need a database with an app's rows: they run in tests/stores/test_pages.py.
OF_STORES = "docs/guides/stores/"


def run_session(block, names, place):
    """Run a session in the names of those before it, and compare what it prints."""
    parsed = doctest.DocTestParser().get_doctest(block, names, place, place, 0)
    runner = doctest.DocTestRunner(optionflags=PRINTED_AS)
    runner.run(parsed, clear_globs=False)
    assert runner.failures == 0
    names.update(parsed.globs)


def run_program(block, names, place):
    """Run a program, with no names but its own."""
    exec(compile(block, place, "exec"), {})


def run_commands(block, names, place):
    """Run the commands of a block, and compare what they print where the block says it."""
    from click.testing import CliRunner

    from compatstore.cli.app import app

    for line, printed in re.findall(r"^\$ compatstore (.+)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
        result = CliRunner().invoke(app, shlex.split(line))
        assert result.exit_code == 0, f"{line}\n{result.output}"
        assert result.stdout
        assert not printed or doctest.OutputChecker().check_output(printed, result.stdout, PRINTED_AS), result.stdout


def run_settings(block, names, place):
    """Read a file of settings of an upgrade."""
    from compatstore.cli.settings import read_settings
    from compatstore.cli.upgrades import settings_kinds

    Path("settings.toml").write_text(block)
    if "latency_file" in block:
        Path("p99.txt").write_text("12.5")
    read_settings(settings_kinds(), config="settings.toml", words=(), given={}, where=place)


RUN = dict(zip(RUNNABLE, (run_session, run_program, run_commands, run_settings), strict=True))


def in_the_demo(block):
    """True for commands on what the demo has left."""
    return block.language == "console" and " demo-gallery/" in block.code


def blocks_of(page, *, demo):
    """Blocks of a page that run: those in the demo's gallery, or the others."""
    return [block for block in page.blocks if block.language in RUN and in_the_demo(block) is demo]


def pages(*, demo):
    """Pages with such blocks."""
    return [page for page in read_pages() if blocks_of(page, demo=demo) and not page.place.startswith(OF_STORES)]


def run(blocks, page):
    names = {}
    for block in blocks:
        RUN[block.language](block.code, names, page.place)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.place, marks=[] if page.place in ALWAYS else pytest.mark.full)
        for page in pages(demo=False)
    ],
)
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(blocks_of(page, demo=False), page)


@pytest.mark.full
@pytest.mark.parametrize("page", pages(demo=True), ids=lambda page: page.place)
def test_the_commands_of_a_page_run_in_the_demo_s_gallery(page, demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo / "demo-gallery", "demo-gallery")
    run(blocks_of(page, demo=True), page)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo with models that are hardly trained; tests/demo/test_run.py runs it as the README's command does."""
    from compatstore.demo import DemoSettings, run_demo

    folder = tmp_path_factory.mktemp("readme")
    epochs = {"source_epochs": 2, "target_epochs": 4, "side_epochs": 2, "transform_epochs": 10}
    run_demo(folder / "demo-gallery", settings=DemoSettings(target_width=8, transform_width=64, **epochs))
    return folder
