"""What the operator does to a gallery: commands in order, each of which may be killed and is then given again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import compatstore as cs
from benchmarks.crashes.truth import LeastSquares
from compatstore.upgrade.progress import Progress

Report = Callable[[Progress], None]
Aim = tuple[int, str]  # number of a command, and one of its steps
DONE = "done"  # announced after the last step of a command
GRACE = 0.5  # seconds in which a search ends

LEASE_TERM = 1.5  # seconds; a suspended victim's lease is taken over after one to two of these
MAX_ROWS = 90  # that the second upgrade may embed: less than its share of the galleries of the long runs


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: What a table of results calls it.
        steps: What it goes through, in order; kills are aimed at each of them.
        run: Does it.
    """

    name: str
    steps: tuple[str, ...]
    run: Callable[[cs.Gallery, Report], object]


def upgrade(share: float, max_rows: int | None = None) -> Callable[[cs.Gallery, Report], object]:
    """Upgrade with a backfill of a share; goes on where a killed one was."""
    return lambda gallery, progress: gallery.upgrade(
        "v2", backfill=cs.Backfill(share=share, max_rows=max_rows, order="sigma"), progress=progress
    )


def improve(share: float) -> Callable[[cs.Gallery, Report], object]:
    """The same, with a transform that is improved by what was embedded."""
    return lambda gallery, progress: gallery.upgrade(
        "v2", backfill=cs.Backfill(share=share, order="sigma"), learn=LeastSquares(), progress=progress
    )


def roll_back(gallery: cs.Gallery, _: Report) -> object:
    """Roll back, unless the process that was killed had."""
    return gallery.rollback("v2") if gallery.active == "v2" else None


def abort(gallery: cs.Gallery, _: Report) -> object:
    """Abort; the same call again finishes one that was killed."""
    return gallery.abort("v2")


def optimize(gallery: cs.Gallery, _: Report) -> object:
    """Do all upkeep; an app's handles stay on a table version for long, so its old ones are kept."""
    adopted = gallery._catalog.registry().adopted
    return gallery.maintenance.optimize(adopted=True, grace=None if adopted else GRACE)


SCRIPT = (
    Command("upgrade, 20 % native", ("expand", "hop", "backfill", "fold"), upgrade(0.2)),
    Command("abort", ("abort",), abort),
    Command("upgrade, 10 % native", ("expand", "hop", "backfill", "fold"), upgrade(0.1, MAX_ROWS)),
    Command("upgrade, 30 % native, improved", ("hop", "backfill", "fold", "learn"), improve(0.3)),
    Command("cutover", ("cutover",), lambda gallery, progress: gallery.cutover("v2", progress=progress)),
    Command("rollback", ("rollback",), roll_back),
    Command("optimize", ("optimize",), optimize),
    Command("upgrade again", ("expand", "hop"), upgrade(0.3)),
    Command("cutover again", ("cutover",), lambda gallery, progress: gallery.cutover("v2", progress=progress)),
    Command("upgrade, 50 % native, improved, while active", ("hop", "backfill", "fold", "learn"), improve(0.5)),
    Command("retire", ("retire",), lambda gallery, _: gallery.retire("v1")),
)
LIMITED = 2  # number of the command whose budget is `MAX_ROWS`
BEFORE_CUTOVER = 3  # number of the last command until whose end all natives come from a backfill
# From here on nobody writes source vectors behind the gallery's back: what the source is needed for ends.
LAST_PLAIN = 8
