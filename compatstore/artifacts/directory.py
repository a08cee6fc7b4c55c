"""An artifact on disk: a directory of two files that appears as a whole or not at all.

h.compat/
├── manifest.json           readable; carries its own SHA-256 and that of the weights
└── weights.safetensors
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
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
        operation, expected = f"load artifact {path}", "a directory written by Artifact.save"
        fix = f"Check the path, or train one: {next_step.training('auto', out=str(path))}"
        raise NotFound(operation, expected=expected, found="none", fix=fix, kind="artifact")
    return _read(path / MANIFEST), _read(path / WEIGHTS)


def write_directory(path: Path, manifest: bytes, weights: bytes, *, replace: bool) -> None:
    """Write an artifact; a killed or failed write leaves no artifact at `path`.

    Args:
        path: The directory.
        manifest: Content of manifest.json.
        weights: Content of weights.safetensors.
        replace: Replace another artifact at `path`.

    Raises:
        AlreadyExists: Something is there that is not to be replaced.
        StorageError: It cannot be written.
    """

    def write(folder: Path) -> None:
        for name, content in ((MANIFEST, manifest), (WEIGHTS, weights)):
            with (folder / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

    write_folder("artifact", path, write, _is_artifact, replace=replace)


def require_free(kind: str, path: Path, is_kind: Callable[[Path], bool], *, replace: bool) -> None:
    """Refuse a path that is taken.

    Args:
        kind: Kind of the output: "artifact", "model" or "file".
        path: Its path.
        is_kind: Returns True for a path that holds one of the kind.
        replace: Allow one of the kind at the path.

    Raises:
        AlreadyExists: Something is there that is not to be replaced.
    """
    if not exists(path) or (replace and is_kind(path)):
        return
    found = f"another {kind}" if is_kind(path) else f"something that is no {kind}"
    fix = "Choose another path" + (f", or pass {next_step.option('overwrite', True)}." if is_kind(path) else ".")
    raise AlreadyExists(f"write {kind} {path}", expected="nothing there", found=found, fix=fix)


def write_folder(
    kind: str, path: Path, write: Callable[[Path], None], is_kind: Callable[[Path], bool], *, replace: bool
) -> None:
    """Make a folder as a whole: a killed or failed write leaves nothing at `path`; arguments as in `require_free`.

    Args:
        kind: Of the folder.
        path: The folder.
        write: Writes the content into a folder.
        is_kind: True of a folder that holds one of the kind.
        replace: Replace one of the kind.

    Raises:
        AlreadyExists: Something is there that is not to be replaced.
        StorageError: It cannot be written.
    """
    operation = f"write {kind} {path}"
    if not path.name:
        found = "the folder that this process is in, or the root"
        raise AlreadyExists(operation, expected="a path with a name", found=found, fix="Name a folder to make.")
    staged = path.with_name(f".{path.name[:NAME_KEPT]}.{uuid.uuid4().hex}")
    replaced = staged.with_name(f"{staged.name}.old")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.mkdir()
        try:
            write(staged)
            require_free(kind, path, is_kind, replace=replace)
            if exists(path):
                path.rename(replaced)
            staged.rename(path)
        except OSError:
            if staged.exists():
                require_free(kind, path, is_kind, replace=replace)  # another process was faster
            raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)
            shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise refused(operation, path, error) from error


def _is_artifact(path: Path) -> bool:
    return is_folder(path) and {entry.name for entry in path.iterdir()} <= {MANIFEST, WEIGHTS}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError as error:
        raise refused(f"read {path}", path, error) from error
    except OSError as error:
        raise CorruptArtifact(f"read {path}", expected="a readable file", found=str(error.strerror)) from error
