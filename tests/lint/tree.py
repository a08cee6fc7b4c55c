"""The files that rules read: sources, each parsed at most once in a process, and pages with their blocks of code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Folder of an installed package -> its name.
PACKAGES = {"compatstore": "compatstore", "trainers": "compatstore.trainers", "cli": "compatstore.cli"}
# Folders of sources beside those of the installed packages.
BESIDES = ("benchmarks", "examples", "tests", "docs/tools")
# Languages of blocks of code that tests/test_documents.py runs; a block without a language is a listing.
RUNNABLE = ("pycon", "python", "console", "toml")


@dataclass(frozen=True)
class Source:
    """A Python file.

    Attributes:
        place: Its path from the repository's root, such as "cli/app.py".
        text: Its text.
        name: Its name as a module, such as "compatstore.cli.app".
    """

    place: str
    text: str
    name: str = ""

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, made when a rule first asks for it."""
        return ast.parse(self.text, self.place)

    @cached_property
    def calls(self) -> tuple[tuple[ast.Call, str], ...]:
        """(call, name of what it calls) of calls by a name or by one attribute of a name: `print`, `sys.exit`."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return tuple((node, name) for node in nodes if (name := _name(node.func)))


def _name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


@dataclass(frozen=True)
class Block:
    """A block of code: the line of its fence, its language ("" for a listing) and its code."""

    line: int
    language: str
    code: str


@dataclass(frozen=True)
class Page:
    """A page in Markdown: its path from the repository's root, and its text."""

    place: str
    text: str

    @property
    def path(self) -> Path:
        """The file."""
        return ROOT / self.place

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Its blocks of code, in order."""
        matches = re.finditer(r"^```(\w*)\n(.*?)^```", self.text, flags=re.MULTILINE | re.DOTALL)
        return tuple(Block(self.line(match.start()), match[1], match[2]) for match in matches)

    def line(self, offset: int) -> int:
        """The number of the line at an offset of the text."""
        return self.text.count("\n", 0, offset) + 1

    def at(self, words: str) -> str:
        """`page:line` of the first line with some words; the page alone where a line break parts them."""
        offset = self.text.find(words)
        return self.place if offset < 0 else f"{self.place}:{self.line(offset)}"


@cache
def read_packages() -> tuple[Source, ...]:
    """The modules of the installed packages; links between their folders are not followed."""
    return tuple(
        Source(str(path.relative_to(ROOT)), path.read_text(), ".".join([package, *_parts(path, ROOT / folder)]))
        for folder, package in PACKAGES.items()
        for path in sorted(_files(ROOT / folder))
    )


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.suffix == ".py":
            yield path


def _parts(path: Path, folder: Path) -> list[str]:
    """Names of a module below its package: none for the package itself."""
    parts = [*path.relative_to(folder).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def read_sources() -> tuple[Source, ...]:
    """All Python files of the repository, but not those of an environment within it."""
    paths = [path for folder in BESIDES for path in sorted((ROOT / folder).rglob("*.py"))]
    places = [path.relative_to(ROOT) for path in paths]
    named = [(place, ".".join(place.with_suffix("").parts)) for place in places]
    return (*read_packages(), *(Source(str(place), (ROOT / place).read_text(), name) for place, name in named))


@cache
def read_pages() -> tuple[Page, ...]:
    """The pages of the repository's root and of docs/."""
    paths = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return tuple(Page(str(path.relative_to(ROOT)), path.read_text()) for path in paths)


def page(place: str) -> Page:
    """One page, by its path from the repository's root."""
    return next(each for each in read_pages() if each.place == place)


def planted(text: str, name: str = "compatstore.storage.planted") -> Source:
    """A module with an offender."""
    return Source(f"{name.replace('.', '/')}.py", text, name)


def planted_page(text: str, place: str = "docs/planted.md") -> Page:
    """A page with an offender."""
    return Page(place, text)


def assert_none(offenders: Iterable[str]) -> None:
    """Fail with all offenders, a line each."""
    if listed := list(offenders):
        pytest.fail(f"{len(listed)} offenders:\n" + "\n".join(listed), pytrace=False)


def layer_of(source: Source) -> str:
    """The layer of a module; "__init__" for the package itself."""
    return source.name.partition(".")[2].partition(".")[0] or "__init__"


def imports(source: Source, *, top_level: bool = False) -> Iterator[tuple[int, str]]:
    """(line, module) of what a file imports, type checking aside."""
    for node in _outside_type_checking(source.tree) if top_level else ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            if node.module == "compatstore":
                yield from ((node.lineno, f"compatstore.{alias.name}") for alias in node.names)


def _outside_type_checking(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not guarded:
            yield node
