"""The shape of a source tree, and how many of its files one operation passes through.

    python -m benchmarks.house [TREE] [--page PAGE]

Prints a Markdown table, and puts its figures in the last column of the table of a page. TREE is a checkout of this
repository, this one by default; another checkout is measured by the same rules.

The first part reads the source. The second part runs operations on a small gallery in a temporary folder, in a process
that imports TREE, and records each function of TREE that is entered. A walk is two numbers: files in which a function
was entered, and entries into another file than that of the entry before (a.py, a.py, b.py, a.py: 2 and 2).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"compatstore": "compatstore", "trainers": "compatstore.trainers", "cli": "compatstore.cli"}
THIN = 90  # lines
ITEMS, DIM = 8, 6
# The method that embeds and stores items, by its name in either tree; what is entered inside it is the walk of a native
# vector.
BACKFILL = frozenset({"Backfill.embed", "Backfiller.embed"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the tree: its name as a module, its path, its lines and its syntax tree."""

    name: str
    path: Path
    lines: int
    tree: ast.Module

    @classmethod
    def read(cls, name: str, path: Path) -> Module:
        """Parse a file."""
        text = path.read_text()
        return cls(name, path, len(text.splitlines()), ast.parse(text))

    def functions(self) -> list[Function]:
        """All functions and methods, nested ones too."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def public_names(self) -> set[str]:
        """Classes and functions of the module whose name has no leading underscore."""
        named = [node for node in self.tree.body if isinstance(node, Function | ast.ClassDef)]
        return {node.name for node in named if not node.name.startswith("_")}


def read_tree(tree: Path) -> list[Module]:
    """All modules of the installed packages of a checkout; links between their folders are not followed."""
    modules = []
    for folder, package in PACKAGES.items():
        for directory, folders, files in os.walk(tree / folder):
            folders[:] = [name for name in folders if not (Path(directory) / name).is_symlink()]
            for file in sorted(name for name in files if name.endswith(".py")):
                path = Path(directory) / file
                parts = [package, *path.relative_to(tree / folder).with_suffix("").parts]
                modules.append(Module.read(".".join(parts).removesuffix(".__init__"), path))
    return modules


def imported(module: Module) -> Iterator[str]:
    """What a module imports, by name; the text of a lazy export counts, as in `"Gallery": "compatstore.gallery"`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("compatstore."):
            yield node.value


def thin(modules: list[Module]) -> list[tuple[Module, str]]:
    """Files of fewer than `THIN` lines that exactly one other file imports, each with that file's name."""
    names, importers = {module.name for module in modules}, defaultdict[str, set[str]](set)
    for module in modules:
        for name in imported(module):
            if name in names and name != module.name:
                importers[name].add(module.name)
    return [
        (module, *importers[module.name])
        for module in modules
        if module.lines < THIN and module.path.name != "__init__.py" and len(importers[module.name]) == 1
    ]


def parameters(function: Function) -> int:
    """Number of parameters, `self` and `cls` aside."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    starred = [one for one in (function.args.vararg, function.args.kwarg) if one is not None]
    return len([one for one in named if one.arg not in ("self", "cls")]) + len(starred)


def signature_lines_with_any(module: Module) -> int:
    """Lines of signatures in which `Any` is part of an annotation."""
    lines = set()
    for function in module.functions():
        annotated = [node.annotation for node in ast.walk(function.args) if isinstance(node, ast.arg)]
        for annotation in filter(None, [*annotated, function.returns]):
            lines |= {node.lineno for node in ast.walk(annotation) if isinstance(node, ast.Name) and node.id == "Any"}
    return len(lines)


def verbs(modules: list[Module]) -> dict[str, int]:
    """Public methods of `Gallery`, each with its number of parameters."""
    classes = {node.name: node for module in modules for node in module.tree.body if isinstance(node, ast.ClassDef)}
    gallery = classes["Gallery"]
    parts = [gallery, *(classes[base.id] for base in gallery.bases if isinstance(base, ast.Name))]
    found = [node for part in parts for node in part.body if isinstance(node, Function)]
    return {method.name: parameters(method) for method in found if not method.name.startswith("_")}


def shape(tree: Path) -> dict[str, str]:
    """Figures of the source, by name."""
    modules = read_tree(tree)
    lines = [module.lines for module in modules]
    longest = max(modules, key=lambda module: module.lines)
    functions = [function for module in modules for function in module.functions()]
    lengths = [function.end_lineno - function.lineno + 1 for function in functions if function.end_lineno is not None]
    most, widest = max((parameters(function), function.name) for function in functions)
    verb, count = max(verbs(modules).items(), key=lambda item: item[1])
    return {
        "files": f"{len(modules):,}",
        "lines": f"{sum(lines):,}",
        "lines of a file, median": f"{statistics.median(lines):g}",
        "lines of the longest file": f"{longest.lines} (`{longest.path.relative_to(tree)}`)",
        "lines of a function, median": f"{statistics.median(lengths):g}",
        "lines of a function, 90th percentile": f"{statistics.quantiles(lengths, n=10)[-1]:g}",
        "public names": f"{sum(len(module.public_names()) for module in modules):,}",
        "most parameters of a function": f"{most} (`{widest}`)",
        "most parameters of a verb of `Gallery`": f"{count} (`{verb}`)",
        f"files under {THIN} lines with exactly one importer": f"{len(thin(modules))}",
        "lines of signatures with `Any`": f"{sum(signature_lines_with_any(module) for module in modules)}",
    }


class Walk:
    """Records the files of a tree in which functions are entered, on this thread and on those that it starts.

    Args:
        tree: The checkout.
        inside: Qualified names of a function; what is entered outside of its calls, and on threads that were started
            before (the renewal of a lease), is left out. None records all.
    """

    def __init__(self, tree: Path, inside: frozenset[str] | None = None) -> None:
        self._prefixes = tuple(f"{tree / name}{os.sep}" for name in PACKAGES)
        self._inside, self._depth = inside, 0
        self._last = dict[int, str]()
        self.files, self.changes = set[str](), 0

    def __enter__(self) -> Walk:
        if self._inside is None:
            threading.setprofile(self._entered)
            sys.setprofile(self._entered)
        else:
            sys.setprofile(self._wait)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _wait(self, frame: FrameType, event: str, _: Any) -> None:
        """Follow the thread until the function begins, and record until it ends."""
        if event in ("call", "return") and frame.f_code.co_qualname in (self._inside or ()):
            self._depth += 1 if event == "call" else -1
            threading.setprofile(self._entered if self._depth else None)
        if self._depth:
            self._entered(frame, event, None)

    def _entered(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._prefixes):
            self._enter(frame.f_code)

    def _enter(self, code: CodeType) -> None:
        thread = threading.get_ident()
        if self._last.get(thread, code.co_filename) != code.co_filename:
            self.changes += 1
        self._last[thread] = code.co_filename
        self.files.add(code.co_filename)


def upgradable(folder: Path) -> Any:
    """A gallery of a few items that can be upgraded to "v2"."""
    import numpy as np

    import compatstore as cs
    from compatstore.artifacts import Architecture, Artifact, Space

    rng, ids = np.random.default_rng(0), [f"item-{number}" for number in range(ITEMS)]
    vectors = rng.normal(size=(ITEMS, DIM)).astype(np.float32)
    encoder = cs.encoders.Precomputed(dict(zip(ids, vectors, strict=True)))
    source = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
    target = cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder)
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), source)
    gallery.add({"id": ids, "vector": vectors})
    gallery.register(target)
    architecture = Architecture(source_dim=DIM, output_dim=DIM)
    tensors = {f"h.{name}": rng.normal(size=shape) for name, shape in architecture.shapes().items()}
    spaces = {"source": Space.of(source), "target": Space.of(target)}
    gallery.artifacts.link(Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=tensors))
    return gallery


def one_native(folder: Path) -> Callable[[], object]:
    gallery = upgradable(folder)
    return lambda: gallery.upgrade("v2", backfill=1 / ITEMS)


def one_query(folder: Path) -> Callable[[], object]:
    gallery = upgradable(folder)
    return lambda: gallery.search([1.0] * DIM, k=3)


def one_add(folder: Path) -> Callable[[], object]:
    gallery = upgradable(folder)
    return lambda: gallery.add({"id": ["late"], "vector": [[1.0] * DIM]})


def one_fit(folder: Path) -> Callable[[], object]:
    """FastFill on a few pairs, which are one batch, for one epoch."""
    import numpy as np

    from compatstore.trainers import FastFill, Pairs

    source, target = np.random.default_rng(0).normal(size=(2, 40, DIM)).astype(np.float32)
    pairs = Pairs(source, target)
    method = FastFill(epochs=1, branch_width=8, mixer_width=8, batch_size=1024, device="cpu")
    return lambda: method.fit(pairs)


# Name of the walk -> what makes the call, and the function inside which it is recorded.
WALKS: dict[str, tuple[Callable[[Path], Callable[[], object]], frozenset[str] | None]] = {
    "a native vector (its backfill)": (one_native, BACKFILL),
    "an upgrade with one native vector": (one_native, None),
    "a query": (one_query, None),
    "an add of one item": (one_add, None),
    "FastFill on one batch of pairs": (one_fit, None),
}


def walks(tree: Path) -> dict[str, str]:
    """Figures of the walks, by name; `compatstore` is imported from wherever this process finds it."""
    figures = {}
    for name, (prepare, inside) in WALKS.items():
        for _ in range(2):  # the first call loads modules, which is no part of the walk
            with tempfile.TemporaryDirectory() as folder:
                call = prepare(Path(folder))
                with Walk(tree, inside) as walk:
                    call()
        figures[f"{name}: files / file changes"] = f"{len(walk.files)} / {walk.changes}"
    return figures


def walks_of(tree: Path) -> dict[str, str]:
    """The walks in a process that imports the tree."""
    command = [sys.executable, __file__, str(tree), "--walks"]
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def with_last_column(page: str, figures: dict[str, str]) -> str:
    """A page whose table rows `| name | before | after |` have these figures as their last cell."""
    lines = page.splitlines()
    for place, line in enumerate(lines):
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if line.startswith("|") and name in figures:
            lines[place] = f"| {' | '.join([name, *cells[:-1], figures[name]])} |"
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, help="a checkout; this one by default")
    parser.add_argument("--page", type=Path, help="a Markdown page, as docs/results/house.md, to be filled")
    parser.add_argument("--walks", action="store_true", help="print the walks of the compatstore at hand, as JSON")
    parser.add_argument("--thin", action="store_true", help="list the files that exactly one file imports")
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    if arguments.walks:
        print(json.dumps(walks(tree)))
        return
    if arguments.thin:
        for module, importer in thin(read_tree(tree)):
            print(f"{module.lines:3} {module.path.relative_to(tree)} <- {importer}")
        return
    print("| figure | value |\n|---|---|")
    figures = shape(tree) | walks_of(tree)
    for name, figure in figures.items():
        print(f"| {name} | {figure} |")
    if arguments.page is not None:
        arguments.page.write_text(with_last_column(arguments.page.read_text(), figures))


if __name__ == "__main__":
    main()
