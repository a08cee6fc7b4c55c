"""Examine the environment (Python, libraries, memory), and the storage of a gallery: access, clock, free space.

`plain_vectors.py` examines vectors that are no gallery yet.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from compatstore.errors import CompatStoreError, InvalidInput, StorageError
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.location import Location, locate
from compatstore.storage.probe import probe, require_conditional_writes
from compatstore.storage.registry import Registry
from compatstore.storage.store import Store
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.upgrade.states import CUTOVER, READY, run_of
from compatstore.verification.context import Diagnosis, Examination
from compatstore.verification.plain_columns import open_plain
from compatstore.verification.plain_vectors import look_at_vectors

PACKAGE = "compatstore"
FOR_DEVELOPERS = "dev"


def python_version() -> Iterator[Diagnosis]:
    """Python is one that the package supports."""
    found, wanted = platform.python_version(), metadata.metadata(PACKAGE)["Requires-Python"]
    yield Diagnosis.of("Python", found in SpecifierSet(wanted), found, f"Use Python {wanted}.", "problem")


def needed_libraries() -> Iterator[Diagnosis]:
    """Libraries that the package cannot work without."""
    for requirement in _requirements(""):
        found = _version(requirement.name)
        fits = found is not None and found in requirement.specifier
        what = f"{found}" if fits else f"{found or 'not installed'}, needed: {requirement.specifier}"
        yield Diagnosis.of(requirement.name, fits, what, f'Run: pip install "{requirement}"', "problem")


def optional_libraries() -> Iterator[Diagnosis]:
    """Extras: libraries that are not installed, or in an unsupported version."""
    for extra in metadata.metadata(PACKAGE).get_all("Provides-Extra") or []:
        if extra == FOR_DEVELOPERS:
            continue
        found = [(r, _version(r.name)) for r in _requirements(extra) if r.name != PACKAGE]
        missing = [str(requirement) for requirement, version in found if version is None]
        other = [f"{r.name} {version}" for r, version in found if version is not None and version not in r.specifier]
        topic, fix = f"extra {extra}", f'Run: pip install "{PACKAGE}[{extra}]"'
        if missing:
            yield Diagnosis(topic, "ok", f"not installed: {', '.join(missing)}", fix)
        else:
            what = f"unsupported versions: {', '.join(other)}" if other else "installed"
            yield Diagnosis.of(topic, not other, what, fix)


def _requirements(extra: str) -> list[Requirement]:
    """Requirements of the package, or those that an extra adds."""
    found = []
    for requirement in map(Requirement, metadata.requires(PACKAGE) or []):
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always != bool(extra) and (always or (marker is not None and marker.evaluate({"extra": extra}))):
            requirement.marker = None
            found.append(requirement)
    return found


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


MEMORY_NEEDED = 2 << 30  # upper bound of a hop and a backfill
GROUP = Path("/sys/fs/cgroup")  # limits of a container


def accelerator() -> Iterator[Diagnosis]:
    """Torch and CUDA."""
    if find_spec("torch") is None:
        fix = 'To train, use a GPU or bfloat16: pip install "compatstore[train]"'
        yield Diagnosis("torch", "ok", "not installed; hops in float32 on the CPU need none", fix)
        return
    try:
        import torch
    except (ImportError, OSError) as error:
        fix = "Run: pip install --force-reinstall torch"
        yield Diagnosis("torch", "warning", f"installed, but it cannot be loaded: {error}", fix)
        return
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        precision = "with bfloat16" if torch.cuda.is_bf16_supported() else "without bfloat16"
        yield Diagnosis("torch", "ok", f"{torch.__version__} on {names}, {precision}")
    else:
        yield Diagnosis("torch", "ok", f"{torch.__version__}, no CUDA")


def memory() -> Iterator[Diagnosis]:
    """A hop and a backfill have room."""
    available = _available_memory()
    if available is None:
        yield Diagnosis("memory", "ok", "unknown on this system")
        return
    fix = f"Free some: an upgrade may take up to {MEMORY_NEEDED / 2**30:.0f} GiB."
    yield Diagnosis.of("memory", available >= MEMORY_NEEDED, f"{available / 2**30:.1f} GiB free", fix)


def _available_memory() -> int | None:
    """Bytes that can be had without swapping, on the machine and in its container."""
    lines = [line.split() for line in _read(Path("/proc/meminfo")).splitlines()]
    free = [int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"]
    limit, used = _read(GROUP / "memory.max"), _read(GROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        free.append(int(limit) - int(used))
    return min(free, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


ENVIRONMENT: tuple[Callable[[], Iterator[Diagnosis]], ...] = (
    python_version,
    needed_libraries,
    optional_libraries,
    accelerator,
    memory,
)


def doctor(
    gallery: Any = None,
    *,
    vector: str | None = None,
    id: str | None = None,
    source: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: OnProgress = None,
) -> Examination:
    """Examine the environment of a gallery, and vectors before they become one.

    Args:
        gallery: A path, a URI, `DATABASE#TABLE` or a LanceDB table to examine too. Of a gallery the storage is tested:
            a file of a few bytes is written into its folder and removed, and in an object store an empty table, to test
            for conflicts between two writers; nothing else is written. Of a table that is no gallery yet, a Parquet,
            Arrow, Feather, npz or npy file, an Arrow table, an array (n, dim) or a dict of arrays the vectors are
            examined, without any write.
        vector: Column of the vectors that are no gallery yet; all columns of lists of numbers if it is None.
        id: Its column of ids; by default one of a usual name, else the first of texts or whole numbers.
        source: Its column to embed from, such as a path or a text.
        storage_options: Settings of the object store.
        progress: Called as it goes on: with the examined libraries, the rows that are read, the parts that
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
    named = {"vector": vector, "id": id, "source": source}
    plain = open_plain(gallery, storage_options)
    if plain is not None:
        diagnoses += look_at_vectors(plain, named, progress)
    else:
        if any(named.values()):
            expected = "column names only for vectors that are no gallery yet"
            raise InvalidInput(f"examine {gallery!s:.200}", expected=expected, found="a gallery, or nothing there")
        Monitor("place of the gallery", 0, progress).begin()
        diagnoses += gallery_place(gallery, storage_options)
    return Examination(diagnoses=tuple(diagnoses))


CLOCKS_APART = 5.0  # seconds
COPIES = 2  # a fold rewrites a column; the old one goes with the next clean-up


def gallery_place(gallery: object, storage_options: dict[str, str] | None) -> Iterator[Diagnosis]:
    """Open the gallery, write a few bytes beside it and remove them, and check the free space."""
    try:
        location = locate(gallery, storage_options)
        catalog = Catalog(Store.open(location))
        rows = catalog.store.count()
    except CompatStoreError as error:
        what = f"{error.operation}; expected {error.expected}; found {error.found}"
        yield Diagnosis("gallery", "problem", what, error.fix)
        return
    yield Diagnosis("gallery", "ok", f"{location.uri}: {rows} items")
    yield from _writing(location)
    if location.is_local:
        yield _room(location, _bytes_to_come(catalog.recorded(), rows))
        return
    try:
        require_conditional_writes(location, f"examine {location.name}")
        yield Diagnosis("conditional writes", "ok", "an object that was there was not written again")
    except StorageError as error:
        yield Diagnosis("conditional writes", "problem", error.found, error.fix)


def _writing(location: Location) -> Iterator[Diagnosis]:
    """Write a few bytes, and compare the clock of the storage with this machine's."""
    before = time.time()
    try:
        written, after = probe(location), time.time()
    except StorageError as error:
        yield Diagnosis("writing", "warning", f"read-only: {error.found}", error.fix)
        return
    yield Diagnosis("writing", "ok", "a file of a few bytes was written there and removed")
    if written is None:
        return
    apart = max(before - written, written - after)
    agree = apart <= CLOCKS_APART
    what = "this machine's and that of the gallery's storage"
    what = f"{what} agree" if agree else f"{apart:.0f} s between {what}"
    fix = "Synchronise them (NTP): times in the history and in leases are by this machine's."
    yield Diagnosis.of("clocks", agree, what, fix)


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
        return Diagnosis("disk", "problem", what, "Free some, or move the gallery.")
    return Diagnosis.of("disk", free >= 2 * needed, what, "Free some: other writers need room, too.")
