"""An app that uses its table through plain LanceDB, and the upgrade of that table from another process beside it."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import compatstore as cs
from tests.known.checks import Expected, State, violations
from tests.known.galleries import ADOPTED, PlainTable, initial_items, item_id, make_template, next_revision
from tests.known.vectors import ENCODERS, SIDE_ENCODERS

FRAGMENTS, SHARE = 10, 0.2
MIX = {"search": 16, "add": 1, "merge": 1, "update": 1, "delete": 1}  # operations of an app, mostly searches


@dataclass(frozen=True)
class Operation:
    """One operation of the app.

    Attributes:
        name: search, add, merge, update, delete.
        began: On the monotonic clock.
        seconds: Duration.
        error: The error, or "".
    """

    name: str
    began: float
    seconds: float
    error: str


@dataclass
class PlainApp:
    """An app that does not know compatstore, and remembers the contents that its table must have.

    Args:
        path: The table.
        items: Id -> source.
        rate: Operations per second.
        seed: Of its choices.

    Attributes:
        operations: All operations so far.
        written: Id -> when the last write to it began.
        gone: Ids that it deleted.
    """

    path: Path
    items: dict[str, str]
    rate: float
    seed: int = 0
    operations: list[Operation] = field(default_factory=list)
    written: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._table = PlainTable(self.path, ADOPTED)
        self._next = FRAGMENTS * len(self.items)

    def work(self, is_over: Callable[[], bool]) -> None:
        """Operate at the rate, one after the other, until it is over."""
        due = time.monotonic()
        while not is_over():
            name = self._random.choices(list(MIX), list(MIX.values()))[0]
            began, error = time.monotonic(), ""
            try:
                getattr(self, f"_{name}")()
            except Exception as failure:
                error = f"{name}: {failure}"
            self.operations.append(Operation(name, began, time.monotonic() - began, error))
            # A late operation is made up for, but not a whole slow second in one burst.
            now = time.monotonic()
            due = max(due + 1 / self.rate, now - 1)
            time.sleep(max(due - now, 0))

    def _search(self) -> None:
        item = self._pick()
        found = self._table.nearest(self.items[item], 5)
        if (found[0][ADOPTED.id], found[0]["_distance"]) != (item, 0.0):
            raise LookupError(f"{item} is not the nearest to its own vector, but {found[0]}")
        if self.gone & {row[ADOPTED.id] for row in found}:
            raise LookupError("a deleted item was found")

    def _add(self) -> None:
        new = self._new(3)
        self._table.add(new)
        self._remember(new)

    def _merge(self) -> None:
        item = self._pick()
        changed = {item: next_revision(self.items[item]), **self._new(1)}
        self._table.merge(changed)
        self._remember(changed)

    def _update(self) -> None:
        item = self._pick()
        source = next_revision(self.items[item])
        self._table.update(item, source)
        self._remember({item: source})

    def _delete(self) -> None:
        item = self._pick()
        self._table.delete([item])
        del self.items[item]
        self.gone.add(item)

    def _pick(self) -> str:
        return self._random.choice(list(self.items))

    def _new(self, count: int) -> dict[str, str]:
        self._next += count
        return {item_id(number): f"{item_id(number)}/0" for number in range(self._next - count, self._next)}

    def _remember(self, items: dict[str, str]) -> None:
        self.items |= items
        self.written |= dict.fromkeys(items, time.monotonic())


def operate(path: str, rate: float, tell: Connection) -> None:
    """The whole upgrade, in a process of its own; sends when the cutover begins and when it is done."""
    gallery = cs.Gallery.open(path, encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
    gallery.upgrade(
        "v2", backfill=cs.Backfill(share=SHARE, order="sigma"), run=cs.RunSettings(throttle=rate, batch_rows=16)
    )
    tell.send(time.monotonic())
    gallery.cutover("v2")
    tell.send(time.monotonic())


@dataclass(frozen=True)
class Measured:
    """Outcome of one run.

    Attributes:
        app: The app, with all its operations.
        began: When the upgrade began.
        ended: When the cutover was done.
        violations: Of the table right after the cutover, and at the end.
    """

    app: PlainApp
    began: float
    ended: float
    violations: list[str]

    def phases(self) -> dict[str, list[Operation]]:
        """The app's operations before, during and after the upgrade."""
        bounds = {"before": (0.0, self.began), "during": (self.began, self.ended), "after": (self.ended, float("inf"))}
        return {
            phase: [operation for operation in self.app.operations if low <= operation.began < high]
            for phase, (low, high) in bounds.items()
        }


def measure(folder: Path, *, rows: int, rate: float, seconds: float, upgrade: bool = True) -> Measured:
    """Let the app work, and in its second third upgrade the table, or do not.

    Args:
        folder: An empty folder.
        rows: Of the table at the beginning.
        rate: Operations per second.
        seconds: Of the app's work, about.
        upgrade: False leaves the app alone.
    """
    path, third = make_template(folder, ADOPTED, FRAGMENTS, rows // FRAGMENTS), seconds / 3
    app = PlainApp(path, initial_items(FRAGMENTS, rows // FRAGMENTS), rate)
    app.work(_after(third))
    began, found = time.monotonic(), list[str]()
    if upgrade:
        cutover, ended = _work_beside_the_operator(app, path, SHARE * rows / third)
        found = _stale_after_cutover(app, path, cutover)
    else:
        app.work(_after(third))
        ended = time.monotonic()
    app.work(_after(third))
    return Measured(app, began, ended, found + (_wrong_at_the_end(app, path) if upgrade else []))


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _work_beside_the_operator(app: PlainApp, path: Path, rate: float) -> tuple[float, float]:
    """Work until the operator's process has ended; when its cutover began, and when it was done."""
    spawn = multiprocessing.get_context("spawn")
    listen, tell = spawn.Pipe(duplex=False)
    operator = spawn.Process(target=operate, args=(str(path), rate, tell))
    operator.start()
    app.work(lambda: not operator.is_alive())
    operator.join()
    if operator.exitcode:
        raise RuntimeError("the upgrade failed")
    return listen.recv(), listen.recv()


def _stale_after_cutover(app: PlainApp, path: Path, cutover: float) -> list[str]:
    """Items last written before the cutover began must be current in the target; later ones are caught up with next."""
    late = {item for item, when in app.written.items() if when >= cutover}
    state = State.read(path)
    keep = [item not in late for item in state.table[ADOPTED.id].to_pylist()]
    items = {item: source for item, source in app.items.items() if item not in late}
    found = violations(replace(state, table=state.table.filter(keep)), Expected(items), ADOPTED)
    return [f"after the cutover: {violation}" for violation in found if not violation.startswith("status counts")]


def _wrong_at_the_end(app: PlainApp, path: Path) -> list[str]:
    """One more catch-up, and every item is found in the target by its present vector, and no deleted one."""
    gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
    gallery.cutover("v2")
    found = [f"at the end: {violation}" for violation in violations(State.read(path), Expected(app.items), ADOPTED)]
    changed = [item for item in app.written if item in app.items]
    for item, vector in zip(changed, gallery.vectors(changed, "v2"), strict=True):
        nearest = gallery.search(vector, k=5, version="v2")[ADOPTED.id].to_pylist()
        if nearest[0] != item or app.gone & set(nearest):
            found.append(f"{item} is found as {nearest}")
    return found
