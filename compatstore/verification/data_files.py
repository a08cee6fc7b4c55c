"""Data files: all that the table names are there, as long as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compatstore.errors import first_offenders
from compatstore.storage.files import Files
from compatstore.storage.full_disk import ends_whole
from compatstore.verification.finding import Finding
from compatstore.verification.scene import Scene


def check_data_files(scene: Scene) -> Iterator[Finding]:
    """No data file is gone or cut short."""
    wrong: dict[str, list[str]] = {}
    for fragment in scene.snapshot.get_fragments():
        for file in fragment.metadata.files:
            found = _objection(scene, file)
            if found:
                wrong.setdefault(found, []).append(file.path)
    for found, names in wrong.items():
        yield Finding(
            check="data files",
            severity="error",
            what=f"{len(names)} data files are {found}: {first_offenders(names)}",
            repair=f"Put them back from a backup, or restore a table version before {scene.snapshot.version}.",
        )


def _objection(scene: Scene, file: Any) -> str:
    """What is wrong with a file, by Lance's metadata of it; "" where nothing is."""
    if getattr(file, "base_id", None) is not None:  # it lies with another table, which this one was cloned from
        return ""
    files = Files(scene.catalog.store.location, "data")
    if not files.exists(file.path):
        return "gone"
    return "" if ends_whole(files, file.path, file.file_size_bytes) else "cut short"
