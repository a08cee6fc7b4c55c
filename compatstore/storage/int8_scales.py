"""The scales of a hop in int8: a JSON document beside the table, so that whoever goes on with the hop uses the same.

It holds a checksum and the artifact's id. What is damaged, or of another artifact, is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from compatstore.storage.files import FOLDER, Files
from compatstore.storage.location import Location


@dataclass(frozen=True, kw_only=True)
class Int8Record:
    """How a hop runs in int8, and what that was measured to change.

    Attributes:
        artifact: Id of the artifact.
        scales: Input of a dense layer -> size of a step, and the step that is zero.
        rows: Rows of the gallery that the change was measured on; the scales are of others.
        cosine_mean: Mean cosine between what float32 and int8 make of a row, in [-1, 1].
        cosine_min: Smallest of them.
    """

    artifact: str
    scales: Mapping[str, tuple[float, int]]
    rows: int
    cosine_mean: float
    cosine_min: float

    def __str__(self) -> str:
        return (
            f"cosine with float32 {self.cosine_mean:.4f} on average and {self.cosine_min:.4f} at the least, on "
            f"{self.rows} rows"
        )


def load_int8(location: Location, target: str, artifact: str) -> Int8Record | None:
    """What was recorded for the upgrade to a target by an artifact, or None."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        checksum, _, text = Files(location, FOLDER).read(_name(target)).decode().partition("\n")
        kept = json.loads(text)
        if checksum == _checksum(text) and kept["artifact"] == artifact:
            scales = {name: (float(size), int(zero)) for name, (size, zero) in kept.pop("scales").items()}
            return Int8Record(scales=scales, **kept)
    return None


def save_int8(location: Location, target: str, record: Int8Record) -> None:
    """Write a record; durable.

    Raises:
        OSError: The place cannot be written.
    """
    text = json.dumps(asdict(record), separators=(",", ":"))
    Files(location, FOLDER).write(_name(target), f"{_checksum(text)}\n{text}".encode())


def forget_int8(location: Location, target: str) -> None:
    """Remove the record of a target that is dropped."""
    Files(location, FOLDER).delete(_name(target))


def _name(target: str) -> str:
    return f"int8-{target}.json"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
