"""Print public docstrings, error messages and command output drawn at random: `python .ci/samples.py [SEED]`.

Messages are read from the source: what a program puts into one stands in braces.
"""

from __future__ import annotations

import ast
import random
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

import compatstore.errors
from compatstore.cli.app import app

ROOT = Path(compatstore.__file__).resolve().parents[1]
ERRORS = {name for name, kind in vars(compatstore.errors).items() if isinstance(kind, type)}
GALLERY = "photos.lance"
COMMANDS = f"""
upgrade --help
train ridge --help
init {GALLERY} --version v1 --dim 8
init {GALLERY} --version v1 --dim 8
add {GALLERY} old.npz
add {GALLERY} old.npz
status {GALLERY}
search {GALLERY} --id item-3 -k 3
search {GALLERY} --id item-999
upgrade {GALLERY} v2 --encoder precomputed:new.npz --dry-run
upgrade {GALLERY} v2
upgrade {GALLERY} v2 --encoder precomputed:new.npz --backfill 10%
upgrade {GALLERY} v2 --encoder precomputed:new.npz --backfill 110%
status {GALLERY} --json
evaluate {GALLERY} v2 --set gates.labels=kind
cutover {GALLERY} v2
rollback {GALLERY} v2
retire {GALLERY} v1
verify {GALLERY}
optimize {GALLERY}
history {GALLERY}
versions {GALLERY}
sync {GALLERY}
convert no.parquet --out new.parquet
train ridge --pairs old.npz nowhere.npz --out h.compat
doctor nowhere.lance
"""


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of each module."""
    for folder in ("compatstore", "trainers", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def docstrings() -> Iterator[str]:
    """Docstrings of public classes and functions."""
    for place, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                text = ast.get_docstring(node)
                if text:
                    yield f"{place}: {node.name}: {text.splitlines()[0]}"


def messages() -> Iterator[str]:
    """Messages of errors: operation, what was expected, what was found, what to do."""
    for place, tree in trees():
        for node in ast.walk(tree):
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ERRORS and call.args:
                parts = {word.arg: readable(word.value) for word in call.keywords}
                named = [f"{name} {parts[name]}" for name in ("expected", "found") if name in parts]
                text = "; ".join([readable(call.args[0]), *named]) + (f". {parts['fix']}" if "fix" in parts else ".")
                yield f"{place}: {call.func.id}: {text}"


def readable(node: ast.expr) -> str:
    """A text as it is written, with the expressions in it in braces."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(readable(value) for value in node.values)
    return f"{{{ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node)}}}"


def outputs() -> Iterator[str]:
    """What commands print in an empty folder, one after the other."""
    import numpy as np

    rng = np.random.default_rng(0)
    ids, kinds = np.array([f"item-{number}" for number in range(500)]), np.arange(500) % 20
    means, turn = rng.normal(size=(20, 8)), rng.normal(size=(8, 8))
    old = (means[kinds] + rng.normal(size=(500, 8))).astype(np.float32)
    np.savez("old.npz", id=ids, vector=old, source=ids, kind=kinds)
    np.savez("new.npz", id=ids, vector=((means[kinds] + old) @ turn).astype(np.float32))
    for line in COMMANDS.strip().splitlines():
        yield f"$ compatstore {line}\n{CliRunner().invoke(app, shlex.split(line)).output.rstrip()}"


if __name__ == "__main__":
    import contextlib

    draw = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        printed = list(outputs())
    for what, texts, count in (
        ("docstrings", list(docstrings()), 40),
        ("messages", list(messages()), 40),
        ("outputs of commands", printed, 20),
    ):
        chosen = draw.sample(texts, count)
        sys.stdout.write("\n".join([f"## {count} of {len(texts)} {what}", "", *chosen, "", ""]))
