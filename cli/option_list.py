"""The options that verbs make of dataclasses, as a list beside this file, for a shell that asks for completions.

To make them takes torch or Lance, and seconds. `docs/tools/cli_pages.py` writes the list, and a test holds it against
what the verbs say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from compatstore.cli.settings import Options

LISTED = Path(__file__).with_name("options.json")


Requests = Callable[[], Mapping[str, Options]]


def listing(verbs: Iterable[tuple[str, Requests]]) -> str:
    """`options.json`: the options that verbs make of dataclasses, by the verb's words, such as "train fct"."""
    made = {
        name: [_entry(option) for options in requests().values() for option in options.made()]
        for name, requests in verbs
    }
    lines = (f"{json.dumps(name)}: {json.dumps(entries)}" for name, entries in made.items() if entries)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entry(option: click.Option) -> dict[str, Any]:
    choices = list(option.type.choices) if isinstance(option.type, click.Choice) else None
    flags = "/".join(part for part in (" ".join(option.opts), " ".join(option.secondary_opts)) if part)
    kept = {
        "is_flag": option.is_flag or None,
        "multiple": option.multiple or None,
        "hidden": option.hidden or None,
        "type": choices,
        "metavar": option.metavar,
        "help": option.help,
    }
    return {"option": [flags, option.name], **{name: value for name, value in kept.items() if value is not None}}


def listed_options(ctx: click.Context) -> list[click.Option]:
    """The options that a verb makes of dataclasses, as `options.json` has them."""
    found = []
    for entry in _listed().get(" ".join(_words(ctx)), ()):
        settings = {name: value for name, value in entry.items() if name not in ("option", "type")}
        kind = click.Choice(entry["type"]) if "type" in entry else None
        found.append(click.Option(entry["option"], type=kind, **settings))
    return found


@cache
def _listed() -> Mapping[str, list[dict[str, Any]]]:
    read: Mapping[str, list[dict[str, Any]]] = json.loads(LISTED.read_text(encoding="utf-8"))
    return read


def _words(ctx: click.Context) -> list[str]:
    """The words by which a verb is called, without the program's name."""
    return [] if ctx.parent is None else [*_words(ctx.parent), ctx.info_name or ""]
