"""What a verb that moves the active version, or ends one, says that it did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Switched:
    """What a cutover, rollback, abort or retire did.

    Attributes:
        active: Version that searches use now.
        previous: Version that they used before.
        missing: Rows without a vector in the active version.
        changed: Whether anything changed.
        dropped: Columns that were dropped.
    """

    active: str
    previous: str
    missing: int
    changed: bool = True
    dropped: tuple[str, ...] = ()
