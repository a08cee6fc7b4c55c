"""Details of a report query by query, beside figures of all queries."""

from __future__ import annotations

from dataclasses import dataclass, field

from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput

MOST_QUERIES, MOST_NEIGHBOURS = 50, 20


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Details:
    """Details of a report query by query.

    Args:
        worst: Queries to show, from 0 to 50: those whose figure fell most.
        best: Queries to show, from 0 to 50: those whose figure rose most.
        neighbours: Items to show that each of these finds before and after the upgrade, from 1 to 20.
        by: Column that groups the query items, such as their language; the gap of each group to all queries is
            shown. By default the column of labels.
        caption: Column to show with each item, such as its title.

    Raises:
        InvalidInput: A number is out of its range.

    Examples:
        >>> cs.Details(worst=3, by="language").neighbours
        5
    """

    worst: int = field(default=6, metadata={"unit": "N"})
    best: int = field(default=3, metadata={"unit": "N"})
    neighbours: int = field(default=5, metadata={"unit": "K"})
    by: str | None = field(default=None, metadata={"unit": "COLUMN"})
    caption: str | None = field(default=None, metadata={"unit": "COLUMN"})

    def __post_init__(self) -> None:
        for name, least, most in (
            ("worst", 0, MOST_QUERIES),
            ("best", 0, MOST_QUERIES),
            ("neighbours", 1, MOST_NEIGHBOURS),
        ):
            found = getattr(self, name)
            if not least <= found <= most:
                raise InvalidInput("report on an upgrade", expected=f"{name} from {least} to {most}", found=f"{found}")
