"""Runs a benchmark and writes its record, or lists the benchmarks.

python -m benchmarks                    one line for each benchmark
python -m benchmarks NAME [SETTINGS]    run it and write benchmarks/results/NAME.json
python -m benchmarks NAME --smoke       run it in seconds, and write to a temporary folder
python -m benchmarks pages              make all tables and charts of docs/results from the records
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

from benchmarks import pages
from benchmarks.bounds import bounds_of, bounds_table
from benchmarks.record import RESULTS, Record, Row, benchmark_names, commit, load, machine, summary

DONE = "done"  # setting that gets the rows of an interrupted run


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        print(*(f"{name:20} {summary(name)}" for name in benchmark_names("SMOKE")), sep="\n")
    elif arguments[0] == "pages":
        print(*pages.write(), sep="\n")
    else:
        sys.exit(start(arguments[0], arguments[1:]))


def start(name: str, arguments: list[str]) -> int:
    """Run a benchmark; 1 if a row counts violations."""
    module = load(name)
    parser = arguments_of(module, name, smoke="--smoke" in arguments)
    settings = vars(parser.parse_args(arguments))
    smoke, out = settings.pop("smoke"), settings.pop("out")
    if smoke:
        settings |= {key: value for key, value in module.SMOKE.items() if settings[key] == parser.get_default(key)}
        out = out or Path(tempfile.gettempdir()) / "compatstore-benchmarks" / f"{name}.json"
    path = out or RESULTS / f"{name}.json"
    measured = [word for n, word in enumerate(arguments) if "--out" not in arguments[max(n - 1, 0) : n + 1]]
    about = {"benchmark": name, "command": shlex.join(["python", "-m", "benchmarks", name, *measured])}
    about |= {"machine": machine(), "commit": commit(), "date": f"{datetime.datetime.now(datetime.UTC).date()}"}
    plain = json.loads(json.dumps(settings, default=str))
    rows = list(rows_of(module.run, settings, path.with_suffix(".part"), about | {"settings": plain}))
    record = Record(**about, settings=plain, rows=rows)
    record.write(path)
    limited = {"bounds": lambda record: bounds_table(record.rows)} if bounds_of(rows) else {}
    for key, table in (limited | getattr(module, "TABLES", {})).items():
        print(f"\n{name}/{key}\n\n{table(record)}")
    print(f"\nwritten to {path}", file=sys.stderr)
    return int(any(row.get("violations") for row in rows))


def rows_of(run: Callable[..., Iterator[Row]], settings: Row, part: Path, about: Row) -> Iterator[Row]:
    """The rows of a run, each kept in `part` as it comes; a run with `done` goes on from an interrupted one."""
    extra: dict[str, Any] = {}
    begun = False
    if DONE in inspect.signature(run).parameters:
        lines = [json.loads(line) for line in part.read_text().splitlines()] if part.exists() else [{}]
        begun = lines[0].get("settings") == about["settings"]
        extra[DONE] = lines[1:] if begun else []
        yield from extra[DONE]
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("a" if begun else "w") as file:
        if not begun:
            print(json.dumps(about), file=file, flush=True)
        for row in run(**settings, **extra):
            line = json.dumps(row, ensure_ascii=False)
            print(line, file=file, flush=True)
            print(line, flush=True)
            yield row
    part.unlink()


def arguments_of(module: ModuleType, name: str, *, smoke: bool = False) -> argparse.ArgumentParser:
    """A parser with an option for each setting of `run`; one without a default is required, but for a smoke run."""
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="a run of seconds, written to a temporary folder")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    for key, setting in inspect.signature(module.run, eval_str=True).parameters.items():
        if key != DONE:
            needed = setting.default is setting.empty
            form = _form(setting.annotation) | {"default": None if needed else setting.default}
            parser.add_argument(f"--{key.replace('_', '-')}", required=needed and not smoke, **form)
    return parser


def _form(annotation: Any) -> dict[str, Any]:
    """How an option of a type is read: bool as a flag, tuple[int, ...] as several values, X | None as X."""
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(annotation) is tuple:
        return {"type": get_args(annotation)[0], "nargs": "+"}
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]
    return {"type": kinds[0]}


if __name__ == "__main__":
    main()
