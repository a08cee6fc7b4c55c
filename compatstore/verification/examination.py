"""Examine the environment, and where a gallery lies: access to read and to write, clock, free space.

What is no gallery yet is looked at in `plain_vectors.py`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

from compatstore.errors import CompatStoreError, InvalidInput, StorageError
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.location import Location, locate
from compatstore.storage.probe import probe, require_conditional_writes
from compatstore.storage.registry import Registry
from compatstore.storage.store import Store
from compatstore.upgrade.progress import Monitor, Progress
from compatstore.upgrade.states import CUTOVER, READY, run_of
from compatstore.verification.environment import (
    Diagnosis,
    Examination,
    accelerator,
    lance_libraries,
    memory,
    needed_libraries,
    optional_libraries,
    python_version,
    threads,
)
from compatstore.verification.plain_columns import open_plain
from compatstore.verification.plain_vectors import NamedColumns, look_at_vectors

ENVIRONMENT: tuple[Callable[[], Iterator[Diagnosis]], ...] = (
    python_version,
    needed_libraries,
    lance_libraries,
    optional_libraries,
    accelerator,
    threads,
    memory,
)


def doctor(
    gallery: Any = None,
    *,
    vector: str | None = None,
    id: str | None = None,
    source: str | None = None,
    order: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Examination:
    """Look at what work on a gallery depends on, and at vectors before they become one.

    Args:
        gallery: A path, a URI, `DATABASE#TABLE` or a LanceDB table to look at too. Of a gallery it is the place: a file
            of a few bytes is written into its folder and removed, to see whether that can be done, and in an object
            store a table of no rows, to see whether two writers are kept apart; nothing else is. Of a table that is no
            gallery yet, a Parquet, Arrow, Feather, npz or npy file, an Arrow table, an array (n, dim) or a dict of
            arrays it is the vectors; nothing at all is written.
        vector: Column of the vectors of what is no gallery yet; all columns of lists of numbers where it is None.
        id: Its column of ids; by default one of a usual name, else the first of texts or whole numbers.
        source: Its column to embed from, such as a path or a text.
        order: Its column that orders the rows, such as a date: ranges of it are compared. By default a column of dates
            or times, else the ids where they are whole numbers.
        storage_options: What the object store needs.
        progress: Called as it goes on: with the libraries that are looked at, the rows that are read, the parts that
            are compared.

    Raises:
        InvalidInput: A column is named that is not there, or of a gallery.

    Examples:
        >>> from compatstore.verification import doctor
        >>> vectors = np.random.default_rng(0).standard_normal((900, 16)).astype(np.float32)
        >>> vectors[7] = 0
        >>> found = {d.topic: d for d in doctor(vectors).diagnoses}
        >>> found["zero vectors"].level, found["two models"].level
        ('warning', 'ok')
    """
    diagnoses, monitor = list[Diagnosis](), Monitor("environment", len(ENVIRONMENT), progress)
    monitor.begin()
    for look in ENVIRONMENT:
        diagnoses += look()
        monitor.advance(1)
    if gallery is None:
        return Examination(diagnoses=tuple(diagnoses))
    named = NamedColumns(vector=vector, id=id, source=source, order=order)
    plain = open_plain(gallery, storage_options)
    if plain is not None:
        diagnoses += look_at_vectors(plain, named, progress)
    else:
        if named != NamedColumns():
            expected = "columns named of what is no gallery yet"
            raise InvalidInput(f"examine {gallery!s:.200}", expected=expected, found="a gallery, or nothing there")
        Monitor("place of the gallery", 0, progress).begin()
        diagnoses += gallery_place(gallery, storage_options)
    return Examination(diagnoses=tuple(diagnoses))


CLOCKS_APART = 5.0  # seconds
COPIES = 2  # a fold rewrites a column; the old one goes with the next clean-up


def gallery_place(gallery: object, storage_options: dict[str, str] | None) -> Iterator[Diagnosis]:
    """Open the gallery, write a few bytes beside it and remove them, and look at the room that is left."""
    try:
        location = locate(gallery, storage_options)
        catalog = Catalog(Store.open(location))
        rows = catalog.store.count()
    except CompatStoreError as error:
        what = f"{error.asked}; expected {error.expected}; found {error.found}"
        yield Diagnosis(topic="gallery", level="problem", what=what, fix=error.fix)
        return
    yield Diagnosis(topic="gallery", level="ok", what=f"{location.uri}: {rows} items")
    yield from _writing(location)
    if not location.is_local:
        yield _conditional_writes(location)
    else:
        yield _room(location, _bytes_to_come(catalog.recorded(), rows))


def _writing(location: Location) -> Iterator[Diagnosis]:
    """Whether the place can be written, and how far its clock is from this machine's."""
    try:
        before = time.time()
        written = probe(location)
        after = time.time()
    except StorageError as error:
        yield Diagnosis(topic="writing", level="warning", what=f"read-only: {error.found}", fix=error.fix)
        return
    yield Diagnosis(topic="writing", level="ok", what="a file of a few bytes was written there and removed")
    if written is None:
        return
    apart = max(before - written, written - after, 0.0)
    if apart > CLOCKS_APART:
        what = f"{apart:.0f} s between this machine's and that of the gallery's storage"
        fix = "Synchronise them (NTP): times in the history and in leases are by this machine's."
        yield Diagnosis(topic="clocks", level="warning", what=what, fix=fix)
    else:
        yield Diagnosis(topic="clocks", level="ok", what="this machine's and that of the gallery's storage agree")


def _conditional_writes(location: Location) -> Diagnosis:
    """Whether the object store keeps two writers apart."""
    topic = "conditional writes"
    try:
        require_conditional_writes(location, f"examine {location.name}")
    except StorageError as error:
        return Diagnosis(topic=topic, level="problem", what=error.found, fix=error.fix)
    return Diagnosis(topic=topic, level="ok", what="an object that was there was not written again")


def _bytes_to_come(registry: Registry, rows: int) -> int:
    """Bytes that the upgrades which are registered or under way will write, about."""
    needed = 0
    for record in registry.versions.values():
        run = run_of(registry, record.name)
        done = record.columns is not None and (run is None or run.state in (READY, CUTOVER))
        if not done and not record.retired:
            columns = record.columns or VersionColumns.of(record.version())
            needed += COPIES * rows * columns.row_bytes
    return needed


def _room(location: Location, needed: int) -> Diagnosis:
    free = shutil.disk_usage(location.uri).free
    what = f"{free / 2**30:.1f} GiB free"
    if needed:
        what += f", {needed / 2**30:.2f} GiB needed by the versions that are registered or under way"
    if free < needed:
        return Diagnosis(topic="disk", level="problem", what=what, fix="Free some, or move the gallery.")
    if free < 2 * needed:
        return Diagnosis(topic="disk", level="warning", what=what, fix="Free some: other writers need room, too.")
    return Diagnosis(topic="disk", level="ok", what=what)
