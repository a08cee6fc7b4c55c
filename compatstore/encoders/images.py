"""Reading images: from paths, URIs, bytes, PIL images and arrays to one mode, and finding them in folders."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
from PIL import Image, ImageOps

from compatstore.errors import InvalidInput, NotFound, SourceError
from compatstore.paths import is_file, is_folder

Mode = Literal["L", "RGB"]
MODES: tuple[str, ...] = get_args(Mode)
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
FIX = "Remove or repair these files, or leave them out of the batch."
LARGEST_PIXELS = 100_000_000
LIMIT = "COMPATSTORE_MAX_PIXELS"


def read_image(source: Any, mode: Mode = "RGB", roots: Sequence[str | Path] = ()) -> Image.Image:
    """Read one image, turned upright by its EXIF orientation, transparency laid on white.

    Args:
        source: A path, a file:// URI, encoded bytes, a PIL image, or an (h, w) or (h, w, c) uint8 array.
        mode: "L" (grey) or "RGB".
        roots: Folders that paths must lie in, after links and ".." are resolved; empty allows every path.

    Raises:
        SourceError: The source is missing, corrupt, too large, outside `roots` or of no known type (as failure 0). An
            image is too large if it has more pixels than the environment's `COMPATSTORE_MAX_PIXELS`, 100 million by
            default: a file of a few KiB may say that it has any size. Pillow's own limit (`Image.MAX_IMAGE_PIXELS`,
            twice 89 million) holds as well.
        InvalidInput: The mode or the limit is none.
    """
    limit = _limit()
    if mode not in MODES:
        raise InvalidInput("read images", expected=f"mode of {MODES}", found=repr(mode))
    # Pillow's decoders raise errors of many kinds for broken bytes (struct.error, IndexError, SyntaxError, ...).
    try:
        return _to_mode(_open(source, roots, limit), mode)
    except Exception as error:
        name = os.fspath(source) if isinstance(source, str | os.PathLike) else type(source).__name__
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__
        raise SourceError("read an image", {0: f"{name}: {reason}"}, fix=FIX) from error


def find_images(folder: str | Path) -> list[Path]:
    """List the images below a folder, sorted by path, hidden files and folders left out.

    Raises:
        NotFound: There is no such folder, or it holds no image.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise NotFound("find images", expected="a folder", found=str(folder), fix="Check the path.")
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and is_file(path)]
    visible = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not visible:
        raise NotFound(
            f"find images in {folder}", expected=f"files ending in {', '.join(sorted(SUFFIXES))}", found="none"
        )
    return visible


def find_classes(folder: str | Path) -> tuple[list[Path], list[int], tuple[str, ...]]:
    """List the images of a folder of class folders.

    Returns:
        Paths sorted within each class, the label of each, and the class names in alphabetical order.
        Sub-folders without an image are no class.

    Raises:
        NotFound: There is no such folder, or no sub-folder holds an image.
    """
    folder = Path(folder)
    by_class: dict[str, list[Path]] = {}
    for path in find_images(folder):
        first, *rest = path.relative_to(folder).parts
        if rest:
            by_class.setdefault(first, []).append(path)
    if not by_class:
        raise NotFound(
            f"find classes in {folder}",
            expected="one sub-folder of images per class",
            found="images only at the top",
            fix="Move the images of each class into a folder named after it.",
        )
    names = tuple(sorted(by_class))
    paths = [path for name in names for path in by_class[name]]
    return paths, [label for label, name in enumerate(names) for _ in by_class[name]], names


def _limit() -> int:
    text = os.environ.get(LIMIT, str(LARGEST_PIXELS))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidInput(
            "read images",
            expected="a limit of pixels, a whole number >= 1",
            found=repr(text[:40]),
            fix=f"Set {LIMIT} in the environment.",
        )
    return int(text)


def _open(source: Any, roots: Sequence[str | Path], limit: int) -> Image.Image:
    if isinstance(source, Image.Image):
        return _small_enough(source, limit)
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(io.BytesIO(source), limit)
    if isinstance(source, str | os.PathLike):
        return _decode(_allowed(_path(source), roots), limit)
    raise TypeError(f"{type(source).__name__} is not a path, URI, bytes, PIL image or array")


def _decode(file: Path | io.BytesIO, limit: int) -> Image.Image:
    with Image.open(file) as image:  # reads the header alone
        _small_enough(image, limit).load()
        return image


def _small_enough(image: Image.Image, limit: int) -> Image.Image:
    width, height = image.size
    if width * height > limit:
        found = f"{width} x {height} pixels, more than the {limit} that are decoded"
        raise ValueError(f"{found}; raise the limit with {LIMIT} in the environment")
    return image


def _from_array(array: np.ndarray[Any, Any]) -> Image.Image:
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
        raise ValueError(f"expected (h, w) or (h, w, 1, 3 or 4) uint8, found {array.shape} {array.dtype}")
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.shape[2:] == (1,) else array))


def _path(source: str | os.PathLike[str]) -> Path:
    text = os.fspath(source)
    scheme, host, path, *_ = urlsplit(text) if "://" in text else ("", "", text)
    if scheme not in ("", "file") or host not in ("", "localhost"):
        raise ValueError(f"{scheme}:// is not read here; hand over a local path or the bytes")
    return Path(url2pathname(path) if scheme else path)


def _allowed(path: Path, roots: Sequence[str | Path]) -> Path:
    resolved = path.resolve()
    if roots and not any(resolved.is_relative_to(Path(root).resolve()) for root in roots):
        raise PermissionError(f"lies outside the allowed folders {', '.join(str(root) for root in roots)}")
    return resolved


def _to_mode(image: Image.Image, mode: Mode) -> Image.Image:
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits a pixel: Pillow would clip at 255 instead of scaling
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image if image.mode == mode else image.convert(mode)
