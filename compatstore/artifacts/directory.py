"""An artifact on disk: a directory of two files that appears as a whole or not at all.

h.compat/
├── manifest.json           readable; carries its own SHA-256 and that of the weights
└── weights.safetensors
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from compatstore import next_step
from compatstore.errors import AlreadyExists, CorruptArtifact, NotFound
from compatstore.paths import exists, is_folder, refused

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
NAME_KEPT = 50  # characters, of up to 4 bytes: the longest name that a file system takes has 255 bytes


def read_directory(path: Path) -> tuple[bytes, bytes]:
    """Return the bytes of the manifest and of the weights.

    Raises:
        NotFound: There is no such directory.
        CorruptArtifact: A file is missing.
        StorageError: A file may not be read.
    """
    if not is_folder(path):
        raise NotFound(
            f"load artifact {path}",
            expected="a directory written by Artifact.save",
            found="none",
            fix=f"Check the path, or train one: {next_step.training('auto', out=str(path))}",
            kind="artifact",
        )
    return _read(path / MANIFEST), _read(path / WEIGHTS)


def write_directory(path: Path, manifest: bytes, weights: bytes, *, replace: bool) -> None:
    """Write both files beside the path, then rename: atomic.

    Args:
        path: The directory to make; its parents are made too.
        manifest: Content of the manifest.
        weights: Content of the weights file.
        replace: Whether an artifact that stands there gives way; any other directory never does.

    Raises:
        AlreadyExists: Something stands there that may not be replaced.
        StorageError: The directory cannot be written there: no permission, a full disk, a name that is too long.
    """
    if not path.name:
        raise AlreadyExists(
            f"save an artifact as {path}",
            expected="a path with a name",
            found="the folder that this process is in, or the root",
            fix="Name a folder to make.",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(f".{path.name[:NAME_KEPT]}.{uuid.uuid4().hex}")
        staged.mkdir()
        try:
            _write(staged / MANIFEST, manifest)
            _write(staged / WEIGHTS, weights)
            _move_into_place(staged, path, replace=replace)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    except OSError as error:
        raise refused(f"save an artifact as {path}", path, error) from error


def _move_into_place(staged: Path, path: Path, *, replace: bool) -> None:
    if replace and exists(path) and _is_artifact(path):
        # Two renames: a reader in between finds nothing, never a mixture.
        old = staged.with_name(f"{staged.name}.old")
        path.rename(old)
        staged.rename(path)
        shutil.rmtree(old)
        return
    if exists(path):
        raise _taken(path)
    try:
        staged.rename(path)
    except OSError as error:
        # Another process may have come first: renaming onto its directory fails, for it is not empty.
        if exists(path):
            raise _taken(path) from error
        raise


def _taken(path: Path) -> AlreadyExists:
    artifact = _is_artifact(path)
    return AlreadyExists(
        f"save an artifact as {path}",
        expected="nothing there",
        found="another artifact" if artifact else "something that is no artifact",
        fix="Choose another path" + (", or pass overwrite=True." if artifact else "."),
    )


def _is_artifact(path: Path) -> bool:
    return is_folder(path) and {entry.name for entry in path.iterdir()} <= {MANIFEST, WEIGHTS}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError as error:
        raise refused(f"read {path}", path, error) from error
    except OSError as error:
        raise CorruptArtifact(f"read {path}", expected="a readable file", found=str(error.strerror)) from error


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
