"""Writes the reference pages of the command line and the API's methods, and settings: `python docs/tools/cli_pages.py`.

`tests/lint/test_reference.py` compares what is written here with what is committed.
"""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click

from compatstore.cli import converting
from compatstore.cli.app import app
from compatstore.cli.exit_codes import EXPLANATION
from compatstore.cli.settings import LISTED, settings_table
from compatstore.cli.training import METHODS, taken_by
from compatstore.cli.upgrades import settings_kinds

FOLDER = Path(__file__).parents[1] / "reference"
WRITTEN = "<!-- Written by docs/tools/cli_pages.py; change the help of the verb and run that again. -->"
INTRODUCTION = """\
Each verb is a function of the [Python API](api/gallery.md) with the same parameters. Data goes to stdout, progress and
notes to stderr. With `--json` every result and every error is JSON. `compatstore VERB --help` prints what is here.

GALLERY is a path (`photos.lance`), a URI (`s3://bucket/photos.lance`), or a LanceDB database with a table
(`app-db#photos`). ENCODER is a [spec](../guides/encoders.md), such as `timm:NAME`, `model2vec:FOLDER` or
`python:package.module:attribute`. A default is in parentheses."""
TRAINING = """\
The settings of each method of [`train`](cli.md#train), for `--set NAME=VALUE` and the lines of a TOML file that
`--config` names. Which method to choose: [methods](../methods.md). Settings of several methods stand first; a method
lists its own, and where its defaults differ. A default is in parentheses."""
# Groups of options that several verbs take: title, a verb that takes them, and their flags.
SHARED = (
    ("Options of every verb", "status", "--log --help --json"),
    (
        "Options of a version",
        "init",
        "--dim --metric --normalised --dtype --encoder --model --side-dim --side-dtype --side-encoder --side-model"
        " --head --head-loss --head-margin",
    ),
    ("Options of encoders", "search", "--trust-code --encoder --import"),
    ("Options of ground truth", "report", "--labels --queries --qrels"),
)


def pages() -> dict[str, str]:
    """The pages by file name."""
    context = click.Context(app)
    verbs = [part for name in app.list_commands(context) for part in _verbs(name, app.commands[name])]
    shared = [part for title, options in _shared().items() for part in (f"## {title}", _bullets(options))]
    exit_codes = re.findall(r"(\d+)  (\S.*?)(?=  +\d|$)", EXPLANATION, re.MULTILINE)
    codes = _bullets([(f"`{code}`", what, "") for code, what in exit_codes])
    return {
        "cli.md": _page("Command line", INTRODUCTION, *shared, *verbs, "## Exit codes", codes),
        "cli-train.md": _page("Command line: training", TRAINING, *_families(), *_methods()),
        "api/quick.md": _quick_page(WRITTEN),
    }


def _quick_page(written: str) -> str:
    path = Path(__file__).with_name("quick_page.py")
    return str(runpy.run_path(str(path))["page"](written))


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
    examples = re.findall(r"^  (compatstore .+)", command.epilog or "", re.MULTILINE)
    yield "\n".join(["```", *examples, "```"])
    options = _options(command, context)
    titles = [title for title, shared in _shared().items() if shared and set(shared) <= set(options)]
    known = {option for title in titles for option in _shared()[title]}
    if own := [option for option in options if option not in known]:
        yield _bullets(own)
    if further := [f"[{_lower(title)}](#{_anchor(title)})" for title in titles if title != SHARED[0][0]]:
        yield f"And the {' and the '.join(further)}."
    if name == "train":
        yield "Methods and their settings: [training](cli-train.md)."
    if name == "upgrade":
        yield "Settings, for `--set NAME=VALUE` and the lines of a TOML file that `--config` names:"
        yield _bullets(_settings(settings_kinds()))


Row = tuple[str, str, str]  # a name, its meaning and its default


@cache
def _shared() -> dict[str, list[Row]]:
    """The options of each shared group, by title."""
    found = {}
    for title, verb, flags in SHARED:
        command = app.commands[verb]
        options = _options(command, click.Context(command, info_name=f"compatstore {verb}"))
        wanted = set(flags.split())
        found[title] = [row for row in options if wanted & set(re.findall(r"--[a-z-]+", row[0]))]
    return found


def _options(command: click.Command, context: click.Context) -> list[Row]:
    parameters = command.get_params(context)
    return [_option(each, context) for each in parameters if isinstance(each, click.Option) and not each.hidden]


def _option(option: click.Option, context: click.Context) -> Row:
    record = option.get_help_record(context)
    assert record is not None, f"{option.name} has no help"
    text, default = record[1], ""
    # Click writes what is known of an option behind its text: [default: 3; x>0; required]
    found = re.search(r"\s*\[([^][]*)\]$", text)
    if found and re.search(r"default: |required|[<>]", found[1]):
        text, notes = text[: found.start()], re.split(r"; +", found[1])
        notes = [f"`{note.removeprefix('default: ').strip('()')}`" if "default: " in note else note for note in notes]
        default = "; ".join(notes)
    return f"`{record[0]}`", text, default


# Families of methods: title -> what its methods take, and an introduction.
FAMILIES = {
    "Training on images": lambda name: "images" in taken_by(name),
    "Networks trained on pairs": lambda name: "pairs" in taken_by(name) and "epochs" in _names(name),
    "Closed forms": lambda name: "labels" in taken_by(name) and "epochs" not in _names(name),
    "Without pairs": lambda name: METHODS[name].inputs == "sets",
}


def _names(name: str) -> set[str]:
    return {row.partition("=")[0] for row, _ in settings_table({"": METHODS[name].load()})}


@cache
def _of_family(title: str) -> dict[str, list[Row]]:
    """The settings of each method of a family."""
    return {name: _settings({"": METHODS[name].load()}) for name in sorted(METHODS) if FAMILIES[title](name)}


@cache
def _common(title: str) -> dict[tuple[str, str], tuple[str, list[str]]]:
    """(setting, meaning) of two methods and more of a family -> the usual default, and the methods."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, rows in _of_family(title).items():
        for setting, meaning, default in rows:
            found.setdefault((setting, meaning), {})[name] = default
    return {
        row: (Counter(defaults.values()).most_common(1)[0][0], list(defaults))
        for row, defaults in found.items()
        if len(defaults) > 1
    }


def _families() -> Iterator[str]:
    for title in FAMILIES:
        members = list(_of_family(title))
        yield f"## {title}"
        yield _wrapped(f"Methods: {', '.join(f'[{name}](#{name})' for name in members)}.")
        taken = [option for option in _taken(members[0]) if all(option in _taken(name) for name in members)]
        yield _wrapped(f"All take {', '.join(f'`{option}`' for option in taken)}.")
        rows = []
        for (setting, meaning), (default, methods) in _common(title).items():
            others = [name for name in members if name not in methods]
            scope = "" if not others else f" Not of {', '.join(others)}."
            if len(others) > len(methods):
                scope = f" Of {', '.join(methods)}."
            rows.append((setting, meaning + scope, default))
        if rows:
            yield _bullets(rows)


def _taken(name: str) -> list[str]:
    """The options of `train` that a method takes."""
    options = {option.name: option for option in app.commands["train"].params if isinstance(option, click.Option)}
    return [options[each].opts[0] for each in taken_by(name) if each in options]


def _methods() -> Iterator[str]:
    """Each method of `train`: what it takes beside its family, other defaults, and settings of its own."""
    families = {name: title for title in FAMILIES for name in _of_family(title)}
    for name in sorted(METHODS):
        title = families[name]
        common, members = _common(title), list(_of_family(title))
        yield f"## {name}"
        more = [option for option in _taken(name) if not all(option in _taken(each) for each in members)]
        rows = _of_family(title)[name]
        usual = [(row, common[row[:2]][0]) for row in rows if row[:2] in common]
        other = [
            f"`{row[0].strip('`').partition('=')[0]}={row[2].strip('`')}`"
            for row, default in usual
            if row[2] != default
        ]
        text = f"{METHODS[name].summary} [{title}](#{_anchor(title)})"
        text += f", with {', '.join(other)}." if other else "."
        if more:
            text += f" Also takes {', '.join(f'`{option}`' for option in more)}."
        yield _wrapped(text)
        if own := [row for row in rows if row[:2] not in common]:
            yield _bullets(own)


def _settings(kinds: Mapping[str, type]) -> list[Row]:
    return [_setting(*row) for row in settings_table(kinds)]


def _setting(name: str, text: str) -> Row:
    text, mark, notes = text.rpartition("  [")
    default = notes.rstrip("]").removeprefix("default: ") if mark else ""
    return f"`{name}`", text if mark else notes, f"`{default}`" if default not in ("", "required") else default


def _bullets(rows: Sequence[Row]) -> str:
    """A list: names, meanings and defaults."""
    lines = []
    for name, meaning, default in rows:
        text = f"{name}: {_escaped(meaning)}" + (f" ({default})" if default else "")
        lines.append("* " + _wrapped(text, 118).replace("\n", "\n  "))
    return "\n".join(lines)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


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


def settings_file() -> str:
    """The settings of each command, as its help lists them."""
    kinds = {"upgrade": settings_kinds(), "convert": converting.settings_kinds()}
    tables = {name: list(settings_table(kind, whole=False)) for name, kind in kinds.items()}
    tables |= {f"train {name}": list(settings_table({"": method.load()})) for name, method in METHODS.items()}
    return json.dumps(tables, indent=0) + "\n"


def write(pages_by_name: dict[str, Any]) -> None:
    """Write the pages into docs/reference."""
    for name, text in pages_by_name.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write(pages())
    LISTED.write_text(settings_file())
