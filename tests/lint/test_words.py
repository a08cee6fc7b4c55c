"""Names and words: one definition for each public type name, reasons for `Any`, and words that no text uses."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from pathlib import Path

from lint.tree import assert_none, planted, planted_page, read_packages, read_pages, read_sources

# Words that a reader who knows the field would have to guess at.
UNWANTED = ("anew", "all the same", "so many", "likewise", "in words", "on your word", "no accident")
# Persons in machines, and words of our own for terms of the field (fused search, significant, uncertainty).
PERSONS = ("nobody", "somebody", "whoever", "told", "doubt", "doubts", "doubted", "for certain")
PERSONS += ("searched as one", "served as one", "versions as one", "both as one", "teaches itself", "teach itself")
RECORDS = ("docs/results/", "CHANGELOG.md")  # texts of their day
ACROSS_LINES = r"[ \n#]+"
WORDS, ALL_WORDS = (
    re.compile(rf"\b({'|'.join(words)})\b".replace(" ", ACROSS_LINES), re.IGNORECASE)
    for words in (UNWANTED, UNWANTED + PERSONS)
)
HERE = "tests/lint/test_words.py"  # lists the words
KEPT = Path(__file__).with_name("any.toml")


def unwanted_in_sources(sources):
    """Words in comments, docstrings and messages."""
    for source in sources:
        words = WORDS if source.place.startswith(("tests/", "benchmarks/")) else ALL_WORDS
        if source.place == HERE or not words.search(source.text):
            continue
        tokens = list(tokenize.generate_tokens(io.StringIO(source.text).readline))
        texts = [token for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]
        texts += [token for token in tokens if token.type == getattr(tokenize, "FSTRING_MIDDLE", -1)]
        for text in texts:
            for match in words.finditer(text.string):
                line = text.start[0] + text.string.count("\n", 0, match.start())
                yield f"{source.place}:{line}: {match[0]!r}"


def unwanted_in_pages(pages):
    """Words anywhere in a page."""
    for page in pages:
        words = WORDS if page.place.startswith(RECORDS) else ALL_WORDS
        for match in words.finditer(page.text):
            yield f"{page.place}:{page.line(match.start())}: {match[0]!r}"


def type_names(tree):
    """(line, name) of a module's public classes and type aliases."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            if "TypeAlias" in ast.unparse(node.annotation):
                yield node.lineno, node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from ((node.lineno, name) for name in names if name[0].isupper() and not name.isupper())


def defined_twice(sources):
    """Public type names with more than one definition."""
    homes = defaultdict(list)
    for source in sources:
        for line, name in type_names(source.tree):
            if not name.startswith("_"):
                homes[name].append(f"{source.place}:{line}")
    return [f"{name}: {', '.join(places)}" for name, places in homes.items() if len(places) > 1]


def signatures_with_any(parent, prefix):
    """(line, name) of public functions and methods in whose signature `Any` stands."""
    for node in parent.body:
        public = not node.name.startswith("_") if isinstance(node, ast.ClassDef | ast.FunctionDef) else False
        if isinstance(node, ast.ClassDef) and public:
            yield from signatures_with_any(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and (public or node.name == "__init__"):
            annotated = [argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
            parts = [part for annotation in filter(None, [*annotated, node.returns]) for part in ast.walk(annotation)]
            if any(isinstance(part, ast.Name) and part.id == "Any" for part in parts):
                yield node.lineno, f"{prefix}{node.name}"


def unexplained_any(sources, kept):
    """Signatures that differ from those of `any.toml`, and groups there without a reason."""
    listed = [signature for group in kept for signature in group["signatures"]]
    open_signatures = {
        f"{source.name}:{name}": f"{source.place}:{line}"
        for source in sources
        for line, name in signatures_with_any(source.tree, "")
    }
    yield from (f"{place}: {name} has no reason" for name, place in open_signatures.items() if name not in listed)
    yield from (f"any.toml: {name} has no `Any`" for name in listed if name not in open_signatures)
    yield from (f"any.toml: {name} is listed twice" for name in sorted(set(listed)) if listed.count(name) > 1)
    yield from (f"any.toml: no reason for {group['signatures']}" for group in kept if not group["reason"])


def test_comments_docstrings_and_messages_use_plain_words():
    assert_none(unwanted_in_sources(read_sources()))


def test_pages_use_plain_words():
    assert_none(unwanted_in_pages(read_pages()))


def test_each_public_type_name_has_one_definition():
    assert_none(defined_twice(read_packages()))


def test_any_stands_where_data_is_truly_anything():
    assert_none(unexplained_any(read_packages(), tomllib.loads(KEPT.read_text())["kept"]))


def test_each_rule_finds_a_planted_offender():
    text = planted('"""It is built in\nwords."""\n\n# likewise\nraise ValueError(f"{3} So   many rows")\nanew = 1\n')
    places = [each.rpartition(": ")[0] for each in unwanted_in_sources([text])]
    assert sorted(places) == [f"compatstore/storage/planted.py:{line}" for line in (1, 4, 5)]
    assert WORDS.search("# built in\n    # words")
    assert list(unwanted_in_pages([planted_page("It is\nbuilt\nanew.\nA renewed lease, told to nobody.")])) == [
        "docs/planted.md:3: 'anew'",
        "docs/planted.md:4: 'told'",
        "docs/planted.md:4: 'nobody'",
    ]
    assert defined_twice([planted("class Row: ...\n"), planted("Row = dict[str, int]\nROW = [3][0]\n")]) == [
        "Row: compatstore/storage/planted.py:1, compatstore/storage/planted.py:1"
    ]
    open_one = planted("def read(data: list[Any]): ...\ndef _read(data: Any): ...\n")
    gone = [{"reason": "", "signatures": ["a:gone", "a:gone"]}]
    assert [each.partition(": ")[2] for each in unexplained_any([open_one], gone)] == [
        "compatstore.storage.planted:read has no reason",
        "a:gone has no `Any`",
        "a:gone has no `Any`",
        "a:gone is listed twice",
        "no reason for ['a:gone', 'a:gone']",
    ]
