"""Follow upgrades until nobody works on them: what each look prints, when to end, and with which exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compatstore.cli import views
from compatstore.cli.exit_codes import STOPPED, exit_code
from compatstore.cli.output import Output, console, fitted
from compatstore.errors import UpgradeError

if TYPE_CHECKING:
    from compatstore.upgrade.status import Status

_CODES = {
    "failed": exit_code(UpgradeError("upgrade")),
    "interrupted": exit_code(UpgradeError("upgrade")),
    "paused": STOPPED + signal.SIGINT,
}


def is_running(status: Status) -> bool:
    """Whether anybody works on an upgrade."""
    return any(run.activity.doing == "running" for run in status.upgrades)


def code_of(status: Status) -> int:
    """The exit code that says why nobody works: that of the first upgrade that did not end well, or 0."""
    return next((_CODES[run.activity.doing] for run in status.upgrades if run.activity.doing in _CODES), 0)


@contextmanager
def following(output: Output) -> Iterator[Callable[[Status], None]]:
    """Give a function that shows a look: in place on a terminal, else one below the other, or a line of JSON each."""
    if output.as_json:
        yield output.show_line
    elif sys.stdout.isatty():
        from rich.console import Group
        from rich.live import Live

        drawn = console()

        def draw(status: Status) -> None:
            live.update(
                Group(*(fitted(output.addressed(part), drawn.width) for part in views.status(status))), refresh=True
            )

        with Live(console=drawn, auto_refresh=False) as live:
            yield draw
    else:
        yield lambda status: output.show(status, views.status)
