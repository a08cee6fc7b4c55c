"""Small pictures of items inside a page: read from their sources, bounded in size, each at most once."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from urllib.parse import urlsplit

from compatstore.encoders.images import SUFFIXES, read_image
from compatstore.errors import SourceError

SIDE = 96  # pixels
LARGEST = 4 << 20  # bytes of all pictures of a page; later items are shown by their text
SMALLEST_SIDE = 48  # smaller pictures are enlarged, with their pixels kept


class Thumbnails:
    """Pictures of items as data: URIs.

    Args:
        largest: Bytes of all pictures together.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._left, self._known = largest, dict[str, str]()

    def of(self, source: str) -> str:
        """The picture of a source as a data: URI; "" where the source is none, cannot be read, or there is no room."""
        if source not in self._known:
            self._known[source] = _read(source) if _is_image(source) else ""
        uri = self._known[source]
        if len(uri) > self._left:
            return ""
        self._left -= len(uri)
        return uri


def _is_image(source: str) -> bool:
    """Whether a source is a file of an image on this machine, by its name."""
    parts = urlsplit(source) if "://" in source else None
    if parts is not None and parts.scheme != "file":
        return False
    return Path(source if parts is None else parts.path).suffix.lower() in SUFFIXES


def _read(source: str) -> str:
    try:
        image = read_image(source)
    except SourceError:
        return ""
    image.thumbnail((SIDE, SIDE))
    if max(image.size) < SMALLEST_SIDE:
        times = SIDE // max(image.size)
        image = image.resize((image.width * times, image.height * times), 0)  # 0: each pixel becomes a square
    content = io.BytesIO()
    image.save(content, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode("ascii")
