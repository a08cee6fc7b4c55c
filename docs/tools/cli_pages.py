"""Writes the pages of the command line from the program itself: `python docs/tools/cli_pages.py`.

`tests/lint/test_reference.py` compares what is written here with what is committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from compatstore.cli.app import app
from compatstore.cli.exit_codes import EXPLANATION
from compatstore.cli.settings import settings_table
from compatstore.cli.training import METHODS, taken_by
from compatstore.cli.upgrades import settings_kinds

FOLDER = Path(__file__).parents[1] / "reference"
WRITTEN = "<!-- Written by docs/tools/cli_pages.py; change the help of the verb and run that again. -->"
INTRODUCTION = """\
Each verb is a function of the [Python API](api/gallery.md) with the same parameters. Data goes to stdout, progress and
notes to stderr. With `--json` every result and every error is JSON. `compatstore VERB --help` prints what is here.

GALLERY is a path (`photos.lance`), a URI (`s3://bucket/photos.lance`), or a LanceDB database with a table
(`app-db#photos`). ENCODER is `timm:NAME`, `torchvision:NAME`, `network:PATH`, `precomputed:PATH` or
`python:package.module:attribute`."""
TRAINING = """\
The settings of each method of [`train`](cli.md#train), for `--set NAME=VALUE` and the lines of a TOML file that
`--config` names. Which method to choose: [methods](../methods.md) and [training](../training.md)."""


def pages() -> dict[str, str]:
    """The pages by file name."""
    verbs = [part for name in app.list_commands(click.Context(app)) for part in _verbs(name, app.commands[name])]
    methods = [part for name in sorted(METHODS) for part in _method(name)]
    exit_codes = re.findall(r"(\d+)  (\S.*?)(?=  +\d|$)", EXPLANATION, re.MULTILINE)
    codes = _table(["code", "meaning"], [[f"`{code}`", what] for code, what in exit_codes])
    return {
        "cli.md": _page("Command line", INTRODUCTION, *verbs, "## Exit codes", codes),
        "cli-train.md": _page("Command line: training", TRAINING, *methods),
    }


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", WRITTEN, *parts]) + "\n"


def _verbs(name: str, command: click.Command) -> Iterator[str]:
    """A verb; below a group its own verbs."""
    yield from _verb(name, command)
    if isinstance(command, click.Group):
        for below, verb in command.commands.items():
            yield from _verb(f"{name} {below}", verb)


def _verb(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"compatstore {name}")
    yield f"## {name}"
    yield f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    yield _prose(command.help or "")
    if name == "train":
        yield "Its methods and their settings: [training](cli-train.md)."
    examples = re.findall(r"^  (compatstore .+)", command.epilog or "", re.MULTILINE)
    yield "\n".join(["Examples:", "", "```", *examples, "```"])
    options = [
        option for option in command.get_params(context) if isinstance(option, click.Option) and not option.hidden
    ]
    yield _table(["option", "meaning", "default"], [_option(option, context) for option in options])
    if name == "upgrade":
        yield "Settings, for `--set NAME=VALUE` and the lines of a TOML file that `--config` names:"
        yield _settings(settings_kinds())


def _method(name: str) -> Iterator[str]:
    """A method of `train`."""
    method = METHODS[name]
    yield f"## {name}"
    yield method.summary
    options = {option.name: option for option in app.commands["train"].params if isinstance(option, click.Option)}
    yield _wrapped(
        "Takes " + ", ".join(f"`{options[each].opts[0]}`" for each in taken_by(name) if each in options) + "."
    )
    yield _settings({"": method.load()})


def _settings(kinds: Mapping[str, type]) -> str:
    return _table(["setting", "meaning", "default"], [_setting(*row) for row in settings_table(kinds)])


def _setting(name: str, text: str) -> list[str]:
    text, mark, notes = text.rpartition("  [")
    default = notes.rstrip("]").removeprefix("default: ") if mark else ""
    return [f"`{name}`", text if mark else notes, f"`{default}`" if default else ""]


def _option(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    assert record is not None, f"{option.name} has no help"
    text, default = record[1], ""
    # Click writes what is known of an option behind its text: [default: 3; x>0; required]
    found = re.search(r"\s*\[([^][]*)\]$", text)
    if found and re.search(r"default: |required|[<>]", found[1]):
        text, notes = text[: found.start()], re.split(r"; +", found[1])
        default = "; ".join(f"`{note.removeprefix('default: ')}`" if "default: " in note else note for note in notes)
    return [f"`{record[0]}`", text, default]


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(text: str) -> str:
    # Markdown of sites and of GitHub disagree on a bar in code within a table: choices stand with commas there.
    return text.replace("|", ", ") if text.startswith("`") else _escaped(text).replace("|", "\\|")


def _prose(text: str) -> str:
    paragraphs = [" ".join(part.split()) for part in text.replace("\b", "").split("\n\n")]
    return "\n\n".join(_wrapped(_escaped(part)) for part in paragraphs)


def _escaped(text: str) -> str:
    """Text of a help as Markdown: its stars and angles are none of Markdown's."""
    code = re.sub(r"(?<![\w`-])(--[a-z][a-z0-9-]*)", r"`\1`", text)
    return re.sub(r"([*<>])", r"\\\1", code)


def _wrapped(paragraph: str, width: int = 120) -> str:
    lines = [""]
    for word in paragraph.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def write(pages_by_name: dict[str, Any]) -> None:
    """Write the pages into docs/reference."""
    for name, text in pages_by_name.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write(pages())
