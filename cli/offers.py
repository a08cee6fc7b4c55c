"""What a shell is offered for the value of an option or argument: versions, columns, artifacts, orders, tables, paths.

It follows from the word that the help shows for the value: a COLUMN is a column of the gallery that is named earlier on
the line. Nothing heavy loads meanwhile, and whatever is wrong, nothing is offered.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from compatstore.storage.glance import Glance, glance
from compatstore.storage.location import locate

ORDERS = (
    *("random", "spread", "sigma", "spread-then-sigma", "spread-sigma"),
    *("entropy", "margin", "least-confidence", "traffic"),
)
FIGURES = ("cmc@1", "cmc@5", "map", "recall@10", "ndcg@10", "mrr@10")
COMPUTED = ("_distance", "_version", "_origin", "_query")
ENCODERS = (
    *("timm:", "torchvision:", "open_clip:", "network:", "sentence-transformers:", "transformers:", "fastembed:"),
    *("model2vec:", "openai:", "files:", "precomputed:", "python:"),
)
SHORT_ID = 12  # digits of an artifact's id
# What a shell leaves as it is. A name from a table with anything else could become a command of its own.
_HARMLESS = re.compile(r"[\w@+,:./][\w.@+,:/#-]*")
_NUMBERS = re.compile(r"u?int\d+|float|double|halffloat")
_CLASSES = re.compile(r"u?int\d+|(large_)?string|bool")


def completed(parameter: click.Parameter) -> click.Parameter:
    """A parameter whose value is completed by what the help calls it."""
    word = parameter.metavar or (parameter.name or "").upper()
    offer = WORDS.get(word.removesuffix("..."))
    if offer is None or isinstance(parameter.type, click.Choice):
        return parameter
    made = copy.copy(parameter)
    made.type = OfferedWord(offer)
    return made


Offer = Callable[[click.Context, click.Parameter, str], Iterable[CompletionItem]]


class OfferedWord(click.ParamType[str]):
    """A word that is completed; it is read as it is.

    Args:
        offer: What there is for the begin of a word; whatever is wrong, a shell gets nothing.
    """

    name = "text"

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What the word may become."""
        try:
            return list(self._offer(ctx, param, incomplete))
        except Exception:  # a broken gallery is no reason to write into somebody's prompt
            return []


def _names(offer: Callable[[Glance, click.Parameter], Iterable[str]]) -> Offer:
    """An offer of names in the gallery that the line names."""

    @wraps(offer)
    def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
        found = _gallery(ctx)
        return [] if found is None else _beginning(incomplete, offer(found, param))

    return offered


def _gallery(ctx: click.Context) -> Glance | None:
    """What the gallery on the line says of itself; None where there is none, or none that can be read."""
    named = ctx.params.get("gallery")
    try:
        return glance(locate(os.path.expandvars(named))) if named else None
    except Exception:
        return None


def _beginning(incomplete: str, names: Iterable[str]) -> Iterable[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]


def _paths(kind: str) -> Offer:
    """Leave it to the shell: a "file" may be a folder too, a "dir" may not be a file."""
    return lambda ctx, param, incomplete: [CompletionItem(incomplete, type=kind)]


def _words_of(*names: str) -> Offer:
    return lambda ctx, param, incomplete: _beginning(incomplete, names)


def _galleries(ctx: click.Context, param: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
    """Folders; behind "DATABASE#" its tables."""
    database, mark, begun = incomplete.rpartition("#")
    if not mark:
        return _paths("file" if ctx.info_name == "doctor" else "dir")(ctx, param, incomplete)
    folder = Path(os.path.expandvars(database)).expanduser()
    tables = sorted(path.stem for path in folder.glob("*.lance") if path.is_dir())
    return _beginning(incomplete, [f"{database}#{name}" for name in tables if name.startswith(begun)])


@_names
def _versions(found: Glance, param: click.Parameter) -> Iterable[str]:
    return found.versions


@_names
def _columns(found: Glance, param: click.Parameter) -> Iterable[str]:
    """Columns of vectors, or all others; not what an upgrade keeps for itself."""
    vectors = param.name == "vector"
    return [name for name, kind in _apps(found) if ("list" in kind) == vectors]


@_names
def _vector_columns(found: Glance, param: click.Parameter) -> Iterable[str]:
    return [name for name, kind in _apps(found) if "list" in kind]


def _apps(found: Glance) -> Iterable[tuple[str, str]]:
    """(name, type) of the columns that are not kept beside a version's vectors."""
    ours = {f"{version}__{part}" for version in found.versions for part in ("origin", "uncertainty", "basis", "side")}
    return [(name, kind) for name, kind in found.columns.items() if name not in ours]


@_names
def _orders(found: Glance, param: click.Parameter) -> Iterable[str]:
    numbers = (name for name, kind in _apps(found) if _NUMBERS.fullmatch(kind))
    classes = (name for name, kind in _apps(found) if _CLASSES.fullmatch(kind))
    return [*ORDERS, *(f"column:{name}" for name in numbers), *(f"spread-sigma:{name}" for name in classes)]


def _several_columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
    """Columns with commas between them."""
    before, comma, begun = incomplete.rpartition(",")
    offered = [*_columns(ctx, param, begun), *_beginning(begun, COMPUTED)]
    return [CompletionItem(f"{before}{comma}{item.value}") for item in offered]


def _artifacts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
    """Ids of linked artifacts where one fits, else paths."""
    found = None if ctx.info_name == "link" else _gallery(ctx)
    linked = list(_beginning(incomplete, (id[:SHORT_ID] for id in found.artifacts))) if found else []
    if linked or ctx.info_name == "unlink":
        return linked
    return _paths("file")(ctx, param, incomplete)


def _vectors(ctx: click.Context, param: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
    """Versions and columns of vectors of the gallery on the line where one fits, else paths."""
    names = {item.value: item for offer in (_versions, _vector_columns) for item in offer(ctx, param, incomplete)}
    return list(names.values()) or _paths("file")(ctx, param, incomplete)


def _labels(ctx: click.Context, param: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
    """Columns of the gallery on the line where one fits, else paths."""
    return list(_columns(ctx, param, incomplete)) or _paths("file")(ctx, param, incomplete)


# What the help shows for a value -> what it is completed by.
WORDS: Mapping[str, Offer] = {
    "GALLERY": _galleries,
    **dict.fromkeys(("TARGET", "VERSION", "SOURCE"), _versions),
    "COLUMN": _columns,
    "A,B,": _several_columns,
    "ARTIFACT": _artifacts,
    "VECTORS": _vectors,
    "LABELS": _labels,
    "ORDER": _orders,
    "ENCODER": _words_of(*ENCODERS),
    "FIGURE>=VALUE": _words_of(*FIGURES),
    **dict.fromkeys(("FILE", "PATH", "PROGRAM", "OUT.onnx"), _paths("file")),
    **dict.fromkeys(("FOLDER", "MODEL", "DIRECTORY"), _paths("dir")),
}
