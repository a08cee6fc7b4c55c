"""The app that searches all the time: no search may fail, return what was removed, or miss what is there."""

from __future__ import annotations

import random
import threading
import traceback

import numpy as np

import compatstore as cs
from benchmarks.crashes.place import Place
from benchmarks.crashes.truth import ENCODERS, SIDE_ENCODERS
from benchmarks.crashes.writer import Memory
from compatstore.errors import NotFound

K = 5
PAUSE = 0.01
NEAR = 1e-4


class Reader(threading.Thread):
    """Searches and gets until it is told to stop.

    Args:
        path: The table.
        memory: What the gallery must hold.
        seed: Of what is looked for.

    Attributes:
        searches: How many there were.
        violations: What went wrong.
    """

    def __init__(self, path: Place, memory: Memory, id_column: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.searches = 0
        self.violations: list[str] = []
        self._gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
        self._memory, self._id = memory, id_column
        self._random = random.Random(seed)
        self._halt = threading.Event()

    def run(self) -> None:
        """Search, pause, search."""
        while not self._halt.wait(PAUSE):
            known = list(self._memory.items.items())
            item, source = self._random.choice(known)
            look = self._random.choice((self._by_source, self._by_item, self._get))
            try:
                look(item, source)
            except Exception:
                self.violations.append(f"{look.__name__} of {item} failed:\n{traceback.format_exc()}")
            self.searches += 1

    def stop(self) -> None:
        """Finish the search at hand and end."""
        self._halt.set()
        self.join()

    def _by_source(self, item: str, source: str) -> None:
        """A text is embedded in whatever version is active."""
        self._search(source, None)

    def _by_item(self, item: str, source: str) -> None:
        """An item that is searched by its own vector is found, unless somebody wrote it meanwhile."""
        version = self._gallery.active
        before = self._vector(item, version)
        if before is None:
            return
        found = self._search(before, version)
        after = self._vector(item, version)
        if after is not None and np.array_equal(before, after) and found.get(item, 1.0) > NEAR:
            self.violations.append(f"{item} was not found in {version} by its own vector, but {found}")

    def _get(self, item: str, source: str) -> None:
        """All of an item's columns."""
        try:
            row = self._gallery.get([item]).to_pylist()[0]
        except NotFound as error:
            self._must_be_going(item, error)
            return
        if row[self._id] != item:
            self.violations.append(f"asked for {item}, got {row[self._id]}")

    def _search(self, query: object, version: str | None) -> dict[str, float]:
        gone = set(self._memory.gone)
        table = self._gallery.search(query, k=K, version=version)
        found = dict(zip(table[self._id].to_pylist(), table["_distance"].to_pylist(), strict=True))
        if gone & found.keys():
            self._violated(query, version, f"returned items that had been removed: {sorted(gone & found.keys())}")
        if len(found) != K:
            self._violated(query, version, f"returned {table.num_rows} rows of {K}, {len(found)} of them different")
        return found

    def _violated(self, query: object, version: str | None, what: str) -> None:
        near = f"in {version or self._gallery.active}, near table version {self._gallery.status().table_version}"
        self.violations.append(f"a search for {query} {near} {what}")

    def _vector(self, item: str, version: str) -> np.ndarray | None:
        """The item's vector, or None when it has none or was removed."""
        try:
            vector = self._gallery.vectors([item], version)[0]
        except NotFound as error:
            self._must_be_going(item, error)
            return None
        return None if np.isnan(vector).any() else vector

    def _must_be_going(self, item: str, error: NotFound) -> None:
        if error.kind != "item":
            raise error
        if item not in self._memory.going:
            self.violations.append(f"{item} is not in the gallery")
