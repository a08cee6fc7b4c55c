"""An app that uses its table through plain LanceDB, while that table is upgraded from another process.

    python -m benchmarks.plain_app [--seconds 60] [--rows 5000] [--rate 50]

The app searches, adds, merges, updates and deletes at a steady rate, with one handle for good. After a third of the
time another process runs expand, hop, backfill and cutover. Prints operations, errors and latencies before, during and
after, beside the same app left alone; the exit code is 1 when anything was lost, stale or in error.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

# Before NumPy and Lance are loaded, here and in the operator's process.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANCE_LOG": "error"}

import numpy as np

import compatstore as cs
from benchmarks.crashes.checks import Expected, State, violations
from benchmarks.crashes.template import ADOPTED, initial_items, item_id, make_template
from benchmarks.crashes.truth import ENCODERS, SIDE_ENCODERS, Model, label, source_vector

FRAGMENTS = 10
SHARE = 0.2
# What an app does most: mostly searches, and every way of writing.
MIX = {"search": 16, "add": 1, "merge": 1, "update": 1, "delete": 1}


@dataclass(frozen=True)
class Operation:
    """One operation of the app's.

    Attributes:
        name: search, add, merge, update, delete.
        began: When, on the monotonic clock.
        seconds: How long it took.
        error: What went wrong, or "".
    """

    name: str
    began: float
    seconds: float
    error: str


@dataclass
class PlainApp:
    """An app that knows nothing of compatstore, and remembers what its table must hold.

    Args:
        path: The table.
        items: Id -> source.
        rate: Operations per second.
        seed: Of what it does.

    Attributes:
        operations: All that it did.
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
        import lancedb

        self._random = random.Random(self.seed)
        self._table = lancedb.connect(self.path.parent).open_table(self.path.stem)
        self._next = FRAGMENTS * len(self.items)

    def work(self, is_over: Callable[[], bool]) -> None:
        """Operate at the rate, one after the other, until it is over."""
        due = time.monotonic()
        while not is_over():
            name = self._random.choices(list(MIX), list(MIX.values()))[0]
            began = time.monotonic()
            try:
                getattr(self, f"_{name}")()
                error = ""
            except Exception as failure:
                error = f"{name}: {failure}"
            self.operations.append(Operation(name, began, time.monotonic() - began, error))
            # What came too late is made up for, but not a whole slow second in one burst.
            now = time.monotonic()
            due = max(due + 1 / self.rate, now - 1)
            time.sleep(max(due - now, 0))

    def _search(self) -> None:
        item = self._pick()
        query = source_vector(self.items[item])
        found = self._table.search(query).limit(5).select([ADOPTED.id, "_distance"]).to_list()
        if (found[0][ADOPTED.id], found[0]["_distance"]) != (item, 0.0):
            raise LookupError(f"{item} is not the nearest to its own vector, but {found[0]}")
        if self.gone & {row[ADOPTED.id] for row in found}:
            raise LookupError("a deleted item was found")

    def _add(self) -> None:
        numbers = range(self._next, self._next + 3)
        self._next += 3
        new = {item_id(number): f"{item_id(number)}/0" for number in numbers}
        self._table.add(ADOPTED.rows(new))
        self._remember(new)

    def _merge(self) -> None:
        item, number = self._pick(), self._next
        self._next += 1
        changed = {item: self._revised(item), item_id(number): f"{item_id(number)}/0"}
        merge = self._table.merge_insert(ADOPTED.id).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(ADOPTED.rows(changed))
        self._remember(changed)

    def _update(self) -> None:
        item = self._pick()
        source = self._revised(item)
        values = {ADOPTED.source: source, ADOPTED.vector: source_vector(source).tolist(), "label": label(source)}
        self._table.update(where=_is(item), values=values)
        self._remember({item: source})

    def _delete(self) -> None:
        item = self._pick()
        self._table.delete(_is(item))
        del self.items[item]
        self.gone.add(item)

    def _pick(self) -> str:
        return self._random.choice(list(self.items))

    def _revised(self, item: str) -> str:
        name, _, revision = self.items[item].rpartition("/")
        return f"{name}/{int(revision) + 1}"

    def _remember(self, items: dict[str, str]) -> None:
        self.items |= items
        self.written |= dict.fromkeys(items, time.monotonic())


def _is(item: str) -> str:
    return f"{ADOPTED.id} = '" + item.replace("'", "''") + "'"


class PacedModel(Model):
    """The target's encoder, as slow as is asked for.

    Args:
        seconds_per_item: How slow.
    """

    def __init__(self, seconds_per_item: float) -> None:
        super().__init__("v2")
        self._seconds_per_item = seconds_per_item

    def encode(self, sources: list[str]) -> np.ndarray:  # type: ignore[override]
        """Embed: n texts -> (n, dim) float32."""
        time.sleep(self._seconds_per_item * len(sources))
        return super().encode(sources)


def operate(path: str, seconds_per_item: float, tell: Connection) -> None:
    """The whole upgrade, run by a process of its own; tells when the cutover begins and when it is done."""
    encoders = {**ENCODERS, "v2": PacedModel(seconds_per_item)}
    gallery = cs.Gallery.open(path, encoders=encoders, side_encoders=SIDE_ENCODERS)
    gallery.upgrade("v2", backfill=cs.Backfill(share=SHARE, order="sigma"))
    tell.send(time.monotonic())
    gallery.cutover("v2")
    tell.send(time.monotonic())


@dataclass(frozen=True)
class Run:
    """What came of one run.

    Attributes:
        app: The app, with all its operations.
        began: When the upgrade began.
        cutover: When the cutover began.
        ended: When it was done.
        violations: What was wrong in the table right after the cutover, and at the end.
    """

    app: PlainApp
    began: float
    cutover: float
    ended: float
    violations: list[str]

    def phases(self) -> dict[str, list[Operation]]:
        """The app's operations before, during and after the upgrade."""
        bounds = {"before": (0.0, self.began), "during": (self.began, self.ended), "after": (self.ended, float("inf"))}
        return {
            phase: [operation for operation in self.app.operations if low <= operation.began < high]
            for phase, (low, high) in bounds.items()
        }


def run(folder: Path, *, rows: int, rate: float, seconds: float, upgrade: bool = True) -> Run:
    """Let the app work, and in its second third upgrade the table, or do not.

    Args:
        folder: An empty folder.
        rows: Of the table at the beginning.
        rate: Operations per second.
        seconds: Of the app's work, about.
        upgrade: False leaves the app alone.
    """
    path = make_template(folder, ADOPTED, FRAGMENTS, rows // FRAGMENTS)
    app = PlainApp(path, initial_items(FRAGMENTS, rows // FRAGMENTS), rate)
    third = seconds / 3
    app.work(_after(third))
    began = time.monotonic()
    if not upgrade:
        app.work(_after(third))
        ended = time.monotonic()
        app.work(_after(third))
        return Run(app, began, ended, ended, [])
    cutover, ended = _work_beside_the_operator(app, path, third / (SHARE * rows))
    found = _stale_after_cutover(app, path, cutover)
    app.work(_after(third))
    return Run(app, began, cutover, ended, found + _wrong_at_the_end(app, path))


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _work_beside_the_operator(app: PlainApp, path: Path, seconds_per_item: float) -> tuple[float, float]:
    """Work until the operator's process has ended; when its cutover began, and when it was done."""
    spawn = multiprocessing.get_context("spawn")
    listen, tell = spawn.Pipe(duplex=False)
    operator = spawn.Process(target=operate, args=(str(path), seconds_per_item, tell))
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
    settled = replace(state, table=state.table.filter(keep))
    items = {item: source for item, source in app.items.items() if item not in late}
    found = violations(settled, Expected(items), ADOPTED)
    return [f"after the cutover: {violation}" for violation in found if not violation.startswith("status counts")]


def _wrong_at_the_end(app: PlainApp, path: Path) -> list[str]:
    """One more catch-up, and every item is found in the target by what it is now, and no deleted one."""
    gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
    gallery.cutover("v2")
    found = [f"at the end: {violation}" for violation in violations(State.read(path), Expected(app.items), ADOPTED)]
    changed = [item for item in app.written if item in app.items]
    vectors = gallery.vectors(changed, "v2")
    for item, vector in zip(changed, vectors, strict=True):
        nearest = gallery.search(vector, k=5, version="v2")[ADOPTED.id].to_pylist()
        if nearest[0] != item or app.gone & set(nearest):
            found.append(f"{item} is found as {nearest}")
    return found


def print_run(name: str, measured: Run) -> None:
    """Rows of the table: operations, errors and latencies, by phase."""
    for phase, operations in measured.phases().items():
        for kind in ("search", "write"):
            chosen = [o for o in operations if (o.name == "search") == (kind == "search")]
            errors = sum(bool(o.error) for o in chosen)
            rate = len(operations) / (operations[-1].began - operations[0].began)
            latencies = " | ".join(f"{ms:.1f}" for ms in np.percentile([1e3 * o.seconds for o in chosen], [50, 95, 99]))
            print(f"| {name} | {phase} | {kind} | {len(chosen)} | {rate:.0f} | {errors} | {latencies} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=50)
    arguments = parser.parse_args()
    settings = {"rows": arguments.rows, "rate": arguments.rate, "seconds": arguments.seconds}
    print("| app | phase | operations | number | a second, all | errors | p50 ms | p95 ms | p99 ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    wrong: list[str] = []
    for name, upgrade in (("left alone", False), ("upgraded", True)):
        with tempfile.TemporaryDirectory() as folder:
            measured = run(Path(folder), **settings, upgrade=upgrade)
        print_run(name, measured)
        wrong += [*measured.violations, *(o.error for o in measured.app.operations if o.error)]
    print(f"\n{len(wrong)} errors, stale or lost items", *wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
