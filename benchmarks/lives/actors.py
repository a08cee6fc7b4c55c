"""The processes of a life: each does a number of random operations, and records the result.

A journal is a file of JSON lines. A write is written down before it begins and after it was acknowledged, so the
journal of a killed process tells which write may be there or not.
"""

from __future__ import annotations

import json
import os
import random
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np

import compatstore as cs
from benchmarks.crashes.script import LEASE_TERM
from benchmarks.crashes.template import PARTITIONS, Kind, documents
from benchmarks.crashes.truth import ENCODERS, LABELS, LeastSquares, label, source_vector, target_vector
from benchmarks.crashes.writer import Write, lost_races, next_revision
from benchmarks.lives.frameworks import FRAMEWORKS, Document, metadata
from compatstore.errors import CompatStoreError, Incompatible, InvalidInput, NotFound, UpgradeError
from compatstore.trainers.pairs.learn import CLOSED_FORMS

PAUSE = 0.15  # seconds between two operations, at most
MOST_ITEMS = 6  # of one write
FEWEST_OWN = 8  # items, below which a writer only adds
K = 5
GRACE = 4.0  # seconds for which a janitor leaves old files: longer than any suspension
LONGEST_SUSPENSION = 2.5
CLOSING_SECONDS = 60.0
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

Items = dict[str, str]  # id -> source


@dataclass(frozen=True)
class Scene:
    """Where a life takes place.

    Attributes:
        tables: Paths of the tables: one, or the shards of a database.
        kind: Of the tables.
        framework: Name of the framework whose store writes as well.
        linked: Whether there is an artifact; an upgrade trains its own otherwise.
        ending: What the closer does: "retire", "cutover" or "abort".
    """

    tables: tuple[str, ...]
    kind: Kind
    framework: str
    linked: bool
    ending: str

    @property
    def pattern(self) -> str:
        """The address of all shards."""
        return f"{Path(self.tables[0]).parent}#*"


class Journal:
    """What a process says, a line each; a line that was written survives the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, what: str, detail: Any = None) -> None:
        """Write a line."""
        os.write(self._file, (json.dumps([what, detail]) + "\n").encode())


class Actor(ABC):
    """One process.

    Args:
        scene: Where it works.
        journal: What it says.
        draw: Its choices.
        own: Table -> its items.
    """

    def __init__(self, scene: Scene, journal: Journal, draw: random.Random, own: Mapping[str, Items]) -> None:
        self.scene, self.journal, self.draw, self.own = scene, journal, draw, own

    def gallery(self, table: str) -> cs.Gallery:
        """Open a table as a gallery."""
        return cs.Gallery.open(table, encoders=ENCODERS, lease_term=LEASE_TERM)

    @abstractmethod
    def step(self) -> None:
        """Do one operation."""

    def unless(self, call: Callable[[], object], *expected: type[Exception]) -> bool:
        """Do something that may be refused; whether it was done."""
        try:
            call()
        except expected as error:
            self.journal.say("refused", type(error).__name__)
            return False
        return True


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
            self._write(table, Write(0, self.plain, removed=tuple(chosen)))
        elif kind == "change":
            self._write(table, Write(0, self.plain, {item: next_revision(own[item]) for item in chosen}))
        else:
            prefix = type(self).__name__
            names = [f"{prefix}'s-{self.draw.randrange(10**9)}" for _ in range(self.draw.randint(1, MOST_ITEMS))]
            self._write(table, Write(0, self.plain, {name: f"{name}/0" for name in names}))

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

    def _table(self, table: str) -> Any:
        import lancedb

        path = Path(table)
        return lancedb.connect(str(path.parent), read_consistency_interval=timedelta(0)).open_table(path.stem)

    def step(self) -> None:
        """Write or read some items, or have LanceDB optimize."""
        if self.draw.random() < 0.1:
            table = self._table(self.draw.choice(self.scene.tables))
            # Lance loses files of its own when it merges indexes, seldom; what it leaves is looked at.
            self.unless(lambda: lost_races(table.optimize), RuntimeError)
        else:
            super().step()

    def carry_out(self, table: str, write: Write) -> None:
        """Write as an app would, again where Lance refuses it because others wrote."""
        handle, kind = self._table(table), self.scene.kind
        if write.removed:
            lost_races(lambda: handle.delete(f"{kind.id} IN ({_quoted(write.removed)})"))
        elif len(write.items) == 1 and not write.items.keys().isdisjoint(self.own[table]):
            (item,), (source,) = write.items, write.items.values()
            values = {kind.source: source, kind.vector: source_vector(source).tolist(), "label": label(source)}
            lost_races(lambda: handle.update(f"{kind.id} = {_quoted([item])}", values))
        elif write.items.keys().isdisjoint(self.own[table]):
            lost_races(lambda: handle.add(kind.rows(write.items)))
        else:
            merge = handle.merge_insert(kind.id).when_matched_update_all().when_not_matched_insert_all()
            lost_races(lambda: merge.execute(kind.rows(write.items)))

    def read(self, table: str, ids: Sequence[str]) -> dict[str, Document]:
        """Each item is the nearest to its own vector, by a search that names no column."""
        kind, handle = self.scene.kind, self._table(table)
        rows = []
        for item in ids:
            query = source_vector(self.own[table][item])
            search = handle.search(query).nprobes(PARTITIONS).select([kind.id, kind.source, "label", "_distance"])
            rows += search.limit(1).to_list()
        return {row[kind.id]: (row[kind.source], {"label": row["label"]}) for row in rows}


class Reader(Actor):
    """Searches; where the table stood still meanwhile, the result is compared with an exact search of it."""

    def step(self) -> None:
        """Search."""
        path, kind = self.draw.choice(self.scene.tables), self.scene.kind
        gallery, before = self.gallery(path), lance.dataset(path).version
        version = self.draw.choice((None, None, "v1", "v2"))
        wanted = f"label {self.draw.randrange(LABELS)}" if self.draw.random() < 0.3 else None
        source = f"query/{self.draw.randrange(10**6)}"
        # Where no version is named an upgrade may have chosen another way to serve, which has other distances.
        alone = version or (gallery.active if self.draw.random() < 2 / 3 else None)
        found: list[dict[str, Any]] = []

        def search() -> None:
            where = None if wanted is None else f"label = '{wanted}'"
            settings = cs.SearchSettings(nprobes=64)
            found.extend(gallery.search(source, K, alone, where, settings=settings).to_pylist())

        # A version that is not served yet, or not any more, is refused where it is named.
        refusals = () if version is None else (NotFound, UpgradeError, Incompatible)
        if not self.unless(search, *refusals):
            return
        distances = [row["_distance"] for row in found]
        if distances != sorted(distances) or len({row[kind.id] for row in found}) < len(found):
            self.journal.say("violation", f"a search for {source} in {version} gave {found}")
        served = {row["_version"] for row in found}
        dataset = lance.dataset(path)
        if dataset.version != before:
            self.journal.say("searched", "beside a write")
        elif alone is not None:
            self._compare(dataset, source, served.pop() if served else alone, wanted, found)
        else:
            self.journal.say("searched", "as an upgrade chose")

    def _compare(
        self, dataset: Any, source: str, version: str, wanted: str | None, found: Sequence[Mapping[str, Any]]
    ) -> None:
        kind = self.scene.kind
        column, query = {"v1": (kind.vector, source_vector(source)), "v2": ("v2", target_vector(source))}[version]
        table = dataset.to_table([kind.id, column, "label"], filter=None if wanted is None else f"label = '{wanted}'")
        vectors = {row[kind.id]: row[column] for row in table.to_pylist() if row[column] is not None}
        matrix = np.array(list(vectors.values()), np.float32).reshape(-1, query.size)
        distances = dict(zip(vectors, ((matrix - query) ** 2).sum(axis=1), strict=True))
        nearest = sorted(distances.values())[:K]
        named = [distances.get(row[kind.id], np.nan) for row in found]
        returned = [row["_distance"] for row in found]
        if len(found) != len(nearest) or not np.allclose([returned, named], [nearest, nearest], **CLOSE):
            what = f"gave {returned}, which are {named}, and the nearest are {nearest}"
            self.journal.say("violation", f"a search for {source} in {version} of version {dataset.version} {what}")
        self.journal.say("searched", "compared")


class Janitor(Actor):
    """Optimizes, indexes and verifies."""

    def step(self) -> None:
        """Look after one table."""
        gallery = self.gallery(self.draw.choice(self.scene.tables))
        kind, index = self.scene.kind, gallery.maintenance.index("v1")
        grace = None if kind.adopted else GRACE
        verbs: list[Callable[[], object]] = [
            lambda: gallery.maintenance.optimize(adopted=self.draw.random() < 0.5, grace=grace),
            *([lambda: index.create(kind="IVF_FLAT", num_partitions=PARTITIONS), index.refresh] * kind.indexed),
            lambda: self._verify(gallery),
            gallery.status,
        ]
        # An index needs 256 vectors, and there may be fewer by now.
        self.unless(self.draw.choice(verbs), NotFound, UpgradeError, InvalidInput)

    def _verify(self, gallery: cs.Gallery) -> None:
        findings = gallery.maintenance.verify().findings
        errors = [f"{one.check}: {one.what}" for one in findings if one.severity == "error"]
        if errors:
            self.journal.say("violation", f"verify beside others: {errors}")


class Manager(Actor):
    """Upgrades, cuts over, rolls back, aborts and plans, in any order."""

    def step(self) -> None:
        """Do one thing with one upgrade, or with that of all shards."""
        gallery = self.gallery(self.draw.choice(self.scene.tables))
        sharded = len(self.scene.tables) > 1 and self.draw.random() < 0.7
        holder: Any = cs.Shards.open(self.scene.pattern, encoders=ENCODERS) if sharded else gallery
        verbs: list[Callable[[], object]] = [
            *[lambda: self._upgrade(holder)] * 5,
            *[lambda: holder.cutover("v2")] * 3,
            *[lambda: holder.rollback("v2")] * 2,
            lambda: gallery.abort("v2", wait=1.0),
            lambda: gallery.upgrade("v2", backfill=0.3, dry_run=True),
            lambda: gallery.report("v2", measure=False),
        ]
        self.unless(self.draw.choice(verbs), UpgradeError, NotFound, Incompatible)

    def _upgrade(self, holder: Any) -> None:
        order = self.draw.choice(("random", "spread", *(["sigma"] if self.scene.linked else [])))
        backfill = cs.Backfill(
            share=self.draw.choice((0.1, 0.3, 0.6)), max_rows=self.draw.choice((None, None, 20)), order=order
        )
        done = holder.upgrade("v2", backfill=backfill, learn=self._learn(), run=cs.RunSettings(batch_rows=16))
        for shard in getattr(done, "shards", ()):
            if shard.error:
                self.journal.say("refused", f"{type(shard.error).__name__} of a shard")

    def _learn(self) -> Any:
        if not self.scene.linked:
            return cs.Learn(first=40, candidates=CLOSED_FORMS[:3])
        return self.draw.choice((None, None, LeastSquares()))


class SecondManager(Manager):
    """Takes the place of one that is suspended."""


class Closer(Manager):
    """Brings every upgrade to an end: however it was left, it goes on, or is aborted."""

    def step(self) -> None:
        """Bring all tables to the end."""
        for table in self.scene.tables:
            ends = time.monotonic() + CLOSING_SECONDS
            while not self.unless(lambda table=table: self._close(self.gallery(table)), UpgradeError):  # type: ignore[misc]
                if time.monotonic() > ends:
                    raise RuntimeError(f"{table} could not be brought to an end: {self.scene.ending}")
                time.sleep(LEASE_TERM / 5)

    def _close(self, gallery: cs.Gallery) -> None:
        states = {version.name: version.state for version in gallery.status().versions}
        if self.scene.ending == "abort":
            if gallery.active == "v2":
                gallery.rollback("v2")
            if gallery.status().upgrades:
                gallery.abort("v2")
            gallery.maintenance.optimize()  # an upgrade that was killed before it began has left columns
        elif states["v1"] in ("active", "live"):
            self._upgrade(gallery)
            gallery.cutover("v2")
            if self.scene.ending == "retire":
                gallery.retire("v1")
        elif self.scene.ending == "retire":
            gallery.retire("v1")


WRITERS: dict[str, type[Writer]] = {one.__name__: one for one in (Writer, OtherWriter, PlainApp, Store)}
ROLES: dict[str, type[Actor]] = {
    **WRITERS,
    **{one.__name__: one for one in (Reader, Janitor, Manager, SecondManager, Closer)},
}


def perform(role: str, scene: Scene, journal_path: str, seed: str, operations: int, own: Mapping[str, Items]) -> None:
    """Be one process of a life."""
    warnings.simplefilter("ignore")
    journal, draw = Journal(journal_path), random.Random(seed)
    actor = ROLES[role](scene, journal, draw, own)
    try:
        for _ in range(operations):
            time.sleep(draw.uniform(0, PAUSE))
            actor.step()
            journal.say("step")
    except CompatStoreError as error:
        journal.say("violation", f"{role} was refused: {type(error).__name__}: {error}\n{traceback.format_exc()}")
    except Exception:
        journal.say("violation", f"{role} failed:\n{traceback.format_exc()}")


def ordered(found: Mapping[str, Document]) -> str:
    """Documents as a text that is equal where they are; 1, 1.0 and True are three values."""
    return repr(sorted((name, text, sorted(meta.items(), key=repr)) for name, (text, meta) in found.items()))


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
