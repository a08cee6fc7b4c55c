"""Files of models: folders as libraries save and download them, and weights that other programs wrote."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from compatstore import next_step
from compatstore.boundary import shown
from compatstore.documents import Malformed, parse, read_record
from compatstore.encoders.module import require_torch
from compatstore.errors import CompatStoreError, CorruptArtifact, NotFound, StorageError
from compatstore.paths import is_file, is_folder, refused

if TYPE_CHECKING:
    import torch

Record = TypeVar("Record")

# Files beside a model that do not affect its vectors.
ASIDE = frozenset({".md", ".txt.license", ".png", ".jpg", ".svg", ".pdf"})
ASIDE_NAMES = frozenset({"license", "notice", "readme"})
_BLOCK = 1 << 22


def require_folder(kind: str, folder: str | Path) -> Path:
    """A model's folder: the named one, or that of the model of this name in Hugging Face's cache.

    Raises:
        NotFound: There is none. A model is never downloaded.
    """
    path = Path(folder).expanduser()
    if is_folder(path):
        return path
    fix = "Check the path."
    if _NAME.fullmatch(f"{folder}"):
        names = [f"{folder}"]
        if kind == "sentence-transformers" and "/" not in names[0]:
            names.insert(0, f"{kind}/{folder}")  # as that library itself reads such a name
        cached = next(filter(None, map(_in_cache, names)), None)
        if cached is not None:
            return cached
        fix = f"Download it, and give {next_step.same()} again: hf download {names[0]} (pip install huggingface_hub)."
    expected = "a folder, or the name of a model in the local cache"
    raise NotFound(f"load a model of {kind}", expected=expected, found=shown(f"{folder}"), fix=fix)


_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)  # of a model: "all-MiniLM-L6-v2", "owner/model"


def _in_cache(name: str) -> Path | None:
    """The folder of a model in Hugging Face's local cache; no network request."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # it is not there, or is no name
        return None


def hash_folder(folder: Path) -> str:
    """SHA-256 (hex) over the names and the content of a model's files: weights, configuration, vocabulary.

    Hidden files, and documentation of the model, are left out.

    Raises:
        StorageError: A file cannot be read.
    """
    hasher = hashlib.sha256()
    try:
        for path in sorted(_files(folder), key=lambda path: path.relative_to(folder).as_posix()):
            hasher.update(f"{path.relative_to(folder).as_posix()}|{path.stat().st_size}|".encode())
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    hasher.update(block)
    except OSError as error:
        raise StorageError(
            f"read the model in {folder}", expected="files that can be read", found=f"{error}"
        ) from error
    return hasher.hexdigest()


@contextmanager
def loading(kind: str, folder: Path) -> Iterator[None]:
    """Re-raise a library's errors on loading a model as one error of ours.

    Raises:
        CorruptArtifact: It could not.
    """
    try:
        yield
    except (CompatStoreError, MemoryError):
        raise
    except Exception as error:  # each library has its own errors for files that are missing or broken
        found = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise CorruptArtifact(f"load the model in {folder}", expected=f"a model of {kind}", found=found) from error


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        aside = path.suffix.lower() in ASIDE or path.stem.lower() in ASIDE_NAMES
        if is_file(path) and not hidden and not aside:
            yield path


# Keys under which training programs keep the state dict of the model in a larger dictionary.
_INSIDE = ("state_dict", "model")


def read_weights(path: Path, operation: str) -> dict[str, torch.Tensor]:
    """Read a state dict: tensors by name. No code in the file is run.

    Args:
        path: A .safetensors file, or a state dict saved by torch, read with weights_only=True; one under the key
            "state_dict" or "model" of a larger dictionary is found too.
        operation: The caller's operation, for errors.

    Raises:
        StorageError: The file may not be read.
        CorruptArtifact: The file is something else.
    """
    torch = require_torch()
    from safetensors.torch import load_file

    try:
        found: Any = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except PermissionError as error:
        raise refused(operation, path, error) from error
    except Exception as error:  # any error of the readers for bytes that are no weights
        message = str(error) or type(error).__name__
        raise CorruptArtifact(operation, expected=f"weights in {path}", found=message.splitlines()[0]) from error
    for key in _INSIDE:
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    tensors = found.items() if isinstance(found, dict) else ()
    return {str(name): value for name, value in tensors if isinstance(value, torch.Tensor)}


def parse_described(content: bytes, kind: type[Record], written_as: str) -> tuple[Record, dict[str, torch.Tensor]]:
    """Read tensors, and the record that describes them, from the bytes of a safetensors file of ours.

    Args:
        content: Bytes, of which the metadata "compatstore" is the record as JSON.
        kind: Class of the record.
        written_as: The record's field `format`.

    Raises:
        Exception: Any error of safetensors, torch and the reader of records for other bytes.
    """
    require_torch()
    from safetensors.torch import load

    weights = load(content)
    header = parse(content[8 : 8 + int.from_bytes(content[:8], "little")])
    values = parse(header["__metadata__"]["compatstore"])
    if values["format"] != written_as:
        raise Malformed(f"format {values['format']!r:.60}")
    return read_record(kind, values, "description"), weights
