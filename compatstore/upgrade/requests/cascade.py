"""Settings of a cascade: how many candidates of a search are embedded natively for it."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Cascade:
    """Candidates of a search that are embedded natively for it, within a budget, and kept.

    Args:
        first: Candidates of each query that are ranked by native vectors, >= 1. Those that have one cost nothing.
        in_all: Items that searches embed for an upgrade at most, in all processes together, >= 0.

    Raises:
        InvalidInput: A number is out of its range.

    Examples:
        >>> cs.Cascade(first=50).in_all
        10000
    """

    first: int = 10
    in_all: int = 10_000

    def __post_init__(self) -> None:
        for name, least in (("first", 1), ("in_all", 0)):
            if getattr(self, name) < least:
                found = f"{name}={getattr(self, name)}"
                raise InvalidInput("make a Cascade", expected=f"{name} >= {least}", found=found)
