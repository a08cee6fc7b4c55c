"""Where a command's words go: data on stdout as tables or JSON, notes, progress and errors on stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from compatstore.errors import CompatStoreError, CompatStoreWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

T = TypeVar("T")
WIDE = 10_000  # columns of a stdout that is no terminal: nothing is wrapped or cut


class Output:
    """Where one command's words go.

    Args:
        as_json: Print results and errors as JSON on stdout, instead of tables on stdout and errors on stderr.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, result: T, view: Callable[[T], Iterable[str | Table]]) -> None:
        """Print a result.

        Args:
            result: What the API returned: a dataclass, an Arrow table, or a sequence of them.
            view: Turns it into lines and tables for people.
        """
        if self.as_json:
            click.echo(json.dumps(plain(result), indent=2))
            return
        console = _console()
        for part in view(result):
            if isinstance(part, str):
                click.echo(part)
            else:
                console.print(part)

    def show_line(self, result: Any) -> None:
        """Print one of many results as one line of JSON, at once."""
        click.echo(json.dumps(plain(result)))

    def note(self, text: str) -> None:
        """Say something that is no data, on stderr."""
        click.echo(text, err=True)

    @contextmanager
    def noting_warnings(self) -> Iterator[None]:
        """Say our own warnings as notes, as soon as they come up."""
        with warnings.catch_warnings():
            others = warnings.showwarning

            def show(
                message: Warning | str,
                category: type[Warning],
                filename: str,
                lineno: int,
                file: TextIO | None = None,
                line: str | None = None,
            ) -> None:
                if issubclass(category, CompatStoreWarning):
                    self.note(f"Warning: {message}")
                else:
                    others(message, category, filename, lineno, file, line)

            warnings.simplefilter("always", CompatStoreWarning)
            warnings.showwarning = show
            yield

    def fail(self, error: CompatStoreError, code: int) -> None:
        """Print an error."""
        if self.as_json:
            click.echo(json.dumps({**error.to_dict(), "exit_code": code}, indent=2))
        else:
            self.note(f"Error: {error}")

    def fail_usage(self, error: click.UsageError) -> None:
        """Print a wrong option or argument as JSON; for people click does it, with the usage line."""
        message = error.format_message()
        fields = {"error": "UsageError", "message": message, "asked": "", "expected": "", "found": "", "fix": ""}
        click.echo(json.dumps({**fields, "exit_code": error.exit_code}, indent=2))


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


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table without lines: numbers to the right, text to the left, nothing read as markup."""
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[position], int | float) for row in cells)
        made.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        made.add_row(*(Text(_cell(value)) for value in row))
    return made


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return value.hex() if isinstance(value, bytes) else str(value)


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDE)
