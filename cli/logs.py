"""Structured logs: with `--log json` each line that a verb writes to stderr is one JSON object."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import click

LogLevel = Literal["info", "warning", "error"]
TEXT, JSON = "text", "json"
FLAG = "--log"


def is_requested(words: Sequence[str]) -> bool:
    """True if a command line requests JSON, even if the rest of it is invalid."""
    return any(word == f"{FLAG}={JSON}" or (word, value) == (FLAG, JSON) for word, value in pairwise([*words, ""]))


def log_option() -> click.Option:
    """`--log`; it takes effect in App.parse_args, so errors of parsing have this format too."""
    return click.Option(
        [FLAG],
        type=click.Choice((TEXT, JSON)),
        default=TEXT,
        show_default=True,
        expose_value=False,
        help="Format of stderr: plain lines, or one JSON object a line.",
    )


class Log:
    """Writes events on stderr, each at once and in one line; Lance's own lines are left out, unless LANCE_LOG is set.

    Attributes:
        context: Fields that all events have: the verb, the gallery and the target, once they are known.
    """

    def __init__(self) -> None:
        self.context: dict[str, str] = {}
        self._began = time.monotonic()
        self._result: object = None
        os.environ.setdefault("LANCE_LOG", "lance=off")  # read when Lance is loaded; it writes past Python

    def line(self, event: str, fields: Mapping[str, object], level: LogLevel = "info") -> str:
        """One event as a line without its end."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        known = {name: value for name, value in fields.items() if value is not None}
        return json.dumps({"time": at, "level": level, "event": event, **self.context, **known}, default=str)

    def write(self, event: str, fields: Mapping[str, object], level: LogLevel = "info") -> None:
        """Write one event; a missing reader does not end the work."""
        with suppress(OSError):
            click.echo(self.line(event, fields, level), err=True)

    def begin(self, verb: str, parameters: Mapping[str, object]) -> None:
        """Record the command, and log its start."""
        named = {name: parameters.get(name) for name in ("gallery", "target")}
        self.context = {"verb": verb, **{name: value for name, value in named.items() if isinstance(value, str)}}
        self.write("started", {})

    def keep(self, result: object) -> None:
        """Record the result, in JSON's values; the last event holds it without its lists."""
        self._result = result

    def end(self, code: int) -> None:
        """Write the end of the verb."""
        fields = {"exit_code": code, "seconds": round(time.monotonic() - self._began, 3), "result": brief(self._result)}
        self.write("ended", fields, "error" if code else "info")

    @contextmanager
    def until_end(self) -> Iterator[None]:
        """Write how the block ends, and make events of what libraries log or print meanwhile."""
        handler, root = _Handler(self), logging.getLogger()
        root.addHandler(handler)
        code = 1
        try:
            yield
            code = 0
        except click.exceptions.Exit as error:
            code = error.exit_code
            raise
        except Exception as error:
            fields = {"error": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            self.write("failed", fields, "error")
            raise click.exceptions.Exit(code) from error
        finally:
            root.removeHandler(handler)
            self.end(code)


def brief(value: object) -> object:
    """A result in JSON's values without its lists, which may be as long as the gallery."""
    if isinstance(value, list):
        return {"rows": len(value)}
    if isinstance(value, Mapping):
        return {name: brief(item) for name, item in value.items() if not isinstance(item, list)}
    return value


class _Handler(logging.Handler):
    """Makes events of what libraries log from warnings up, as would be written on stderr without it."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        level: LogLevel = "error" if record.levelno >= logging.ERROR else "warning"
        self._log.write("logged", {"logger": record.name, "message": record.getMessage()}, level)


class _Printed(io.TextIOBase):
    """Output that a library prints, each line as an event."""

    def __init__(self, log: Log) -> None:
        self._log, self._rest = log, ""

    def write(self, text: str) -> int:
        """Take text; whole lines become events."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(None, lines):
            self._log.write("printed", {"message": line})
        return len(text)

    def close(self) -> None:
        """Write the rest that has no end of line."""
        if self._rest:
            self.write("\n")
        super().close()


@contextmanager
def printed_aside(log: Log | None) -> Iterator[None]:
    """Keep what libraries print in this block from stdout, which is for the result: it goes to stderr."""
    if log is None:
        with redirect_stdout(sys.stderr):
            yield
        return
    with _Printed(log) as stream, redirect_stdout(stream):
        yield
