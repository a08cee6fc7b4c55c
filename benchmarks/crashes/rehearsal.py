"""What lives begin with: a gallery to copy, and how long each step of the script takes in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.crashes.place import Place, copy_folder, make_folder, remove_folder
from benchmarks.crashes.process import Victim
from benchmarks.crashes.script import DONE, Aim
from benchmarks.crashes.template import Kind, initial_items, make_template


@dataclass(frozen=True)
class Template:
    """Where a kind's gallery lies as it is before a life begins, and how long each step takes when nobody disturbs it.

    Attributes:
        kind: Own or adopted.
        path: The table.
        fragments: Its fragments.
        rows: Rows of each, before some were deleted.
        seconds: Aim -> duration of that step.
    """

    kind: Kind
    path: Place
    fragments: int
    rows: int
    seconds: Mapping[Aim, float]

    @property
    def items(self) -> dict[str, str]:
        """Id -> source."""
        return initial_items(self.fragments, self.rows)

    def copy(self, folder: Place) -> Place:
        """A gallery to live in."""
        copy_folder(self.path.parent, folder)
        return folder / self.path.name


def prepare(folder: Place, kind: Kind, fragments: int, rows: int) -> Template:
    """Make the gallery that lives of a kind begin with, and time the script on a copy of it."""
    home = kind.name.replace(", ", "-")  # which may be a bucket's name
    make_folder(folder / home)
    path = make_template(folder / home, kind, fragments, rows)
    untimed = Template(kind, path, fragments, rows, {})
    seconds = rehearse(untimed.copy(folder / f"{home}-rehearsal"))
    remove_folder(folder / f"{home}-rehearsal")
    return Template(kind, path, fragments, rows, seconds)


def rehearse(path: Place) -> dict[Aim, float]:
    """How long each step takes: run the whole script once, undisturbed."""
    seconds: dict[Aim, float] = {}
    victim = Victim()
    before: Aim | None = None
    started = time.monotonic()
    victim.start(path, 0)
    for announced in victim.announced():
        if before is not None:
            seconds[before] = time.monotonic() - started
        before, started = announced, time.monotonic()
        if announced[1] == DONE:
            victim.go_on()
    failure = victim.failure()
    if failure:
        raise RuntimeError(failure)
    return seconds
