"""Output of a command: data on stdout as tables or JSON, notes, progress and errors on stderr.

Everything for people passes through here and is made visible: no id, name or message of a library reaches a terminal
with characters that steer it. JSON is exact; it spells such characters out by itself.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from compatstore.cli.logs import Log, LogLevel
from compatstore.errors import CompatStoreError, CompatStoreWarning
from compatstore.html import visible
from compatstore.shown import Table, table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

T = TypeVar("T")
_COMMAND = re.compile(r"(compatstore (?:[a-z-]+ )+)GALLERY\b")
WIDE = 10_000_000  # columns of a stdout that is no terminal: nothing is wrapped or cut
GAP = 2
READABLE = 24  # a column of text is not folded into less than that
_BLANK_ENDS = re.compile(r" +$", re.MULTILINE)


class Output:
    """Output of one command.

    Args:
        as_json: Print results and errors as JSON on stdout, instead of tables on stdout and errors on stderr.
        log: Receives all output on stderr; None for plain lines.

    Attributes:
        gallery: The user's name of the gallery, which advised commands repeat; "" before it is known.
    """

    def __init__(self, *, as_json: bool, log: Log | None = None) -> None:
        self.as_json, self.log, self.gallery = as_json, log, ""

    def show(self, result: T, view: Callable[[T], Iterable[str | Table]]) -> None:
        """Print a result.

        Args:
            result: Result of the API: a dataclass, an Arrow table, or a sequence of them.
            view: Turns it into lines and tables for people.
        """
        if self.log is not None:
            self.log.keep(plain(result))
        if self.as_json:
            click.echo(json.dumps(plain(result), indent=2))
            return
        drawn = console()
        for part in map(self.addressed, view(result)):
            with drawn.capture() as text:
                drawn.print(fitted(part, drawn.width), soft_wrap=isinstance(part, str))
            written = text.get()
            click.echo(written if drawn.is_terminal else _BLANK_ENDS.sub("", written), nl=False)

    def note(self, text: str, level: LogLevel = "info") -> None:
        """Say something that is no data, one line on stderr."""
        if self.log is not None:
            self.log.write("note" if level == "info" else level, {"message": self._named(text)}, level)
        else:
            click.echo(visible(self._named(text)), err=True)

    def addressed(self, part: str | Table) -> str | Table:
        """The same with commands that can be copied: "compatstore status GALLERY" names the current gallery."""
        if isinstance(part, str):
            return self._named(part)
        return dataclasses.replace(part, rows=tuple(tuple(map(self._named, row)) for row in part.rows))

    def _named(self, text: str) -> str:
        if not self.gallery:
            return text
        return _COMMAND.sub(lambda found: visible(f"{found[1]}{shlex.quote(self.gallery)}"), text)

    @contextmanager
    def noting_warnings(self) -> Iterator[None]:
        """Write warnings as notes, immediately; those of other libraries with their file and line."""
        with warnings.catch_warnings():

            def show(message: object, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
                ours = issubclass(category, CompatStoreWarning)
                line = f"Warning: {message}" if ours else f"{filename}:{lineno}: {category.__name__}: {message}"
                self.note(str(message) if self.log is not None and ours else line, "warning")

            warnings.simplefilter("always", CompatStoreWarning)
            warnings.showwarning = show
            yield

    def fail(self, error: CompatStoreError, code: int) -> None:
        """Print an error."""
        self._fail({**error.to_dict(), "exit_code": code}, [f"Error: {error}"])

    def fail_usage(self, error: click.UsageError) -> None:
        """Print a wrong option or argument, on a terminal with the usage line; the help if a command is missing."""
        message = error.format_message()
        lines = message.splitlines()
        if not isinstance(error, click.exceptions.NoArgsIsHelpError):
            context = error.ctx
            hint = [] if context is None else [f"Try '{context.command_path} --help' for help.", ""]
            lines = [*("" if context is None else context.get_usage()).splitlines(), *hint, f"Error: {message}"]
        fields = {"error": "UsageError", "message": message, "operation": "", "expected": "", "found": "", "fix": ""}
        self._fail({**fields, "exit_code": error.exit_code}, lines)

    def _fail(self, fields: Mapping[str, object], lines: Iterable[str]) -> None:
        if self.log is not None:
            self.log.write("failed", fields, "error")
        if self.as_json:
            click.echo(json.dumps(fields, indent=2))
        elif self.log is None:
            for line in lines:
                self.note(line)


pass_output = click.make_pass_decorator(Output)


def plain(value: Any) -> Any:
    """Turn a result into JSON's values: dataclasses to objects, Arrow tables to rows, NaN to null, bytes to hex."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if hasattr(value, "to_pylist"):  # Arrow
        return plain(value.to_pylist())
    if hasattr(value, "tolist"):  # NumPy
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | bool | int) else str(value)


def fitted(part: str | Table, width: int) -> RenderableType:
    """A line or a table of a view as rich draws it on `width` columns of a terminal.

    A table is drawn in full if there is room, with its longest texts folded if there is little, else as records.
    """
    from rich.cells import cell_len
    from rich.table import Table as Grid
    from rich.text import Text

    if isinstance(part, str):
        return Text(visible(part))
    grid, least = Grid(box=None, pad_edge=False, header_style="bold"), -GAP
    for name, numeric, *cells in zip(part.headings, part.numeric, *part.rows, strict=True):
        widest = max(map(cell_len, (name, *cells)))
        narrow = widest if numeric else min(widest, READABLE)
        least += narrow + GAP
        grid.add_column(
            Text(name), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric, min_width=narrow
        )
    for row in part.rows:
        grid.add_row(*map(Text, row))
    return grid if least <= width else _records(part)


def rows_view(result: Any) -> Iterator[Table]:
    """An Arrow table, a line for each row."""
    yield table(result.column_names, [row.values() for row in result.to_pylist()])


def _records(table: Table) -> RenderableType:
    """A line for each cell, behind its heading; an empty line between rows."""
    from rich.cells import cell_len
    from rich.console import Group
    from rich.text import Text

    if not table.rows:
        return Text(", ".join(table.headings), style="bold")
    margin = max(map(cell_len, table.headings)) + GAP
    parts = []
    for row in table.rows:
        for name, cell in zip(table.headings, row, strict=True):
            parts.append(Text.assemble((name, "bold"), " " * (margin - cell_len(name)), cell))
        parts.append(Text(""))
    return Group(*parts)


def is_terminal(stream: TextIO) -> bool:
    """True if a stream leads to a terminal that can move its cursor; one with TERM=dumb is treated as a file."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def console(*, stderr: bool = False) -> Console:
    """The console of stdout or stderr: as wide as the terminal, without styles if NO_COLOR is set.

    Without a terminal there are no styles and nothing is drawn twice, whatever FORCE_COLOR is.
    """
    from rich.console import Console

    terminal = is_terminal(sys.stderr if stderr else sys.stdout)
    return Console(
        stderr=stderr,
        width=None if terminal else WIDE,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        force_terminal=terminal,
        force_interactive=terminal,
    )
