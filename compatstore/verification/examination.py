"""Examine the environment, and where a gallery lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from compatstore.verification.diagnosis import Diagnosis, Examination
from compatstore.verification.libraries import lance_libraries, needed_libraries, optional_libraries, python_version
from compatstore.verification.machine import accelerator, memory, threads
from compatstore.verification.place import gallery_place

ENVIRONMENT: tuple[Callable[[], Iterator[Diagnosis]], ...] = (
    python_version,
    needed_libraries,
    lance_libraries,
    optional_libraries,
    accelerator,
    threads,
    memory,
)


def doctor(gallery: Any = None, *, storage_options: dict[str, str] | None = None) -> Examination:
    """Look at what work on a gallery depends on.

    Args:
        gallery: A path, a URI, `DATABASE#TABLE` or a LanceDB table to look at too. A file of a few bytes is written
            into its folder and removed, to see whether that can be done; nothing else is.
        storage_options: What the object store needs.
    """
    diagnoses = [diagnosis for look in ENVIRONMENT for diagnosis in look()]
    if gallery is not None:
        diagnoses += gallery_place(gallery, storage_options)
    return Examination(diagnoses=tuple(diagnoses))
