"""The quick reference of the API, a line for each method: `cli_pages.py` writes it to `docs/reference/api/quick.md`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import compatstore as cs
from compatstore.gallery import Maintenance
from compatstore.gallery.versions import Artifacts

INTRODUCTION = """\
One line for each method; every one is also a coroutine on `gallery.aio`. Parameters, errors and examples:
[Gallery](gallery.md). Settings (`Backfill`, `Gates`, `RunSettings`, `Learn`) and results:
[settings and results](upgrades.md)."""
THEMES = {
    "Galleries": "create open adopt",
    "Items": "add update delete get vectors scan columns",
    "Search": "search explain cache",
    "Versions": "register version versions active artifacts",
    "Upgrades": "upgrade cutover rollback abort retire status",
    "Measure": "evaluate report judge",
}  # what no theme names stands under "Further"
BELOW = {"Artifacts": ("gallery.artifacts", Artifacts), "Maintenance": ("gallery.maintenance", Maintenance)}
OTHERS = {"Many tables": ("shards", cs.Shards), "A version in memory": ("cache", cs.Cache)}


def page(written: str) -> str:
    """The page, with a note of what writes it."""
    methods = dict(_members(cs.Gallery))
    themes = {theme: names.split() for theme, names in THEMES.items()}
    themed = {name for names in themes.values() for name in names}
    themes["Further"] = [name for name in methods if name not in themed]
    parts = ["# API quick reference", written, INTRODUCTION]
    for theme, names in themes.items():
        known = [name for name in names if name in methods]
        lines = [_line("gallery", name, methods[name]) for name in known]
        parts += [f"## {theme}", "\n".join(lines)]
    for theme, (owner, kind) in {**BELOW, **OTHERS}.items():
        lines = [_line(owner, name, member) for name, member in _members(kind)]
        parts += [f"## {theme}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers_static(kind):
        if not name.startswith("_"):
            yield name, member


def _line(owner: str, name: str, member: Any) -> str:
    called = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
    owner, parameters = owner.capitalize() if isinstance(member, classmethod) else owner, ""
    if inspect.isfunction(called) and not isinstance(member, property):
        names = [each for each in inspect.signature(called).parameters if each not in ("self", "cls")]
        parameters = f"({', '.join(names)})"
    first = (inspect.getdoc(called) or "").partition("\n\n")[0].replace("\n", " ")
    text = re.sub(r"([*<])", r"\\\1", first)
    wrapped = textwrap.wrap(
        f"* `{owner}.{name}{parameters}`: {text}", 120, break_long_words=False, break_on_hyphens=False
    )
    return "\n  ".join(wrapped)
