"""The form of pages: every block of code runs or is a listing, links and named files are there, lines are short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lint.tree import ROOT, RUNNABLE, assert_none, page, planted_page, read_pages, read_sources

FILE = re.compile(r"(?<![\w./<-])(?:[\w-]+/)*[\w-]+\.py\b")
CODE = re.compile(r"`([^`\n]+)`")
FOUR_LINES = "docs/guides/lancedb.md"
LONGEST = 120


def blocks_that_do_not_run(pages):
    """Blocks of another language, commands of another program, and sessions of Python in listings."""
    for each in pages:
        for block in each.blocks:
            place, lines = f"{each.place}:{block.line}", block.code.splitlines()
            if block.language not in {*RUNNABLE, ""}:
                yield f"{place}: {block.language} is not run"
            if block.language == "console":
                commands = [line for line in lines if line.startswith("$")]
                yield from (f"{place}: {line}" for line in commands if not line.startswith("$ compatstore "))
            if block.language != "pycon" and ">>> " in block.code:
                yield f"{place}: a session of Python that is no pycon"


def fences_of_no_block(pages):
    """Fences that are indented, of tildes, longer, with settings or left open: code that nothing would run."""
    for each in pages:
        matches = list(re.finditer(r"^[ \t>]*(?:`{3,}|~{3,}).*$", each.text, flags=re.MULTILINE))
        for number, match in enumerate(matches):
            if not re.fullmatch(r"```" if number % 2 else r"```\w*", match[0]):
                yield f"{each.place}:{each.line(match.start())}: {match[0]}"
        if len(matches) != 2 * len(each.blocks):
            yield f"{each.place}: {len(matches)} fences, {len(each.blocks)} blocks"


def long_lines(pages):
    """Lines that are too long; a row of a table is one line, however long."""
    for each in pages:
        for number, line in enumerate(each.text.splitlines(), 1):
            if len(line) > LONGEST and not line.startswith("|"):
                yield f"{each.place}:{number}: {len(line)} characters"


def bars_in_code(pages):
    """Bars in code within tables: sites print the backslash that keeps a row together on GitHub."""
    for each in pages:
        for number, line in enumerate(each.text.splitlines(), 1):
            if line.startswith("|") and any("\\|" in code for code in CODE.findall(line)):
                yield f"{each.place}:{number}: a bar in code"


def copied_prompts(style):
    """Prompts and output of sessions that the copy button of the site takes along."""
    hidden = re.findall(r"\[data-md-copying\] :is\(([^)]*)\) { display: none; }", style)
    return [f"docs/site.css: {kind} is copied" for kind in (".gp", ".go") if kind not in " ".join(hidden).split(", ")]


def broken_links(pages):
    """Links into the repository that lead nowhere."""
    for each in pages:
        for match in re.finditer(r"\]\(([^)#]+)", each.text):
            if "://" not in match[1] and not (each.path.parent / match[1]).exists():
                yield f"{each.place}:{each.line(match.start())}: {match[1]}"


def missing_files(pages, sources):
    """Source files that a page names in code, as the end of a path (`hop.py`, `upgrade/hop.py`), and nobody has."""
    ends = {"/".join(parts[-n:]) for parts in (s.place.split("/") for s in sources) for n in range(1, len(parts) + 1)}
    for each in pages:
        for code in CODE.finditer(each.text):
            for name in FILE.findall(code[1]):
                if name not in ends:
                    yield f"{each.place}:{each.line(code.start())}: {name}"


def layers(architecture):
    """(layer, names of files and folders) of each row of the table of layers; a layer of one file names none."""
    rows = re.findall(r"^\| `(\w+)` \|.*?\|(.*)\|$", architecture.text, re.MULTILINE)
    return [(layer, re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|/))`", files)) for layer, files in rows]


def misplaced_files(architecture):
    """Files that the table of layers names, and that are not in the folder of their layer."""
    for layer, files in layers(architecture):
        missing = [name for name in files if not (ROOT / "compatstore" / layer / name).exists()]
        yield from (f"{architecture.at(f'| `{layer}` |')}: {layer} has no {name}" for name in missing)


def readme_commands(readme):
    """(name, command) of the commands that programs read out of the README."""
    return re.findall(r"<!-- command: (\w+) -->\n```\n([^\n]+)\n```", readme.text)


def unshown_lines(readme, guide):
    """The four lines of a guide, where the README has no block of them."""
    lines = re.findall(r"^\$ (compatstore .+\n)", guide.text, re.MULTILINE)[:4]
    block = f"```\n{''.join(lines)}```"
    return [] if block in readme.text else [f"{readme.place}: no block of {lines}"]


def test_only_listings_do_not_run():
    assert_none(blocks_that_do_not_run(read_pages()))


def test_no_block_of_code_escapes_the_rules():
    assert_none(fences_of_no_block(read_pages()))


def test_lines_have_at_most_120_characters():
    assert_none(long_lines(read_pages()))


def test_no_table_has_a_bar_in_code():
    assert_none(bars_in_code(read_pages()))


def test_the_copy_button_leaves_prompts_and_output_out():
    assert_none(copied_prompts((ROOT / "docs/site.css").read_text()))
    material = pytest.importorskip("material")
    scripts = (Path(material.__file__).parent / "templates/assets/javascripts").glob("bundle.*.js")
    assert "data-md-copying" in next(scripts).read_text(), "the theme marks by it what is copied"


def test_links_lead_somewhere():
    assert_none(broken_links(read_pages()))


def test_a_file_that_is_named_is_there():
    assert_none(missing_files(read_pages(), read_sources()))


def test_the_files_of_a_layer_are_in_its_folder():
    architecture = page("docs/architecture.md")
    listed = {layer for layer, _ in layers(architecture)}
    assert {"cli", "trainers", "search", "upgrade", "storage", "artifacts"} <= listed
    assert_none(misplaced_files(architecture))


def test_the_readme_names_the_two_commands():
    commands = dict(readme_commands(page("README.md")))
    assert list(commands) == ["demo", "tests"]
    assert commands["demo"].endswith("compatstore demo demo-gallery")


def test_the_readme_shows_the_four_lines_of_the_guide():
    guide = page(FOUR_LINES)
    assert_none(unshown_lines(page("README.md"), guide))
    verbs = re.findall(r"^\$ compatstore (\w+)", guide.text, re.MULTILINE)[:4]
    assert verbs == ["adopt", "upgrade", "report", "cutover"]


# Rule -> text of a page with offenders, and the lines on which they are found.
PLANTED = [
    (blocks_that_do_not_run, "```sh\nls\n```\n\n```console\n$ ls\n```\n\n```\n>>> 3\n```\n", [1, 5, 9]),
    (fences_of_no_block, "```\na\n```\n\n  ```\nb\n  ```\n\n~~~\nc\n~~~\n", [5, 7, 9, 11]),
    (fences_of_no_block, "```python title=a\nb\n```\n", [1]),
    (long_lines, f"short\n{'a' * 121}\n| {'a' * 121} |\n", [2]),
    (bars_in_code, "| `a|b` |\n| `a\\|b` | c |\n`a\\|b`\n| a\\|b |\n", [2]),
    (broken_links, "[a](tutorial.md#b), [c](https://d.e)\n[f](gone.md)\n", [2]),
    (lambda pages: missing_files(pages, read_sources()), "`cli/app.py`, `app.py --json`\n`gallery/app.py`\n", [2]),
]


def test_each_rule_finds_a_planted_offender():
    for rule, text, lines in PLANTED:
        places = [each.split(": ")[0].partition(":")[2] for each in rule([planted_page(text)])]
        assert [int(line) for line in places if line] == lines, text
    assert list(fences_of_no_block([planted_page("```\nleft open\n")])) == ["docs/planted.md: 1 fences, 0 blocks"]
    assert list(misplaced_files(planted_page("| a | b |\n| `cli` | c | `app.py`, `gone.py` |\n"))) == [
        "docs/planted.md:2: cli has no gone.py"
    ]
    assert copied_prompts("[data-md-copying] :is(.gp) { display: none; }") == ["docs/site.css: .go is copied"]
    assert readme_commands(planted_page("<!-- command: a -->\n```\nb\n```\n<!-- command: c -->\nd\n")) == [("a", "b")]
    guide = planted_page("$ compatstore adopt a\n$ compatstore upgrade b\n")
    assert unshown_lines(planted_page("```\ncompatstore adopt a\n```\n"), guide)
    assert not unshown_lines(planted_page("```\ncompatstore adopt a\ncompatstore upgrade b\n```\n"), guide)
