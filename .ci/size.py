"""Print the size of the tree and of its public surface: `python .ci/size.py [TREE]`.

Code lines are lines that hold a token other than a comment or a docstring. The surface is read from the imported
package, so TREE must be installed in the running environment.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click

PACKAGES = ("compatstore", "trainers", "cli")
# What reaches other databases and files, which the limits of lines and files were set without.
ELSEWHERE = ("compatstore/stores/", "compatstore/conversion/", "cli/converting.py", "cli/mirroring.py")
STORES = "benchmarks/store"  # of their benchmarks
LIMITS = {
    "code lines without them": 34_000,
    "files without them": 310,
    "Gallery": 28,
    "exceptions": 16,
    "options of upgrade": 14,
    "options": 330,
}
LIMITS |= {"lines of benchmarks": 4_500, "words of documentation": 70_000, "results pages": 13, "README lines": 150}
LEAST = {"pictures": 15}
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def sources(tree: Path, *packages: str) -> list[Path]:
    """Python files of packages, links left out."""
    return [path for package in packages for path in _walk(tree / package)]


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.suffix == ".py":
            yield path


def code_lines(path: Path) -> int:
    """Lines of a file that hold code: docstrings, comments and blank lines left out."""
    text = path.read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def surface() -> dict[str, int]:
    """Numbers of public names, exceptions and options."""
    import compatstore
    from compatstore import errors
    from compatstore.cli.app import app

    gallery = [name for name in dir(compatstore.Gallery) if not name.startswith("_")]
    raised = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CompatStoreError)
    ]
    commands = list(_commands(app, ""))
    options = {name: len(_options(command)) for name, command in commands}
    return {
        "Gallery": len(gallery),
        "exceptions": len(raised),
        "commands": len(commands),
        "options of upgrade": options["upgrade"],
        "options": sum(options.values()),
        "options of train": sum(count for name, count in options.items() if name.startswith("train")),
    }


def _options(command: click.Command) -> list[click.Option]:
    context = click.Context(command)
    return [one for one in command.get_params(context) if isinstance(one, click.Option) and "--help" not in one.opts]


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None:
                yield from _commands(found, f"{name} {verb}".strip())
    else:
        yield name, command


def measure(tree: Path) -> dict[str, int]:
    """All figures of a tree."""
    files = sources(tree, *PACKAGES)
    elsewhere = [path for path in files if path.relative_to(tree).as_posix().startswith(ELSEWHERE)]
    benchmarks = sources(tree, "benchmarks")
    of_stores = [path for path in benchmarks if path.relative_to(tree).as_posix().startswith(STORES)]
    lines, beside = sum(map(code_lines, files)), sum(map(code_lines, elsewhere))
    return {
        "code lines": lines,
        "of them for other databases and files": beside,
        "code lines without them": lines - beside,
        "files": len(files),
        "files without them": len(files) - len(elsewhere),
        "lines of tests": sum(map(code_lines, sources(tree, "tests"))),
        "lines of benchmarks": sum(code_lines(path) for path in benchmarks if path not in of_stores),
        "lines of benchmarks of them": sum(map(code_lines, of_stores)),
    } | (shelf(tree) | surface())


def shelf(tree: Path) -> dict[str, int]:
    """Numbers of pages, words, pictures and results pages, and the lines of the README."""
    docs = [path for path in (tree / "docs").rglob("*") if path.is_file()]
    pages = [path for path in docs if path.suffix == ".md"]
    own = [tree / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return {
        "documentation pages": len(pages),
        "words of documentation": sum(len(path.read_text().split()) for path in (*pages, *own)),
        "pictures": sum(path.suffix in (".svg", ".png") for path in docs),
        "results pages": sum(tree / "docs" / "results" in path.parents for path in pages),
        "README lines": len((tree / "README.md").read_text().splitlines()),
    }


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    limits = {what: f"{limit:,}" for what, limit in LIMITS.items()}
    limits |= {what: f"at least {limit}" for what, limit in LEAST.items()}
    rows = [f"| {what} | {figure:,} | {limits.get(what, '')} |" for what, figure in measure(root).items()]
    sys.stdout.write("\n".join(["| what | figure | limit |", "|---|---|---|", *rows, ""]))
