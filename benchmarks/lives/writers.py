"""Processes that write, by the API, by a store of another framework, by LanceDB alone; and their memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.lives.actor import Actor
from tests.known.frameworks import FRAMEWORKS, Document, metadata
from tests.known.galleries import PlainTable, documents, next_revision

MOST_ITEMS = 6  # of one write
FEWEST_OWN = 8  # items, below which a writer only adds
PLAIN_ATTEMPTS = 30


@dataclass(frozen=True)
class Write:
    """One write of an app.

    Attributes:
        plain: True if it goes past the API.
        items: Id -> source of items that are added or changed.
        removed: Ids that are removed.
    """

    plain: bool
    items: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


class Memory:
    """The contents that a table must have.

    Args:
        items: Id -> source at the beginning.

    Attributes:
        behind: Ids last written behind the gallery's back; it finds out when it next looks.
        earlier: Id -> sources that the target vector of such an item may still belong to.
    """

    def __init__(self, items: dict[str, str]) -> None:
        self.items = dict(items)
        self.behind: set[str] = set()
        self.earlier: dict[str, set[str]] = {}

    def end(self, write: Write) -> None:
        """After a write was acknowledged."""
        for item in write.removed:
            del self.items[item]
        for item, source in write.items.items():
            if write.plain and item in self.items:
                self.earlier.setdefault(item, set()).add(self.items[item])
            elif not write.plain:
                self.earlier.pop(item, None)
            self.items[item] = source
        self.behind = self.behind | set(write.items) if write.plain else self.behind - set(write.items)


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


class Writer(Actor):
    """Adds, changes, deletes and reads its own items."""

    plain = False

    def step(self) -> None:
        """Write or read some of its items."""
        table = self.draw.choice(self.scene.tables)
        own = self.own[table]
        kind = self.draw.choice(("add", "change", "delete", "read")) if len(own) > FEWEST_OWN else "add"
        chosen = self.draw.sample(sorted(own), self.draw.randint(1, min(MOST_ITEMS, len(own)))) if own else []
        if kind == "read":
            self._compare(table, chosen)
        elif kind == "delete":
            self._write(table, Write(self.plain, removed=tuple(chosen)))
        elif kind == "change":
            self._write(table, Write(self.plain, {item: next_revision(own[item]) for item in chosen}))
        else:
            prefix = type(self).__name__
            names = [f"{prefix}'s-{self.draw.randrange(10**9)}" for _ in range(self.draw.randint(1, MOST_ITEMS))]
            self._write(table, Write(self.plain, {name: f"{name}/0" for name in names}))

    def _write(self, table: str, write: Write) -> None:
        self.journal.say("begin", [table, asdict(write)])
        self.carry_out(table, write)
        self.journal.say("end")
        own = self.own[table]
        own.update(write.items)
        for item in write.removed:
            del own[item]

    def _compare(self, table: str, ids: Sequence[str]) -> None:
        expected = {item: self.expected(item, self.own[table][item]) for item in ids}
        found = self.read(table, ids)
        if ordered(found) != ordered(expected):
            self.journal.say("violation", f"read of {table}: {found}, expected {expected}")

    def carry_out(self, table: str, write: Write) -> None:
        """Write, in one commit."""
        gallery = self.gallery(table)
        if write.removed:
            gallery.delete(list(write.removed))
        else:
            gallery.add(documents(write.items), upsert=True)

    def read(self, table: str, ids: Sequence[str]) -> dict[str, Document]:
        """Documents by id, as far as they are there."""
        kind = self.scene.kind
        rows = self.gallery(table).get(list(ids), [kind.id, kind.source, "label"], missing="skip").to_pylist()
        return {row[kind.id]: (row[kind.source], {"label": row["label"]}) for row in rows}

    def expected(self, item: str, source: str) -> Document:
        """What a document holds."""
        return source, metadata(source, odd=False)


class OtherWriter(Writer):
    """The second of the two."""


class Store(Writer):
    """Works through a store of another framework."""

    def _store(self, table: str) -> Any:
        return FRAMEWORKS[self.scene.framework](table)

    def carry_out(self, table: str, write: Write) -> None:
        """Write by the store, in one commit."""
        if write.removed:
            self._store(table).delete(write.removed)
        else:
            self._store(table).write({item: self.expected(item, source) for item, source in write.items.items()})

    def read(self, table: str, ids: Sequence[str]) -> dict[str, Document]:
        """Documents as the store gives them."""
        return dict(self._store(table).read(ids))

    def expected(self, item: str, source: str) -> Document:
        """An adopted table has no column for odd keys; of a gallery's first items they were not written."""
        of_first_items = item.startswith("it'em") and source.endswith("/0")
        return source, metadata(source, odd=not (self.scene.kind.adopted or of_first_items))


class PlainApp(Writer):
    """Works through LanceDB alone, and knows of no gallery."""

    plain = True

    def step(self) -> None:
        """Write or read some items, or have LanceDB optimize."""
        if self.draw.random() < 0.1:
            handle = PlainTable(self.draw.choice(self.scene.tables), self.scene.kind, fresh=True).handle
            # Lance loses files of its own when it merges indexes, seldom; the comparisons see the rest.
            self.unless(lambda: lost_races(handle.optimize), RuntimeError)
        else:
            super().step()

    def carry_out(self, table: str, write: Write) -> None:
        """Write as an app would, again where Lance refuses it because others wrote."""
        plain, new = PlainTable(table, self.scene.kind, fresh=True), write.items.keys().isdisjoint(self.own[table])
        if write.removed:
            lost_races(lambda: plain.delete(write.removed))
        elif new:
            lost_races(lambda: plain.add(write.items))
        elif len(write.items) == 1:
            lost_races(lambda: plain.update(*next(iter(write.items.items()))))
        else:
            lost_races(lambda: plain.merge(write.items))

    def read(self, table: str, ids: Sequence[str]) -> dict[str, Document]:
        """Each item is the nearest to its own vector."""
        kind, plain = self.scene.kind, PlainTable(table, self.scene.kind, fresh=True)
        rows = [row for item in ids for row in plain.nearest(self.own[table][item], 1)]
        return {row[kind.id]: (row[kind.source], {"label": row["label"]}) for row in rows}


def ordered(found: Mapping[str, Document]) -> str:
    """Documents as a text that is equal where they are; 1, 1.0 and True are three values."""
    return repr(sorted((name, text, sorted(meta.items(), key=repr)) for name, (text, meta) in found.items()))
