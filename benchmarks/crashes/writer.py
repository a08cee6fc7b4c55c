"""The app that writes during an upgrade, through the API and behind its back, and remembers what it wrote."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import lance

import compatstore as cs
from benchmarks.crashes.place import Place
from benchmarks.crashes.script import LAST_PLAIN
from benchmarks.crashes.template import Kind, documents, item_id
from benchmarks.crashes.truth import ENCODERS, SIDE_ENCODERS

PAUSE = 0.12
PLAIN_ATTEMPTS = 30
BUSY = "012"  # last digits of the items that are changed and removed
FEWEST_BUSY = 16  # with fewer of them the app only adds, however long a life lasts


@dataclass(frozen=True)
class Write:
    """One write of the app's.

    Attributes:
        position: Command of the operator's that was being run.
        plain: Whether it went past the API.
        items: Id -> source of items that are added or changed.
        removed: Ids that are removed.
    """

    position: int
    plain: bool
    items: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


class Memory:
    """What the gallery must hold.

    Args:
        items: Id -> source at the beginning.

    Attributes:
        lock: Held during a write; who holds it sees the gallery between two writes.
        behind: Ids last written behind the gallery's back; it finds out when it next looks.
        earlier: Id -> sources that the target vector of such an item may still belong to.
        going: Ids whose removal has begun.
        gone: Ids whose removal was confirmed; ids are not used again.
        writes: All that was written, in order.
    """

    def __init__(self, items: dict[str, str]) -> None:
        self.lock = threading.Lock()
        self.items = dict(items)
        self.behind: set[str] = set()
        self.earlier: dict[str, set[str]] = {}
        self.going: set[str] = set()
        self.gone: set[str] = set()
        self.writes: list[Write] = []

    def begin(self, write: Write) -> None:
        """Before a write: from here on its items may be there or not."""
        self.going |= set(write.removed)

    def end(self, write: Write) -> None:
        """After a write was confirmed."""
        self.writes.append(write)
        for item in write.removed:
            del self.items[item]
        self.gone |= set(write.removed)
        for item, source in write.items.items():
            if write.plain and item in self.items:
                self.earlier.setdefault(item, set()).add(self.items[item])
            elif not write.plain:
                self.earlier.pop(item, None)
            self.items[item] = source
        self.behind = self.behind | set(write.items) if write.plain else self.behind - set(write.items)

    @property
    def touched(self) -> set[str]:
        """Ids that were added, changed or removed."""
        return {item for write in self.writes for item in (*write.items, *write.removed)}


def lost_races(write: Callable[[], object]) -> int:
    """Do a plain write, again as often as Lance refuses it because others wrote; the number of refusals."""
    for attempt in range(PLAIN_ATTEMPTS):
        try:
            write()
            return attempt
        except (OSError, RuntimeError, ValueError) as error:
            if "onflict" not in str(error) and "concurrent" not in str(error):
                raise
            time.sleep(0.01 * attempt)
    raise RuntimeError(f"a plain write lost {PLAIN_ATTEMPTS} races in a row")


class Hand:
    """Carries writes out.

    Args:
        path: The table.
        kind: Own or adopted; the plain way is pylance for the one and LanceDB for the other.
    """

    def __init__(self, path: Place, kind: Kind) -> None:
        self._path, self._kind = path, kind
        self._gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
        import lancedb

        # LanceDB's handles stay on a version by themselves: a delete would not see what the API has added since.
        database = lancedb.connect(str(path.parent), read_consistency_interval=timedelta(0)) if kind.adopted else None
        self._table = None if database is None else database.open_table(path.stem)
        self.lost_races = 0

    def carry_out(self, write: Write) -> None:
        """Do it; a plain write that loses a race is tried again, as such an app would."""
        if not write.plain:
            self._by_the_api(write)
            return
        self.lost_races += lost_races(lambda: self._behind_its_back(write))

    def _by_the_api(self, write: Write) -> None:
        if write.removed:
            self._gallery.delete(list(write.removed))
        else:
            self._gallery.add(documents(write.items), upsert=True)

    def _behind_its_back(self, write: Write) -> None:
        table = self._table if self._table is not None else lance.dataset(str(self._path))
        if write.removed:
            names = ", ".join("'" + item.replace("'", "''") + "'" for item in write.removed)
            table.delete(f"{self._kind.id} IN ({names})")
        else:
            merge = table.merge_insert(self._kind.id).when_matched_update_all().when_not_matched_insert_all()
            merge.execute(self._kind.rows(write.items))


class Writer(threading.Thread):
    """Writes until it is told to stop; a failure ends it and is a violation.

    Args:
        memory: What the gallery must hold.
        hand: Carries writes out.
        first: Number of the first new item.
        seed: Of what is written.
    """

    def __init__(self, memory: Memory, hand: Hand, first: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.position = 0
        self.failure = ""
        self._memory, self._hand, self._next = memory, hand, first
        self._random = random.Random(seed)
        self._halt = threading.Event()

    def run(self) -> None:
        """Write, pause, write."""
        write: Any = None
        try:
            while not self._halt.wait(self._random.uniform(0, PAUSE)):
                with self._memory.lock:
                    write = self.choose()
                    self._memory.begin(write)
                    self._hand.carry_out(write)
                    self._memory.end(write)
        except Exception:
            self.failure = f"the app's {write} failed:\n{traceback.format_exc()}"

    def stop(self) -> None:
        """Finish the write at hand and end."""
        self._halt.set()
        self.join()

    def choose(self) -> Write:
        """What is written next."""
        plain = self.position <= LAST_PLAIN and self._random.random() < 0.5
        make: Callable[[], dict[str, Any]] = self._random.choice((self._added, self._changed, self._removed))
        if len(self._busy()) < FEWEST_BUSY:
            make = self._added
        return Write(self.position, plain, **make())

    def _added(self) -> dict[str, Any]:
        count = self._random.randint(1, 8)
        self._next += count
        numbers = range(self._next - count, self._next)
        return {"items": {item_id(number): f"{item_id(number)}/0" for number in numbers}}

    def _changed(self) -> dict[str, Any]:
        chosen = self._random.sample(self._busy(), self._random.randint(1, 8))
        return {"items": {item: next_revision(self._memory.items[item]) for item in chosen}}

    def _removed(self) -> dict[str, Any]:
        return {"removed": tuple(self._random.sample(self._busy(), self._random.randint(1, 5)))}

    def _busy(self) -> list[str]:
        """Items that are changed and removed; the others are left alone, so that two lives can be compared by them."""
        return [item for item in self._memory.items if item[-1] in BUSY]


def next_revision(source: str) -> str:
    """The source of an item after one more change."""
    name, _, revision = source.rpartition("/")
    return f"{name}/{int(revision) + 1}"
