"""Names and words: one definition for each public type name, reasons for `Any`, and words that no text uses."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.house import read_tree

ROOT = Path(__file__).parents[1]
SOURCES = [
    path
    for folder in ("compatstore", "trainers", "cli", "benchmarks", "examples", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.is_relative_to(ROOT / "compatstore" / "trainers")
    and not path.is_relative_to(ROOT / "compatstore" / "cli")
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])  # not those of an environment within, of any name

# What a reader who knows the field would have to guess at.
UNWANTED = ("anew", "all the same", "so many", "likewise", "in words", "on your word", "no accident")
ACROSS_LINES = r"[ \n#]+"
WORDS = re.compile(rf"\b({'|'.join(UNWANTED)})\b".replace(" ", ACROSS_LINES), re.IGNORECASE)


def unwanted_of_code(path):
    """(line, word) of comments, docstrings and messages."""
    tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
    texts = [token for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]
    texts += [token for token in tokens if token.type == getattr(tokenize, "FSTRING_MIDDLE", -1)]
    for text in texts:
        for match in WORDS.finditer(text.string):
            yield text.start[0] + text.string.count("\n", 0, match.start()), match[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_docstrings_and_messages_use_plain_words(path):
    if path != Path(__file__):
        assert list(unwanted_of_code(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_use_plain_words(path):
    text = path.read_text()
    assert [(text.count("\n", 0, match.start()) + 1, match[0]) for match in WORDS.finditer(text)] == []


def test_the_check_finds_a_word():
    assert WORDS.search("it is built\nanew")
    assert WORDS.search("So   many rows")
    assert WORDS.search("# built in\n    # words")
    assert not WORDS.search("a renewed lease")


def type_names(module):
    """Names of a module's public classes and type aliases."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            if "TypeAlias" in ast.unparse(node.annotation):
                yield node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name) and is_type(target.id))


def is_type(name):
    return name[0].isupper() and not name.isupper()


def test_each_public_type_name_has_one_definition():
    homes = defaultdict(list)
    for module in read_tree(ROOT):
        for name in type_names(module):
            if not name.startswith("_"):
                homes[name].append(module.name)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def signatures_with_any():
    """`module:function` of the public functions and methods in whose signature `Any` stands."""
    for module in read_tree(ROOT):
        yield from (f"{module.name}:{name}" for name in _open_signatures(module.tree, ""))


def _open_signatures(parent, prefix):
    for node in parent.body:
        public = not node.name.startswith("_") if isinstance(node, ast.ClassDef | ast.FunctionDef) else False
        if isinstance(node, ast.ClassDef) and public:
            yield from _open_signatures(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and (public or node.name == "__init__"):
            annotated = [argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
            parts = [part for annotation in filter(None, [*annotated, node.returns]) for part in ast.walk(annotation)]
            if any(isinstance(part, ast.Name) and part.id == "Any" for part in parts):
                yield f"{prefix}{node.name}"


def test_any_stands_where_data_is_truly_anything():
    """Public signatures that keep `Any`, each with its reason, are those of `any.toml`."""
    kept = tomllib.loads((Path(__file__).parent / "any.toml").read_text())["kept"]
    listed = [signature for group in kept for signature in group["signatures"]]
    assert all(group["reason"] for group in kept)
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted(set(signatures_with_any()))
