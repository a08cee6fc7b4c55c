"""Read one array from a file that is named on the command line."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.errors import InvalidInput, NotFound

SUFFIXES = (".json", ".npy", ".npz")


def read_array(path: str, *names: str) -> npt.NDArray[Any]:
    """Read an array.

    Args:
        path: An .npy, an .npz, or a .json of (nested) lists of numbers.
        names: Keys of an .npz, the first that is there counts; an .npz of one array needs none of them.

    Returns:
        The array, at least one value. Numbers of JSON are float32.

    Raises:
        NotFound: There is no such file, or no such key.
        InvalidInput: The file is of another type, damaged or empty.
    """
    file, asked = Path(path), f"read {path}"
    if file.suffix not in SUFFIXES:
        raise InvalidInput(asked, expected=f"a file of {', '.join(SUFFIXES)}", found=file.suffix or "no suffix")
    if not file.is_file():
        raise NotFound(asked, expected="a file", found="nothing", fix="Check the path.")
    try:
        array = _read(file, names)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(asked, expected="a readable array", found=str(error)) from error
    if array is None:
        raise NotFound(asked, expected=f"an array called {' or '.join(names)}", found="several, none of that name")
    if not array.size:
        raise InvalidInput(asked, expected="at least one value", found=f"shape {array.shape}")
    return array


def _read(file: Path, names: tuple[str, ...]) -> npt.NDArray[Any] | None:
    if file.suffix == ".json":
        return np.asarray(json.loads(file.read_text(encoding="utf-8")), np.float32)
    loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        chosen = next((name for name in names if name in loaded.files), None)
        if chosen is None and len(loaded.files) == 1:
            chosen = loaded.files[0]
        return None if chosen is None else np.asarray(loaded[chosen])
