"""Records of benchmarks: one JSON file a benchmark, with its command, machine, commit and rows.

A benchmark is a file `benchmarks/NAME.py`, or a folder with `benchmarks/NAME/run.py`, that holds:

* a docstring, whose first line is shown in the list
* `run(*, setting=default, ...)`, which yields rows (flat dicts); its settings are options of the command. A setting
  `done` is no option: it gets the rows of a run with the same settings that was interrupted
* `SMOKE`: settings of a run of seconds
* `TABLES` (optional): key -> function(record) that gives Markdown, for `<!-- table: NAME/KEY -->` of a page
* `chart` (optional): function(record) that gives a figure, saved as docs/pictures/results/NAME.svg

A module with `TABLES` and `OF`, names of benchmarks, instead of `run` makes tables of several records: its record holds
their rows, each with `benchmark`, `command`, `machine`, `commit` and `date`.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
MEASURED = ("benchmark", "command", "machine", "commit", "date")

Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One run of a benchmark.

    Args:
        benchmark: Name of the benchmark.
        command: The command that made the rows. A row of an earlier run may name its own; so for machine and commit.
        machine: Processor, cores, memory and GPU.
        commit: Short hash of the sources.
        date: ISO day.
        settings: Settings of `run`.
        rows: Flat dicts of numbers and short strings.
    """

    benchmark: str
    command: str = ""
    machine: str = ""
    commit: str = ""
    date: str = ""
    settings: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, name: str) -> Record:
        """The record of a benchmark in the repository."""
        path = RESULTS / f"{name}.json"
        if not path.exists():
            raise FileNotFoundError(f"no record of {name}: run python -m benchmarks {name}")
        return cls(**json.loads(path.read_text()))

    @classmethod
    def gather(cls, name: str, benchmarks: tuple[str, ...]) -> Record:
        """The rows of several benchmarks in one record, each with its benchmark, command, machine, commit and date."""
        records = [cls.read(each) for each in benchmarks]
        return cls(name, rows=[row for record in records for row in record.measured()])

    def measured(self) -> list[Row]:
        """The rows, each with its benchmark, command, machine, commit and date."""
        return [{key: getattr(self, key) for key in MEASURED} | row for row in self.rows]

    def write(self, path: Path) -> None:
        """Write the record as JSON, a row a line."""
        values = asdict(self)
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in values.pop("rows"))
        head = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in values.items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{\n{"".join(head)} "rows": [\n  {rows}\n ]\n}}\n')


def benchmark_names(*marks: str) -> list[str]:
    """Names of benchmarks and of modules of tables, those that define a name of `marks` (by default all)."""
    return sorted(name for name, path in _modules() if _defined(path) & {*(marks or ("SMOKE", "TABLES"))})


def load(name: str) -> ModuleType:
    """Import the module of a benchmark."""
    path = dict(_modules()).get(name)
    if path is None:
        raise ModuleNotFoundError(f"no benchmark {name}")
    return importlib.import_module(f"benchmarks.{name}.run" if path.name == "run.py" else f"benchmarks.{name}")


def record_of(name: str) -> Record:
    """The record that tables and the chart of a module are made from."""
    module = load(name)
    return Record.gather(name, module.OF) if hasattr(module, "OF") else Record.read(name)


def summary(name: str) -> str:
    """First line of a benchmark's docstring, read without importing it."""
    doc = ast.get_docstring(ast.parse(dict(_modules())[name].read_text())) or ""
    return doc.partition("\n")[0]


def machine() -> str:
    """Processor, cores, memory and GPU of this machine."""
    name = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        gpu = "no GPU"
    return f"{len(os.sched_getaffinity(0))} cores ({name}), {gib:.0f} GiB, {gpu}"


def commit() -> str:
    """Short hash of the commit; "+" if tracked files differ from it, "" outside a clone."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _modules() -> Iterator[tuple[str, Path]]:
    folder = Path(__file__).parent
    yield from ((path.stem, path) for path in folder.glob("[!_]*.py"))
    yield from ((path.parent.name, path) for path in folder.glob("*/run.py"))


def _defined(path: Path) -> set[str]:
    """Which of the names of a benchmark a module defines, or lists in `__all__`, read without importing it."""
    text = path.read_text()
    listed = re.findall(r"^__all__ = (.*)", text, re.MULTILINE)
    return {*re.findall(r"^(?:def )?(\w+)\b[ :(]", text, re.MULTILINE), *re.findall(r'"(\w+)"', "".join(listed))}
