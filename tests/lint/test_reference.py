"""References: pages are what the program says, and each error has its row and its place."""

from __future__ import annotations

import re
import runpy

import pytest
from lint.program import examples, verbs
from lint.tree import ROOT, assert_none, page, planted_page

TOOL = "docs/tools/cli_pages.py"
VERBS_PAGE, TRAINING_PAGE = "docs/reference/cli.md", "docs/reference/cli-train.md"
QUICK_PAGE = "docs/reference/api/quick.md"
ERRORS_PAGE = "docs/errors.md"


def stale(written):
    """Files that differ from what their tool writes, of `written`: path -> text."""
    return [f"{path}: run python {TOOL}" for path, text in written.items() if (ROOT / path).read_text() != text]


def off_the_site(site, places):
    """Pages that the site's settings do not name."""
    return [f"mkdocs.yml: no {place}" for place in places if place not in site]


def section(pages, words):
    """What the site says of a command; "" for nothing."""
    return pages[VERBS_PAGE].partition(f"\n## {' '.join(words)}\n")[2].partition("\n## ")[0]


def with_shared(pages, text):
    """The text of a command's section, with the groups of options that it links to and those of every verb."""
    titles = [f"O{title}" for title in re.findall(r"\[o(ptions of [\w ]+)\]\(#", text)] if text else []
    return "".join([text, *(section(pages, [title]) for title in titles), section(pages, ["Options of every verb"])])


def unsaid(pages, commands):
    """What the site leaves out of commands: sections, options, arguments, examples and choices."""
    import click

    for words, command in commands:
        text, context = with_shared(pages, section(pages, words)), click.Context(command, info_name=" ".join(words))
        names = re.findall(r"^\* `([^`]+)`:", text, re.MULTILINE)
        flags = {flag for name in names for flag in re.findall(r"(?<!\S)--?[a-z][\w-]*", name)}
        parameters = command.get_params(context)
        options = [each for each in parameters if isinstance(each, click.Option) and not each.hidden]
        wanted = [flag for option in options for flag in (*option.opts, *option.secondary_opts)]
        arguments = [each.make_metavar(context) for each in parameters if isinstance(each, click.Argument)]
        choices = [word for each in options if isinstance(each.type, click.Choice) for word in each.type.choices]
        missing = [] if section(pages, words) else ["section"]
        missing += [flag for flag in wanted if flag not in flags]
        missing += [word for word in (*arguments, *examples(command), *choices) if word not in text]
        yield from (f"{' '.join(words)}: no {word}" for word in missing)


def error_classes(errors):
    """The classes of errors and warnings of a module, by name."""
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    return {
        name: kind for name, kind in kinds.items() if issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }


def wrong_rows(errors_page, errors):
    """Errors without a row, and rows with another builtin or exit code than the class."""
    from compatstore.cli.exit_codes import exit_code

    base = errors.CompatStoreError
    classes = {name: kind for name, kind in error_classes(errors).items() if issubclass(kind, base) and kind != base}
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| .+? \| .+? \|$", errors_page.text, re.MULTILINE)
    names = [name for name, *_ in rows]
    counts = {name: names.count(name) for name in classes}
    yield from (f"{errors_page.place}: {count} rows of {name}" for name, count in counts.items() if count != 1)
    for name, builtin, code in rows:
        place, kind = errors_page.at(f"| `{name}` |"), classes.get(name)
        if kind is None:
            yield f"{place}: {name} is no error"
            continue
        if builtin not in {each.__name__ for each in kind.__mro__ if each.__module__ == "builtins"} - {"Exception"}:
            yield f"{place}: {name} is no {builtin}"
        if exit_code(kind.__new__(kind)) != int(code):
            yield f"{place}: {name} ends with {exit_code(kind.__new__(kind))}"


def wrong_branches(tree, classes):
    """Classes that a drawn tree of errors lacks, has in vain or hangs on another base."""
    drawn = re.findall(r"(?:├──|└──|^)\s*(\w+)(?: \((\w+)\))?", tree, flags=re.MULTILINE)
    shown = {name: base for name, base in drawn if name in classes}
    yield from (f"{name} is not in the tree" for name in classes if name not in shown)
    for name, base in shown.items():
        if base and base not in {parent.__name__ for parent in classes[name].__mro__}:
            yield f"{name} is no {base}"


@pytest.fixture(scope="module")
def app():
    from compatstore.cli.app import app

    return app


def test_pages_are_what_the_program_says(app):
    from compatstore.cli.training import METHODS

    tool = runpy.run_path(str(ROOT / TOOL))
    written = {f"docs/reference/{name}": text for name, text in tool["pages"]().items()}
    assert {VERBS_PAGE, TRAINING_PAGE, QUICK_PAGE} == written.keys()
    assert all(f"\n## {method}\n" in written[TRAINING_PAGE] for method in METHODS)
    assert_none(stale(written | {"cli/settings.json": tool["settings_file"]()}))


def test_the_pages_are_in_the_site():
    site = (ROOT / "mkdocs.yml").read_text()
    places = [each.removeprefix("docs/") for each in (VERBS_PAGE, TRAINING_PAGE, QUICK_PAGE)]
    assert_none(off_the_site(site, places))


def test_the_site_says_every_command_with_all_its_options(app):
    assert_none(unsaid({VERBS_PAGE: page(VERBS_PAGE).text}, verbs(app)))


def test_each_error_has_a_row_that_says_what_its_class_is():
    from compatstore import errors

    assert_none(wrong_rows(page(ERRORS_PAGE), errors))


def test_the_tree_of_errors_is_the_one_that_its_docstring_shows():
    from compatstore import errors

    assert_none(wrong_branches(errors.__doc__, error_classes(errors)))


def test_each_rule_finds_a_planted_offender():
    import click

    from compatstore import errors

    assert stale({VERBS_PAGE: "# Another page\n"}) == [f"{VERBS_PAGE}: run python {TOOL}"]
    assert off_the_site("nav: [a.md]", ["a.md", "b.md"]) == ["mkdocs.yml: no b.md"]

    @click.command("status", epilog="\b\nExamples:\n  compatstore status elsewhere.lance")
    @click.argument("gallery")
    @click.option("--watch", type=click.Choice(["never-said"]))
    @click.option("--wat")
    @click.option("--shop")
    def status(**_):
        pass

    status_section = "\n## status\nGALLERY\n* `--watch`: a\n\nAnd the [options of a shop](#options-of-a-shop).\n"
    shared = "\n## Options of a shop\n* `--shop`: c\n\n## Options of every verb\n* `-h, --help`: b\n"
    pages = {VERBS_PAGE: f"{status_section}{shared}\n## other\n--wat\n"}
    missing = ["--wat", "compatstore status elsewhere.lance", "never-said"]
    assert list(unsaid(pages, [(("status",), status)])) == [f"status: no {word}" for word in missing]
    rows = [("NotFound", "OSError", 3), ("Gone", "OSError", 3), ("NotFound", "LookupError", 99)]
    table = "".join(f"| `{name}` | `{builtin}` | {code} | a | b |\n" for name, builtin, code in rows)
    wrong = list(wrong_rows(planted_page(table), errors))
    for expected in ("0 rows of InvalidInput", "2 rows of NotFound", "NotFound is no OSError", "2: Gone is no error"):
        assert any(each.endswith(expected) for each in wrong), expected
    assert any("NotFound ends with" in each for each in wrong)
    tree = errors.__doc__.replace("InvalidInput", "Renamed").replace("NotFound (LookupError)", "NotFound (OSError)")
    assert list(wrong_branches(tree, error_classes(errors))) == [
        "InvalidInput is not in the tree",
        "NotFound is no OSError",
    ]
