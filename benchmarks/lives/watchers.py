"""Processes that read and look after tables: a reader that compares searches with exact ones, and a janitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lance
import numpy as np

import compatstore as cs
from benchmarks.lives.actor import Actor
from compatstore.errors import Incompatible, InvalidInput, NotFound, UpgradeError
from tests.known.galleries import PARTITIONS
from tests.known.vectors import LABELS, source_vector, target_vector

K = 5
GRACE = 4.0  # seconds for which a janitor leaves old files: longer than any suspension of a process beside it
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


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
