"""What a backfill has used, and what it could not embed, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compatstore.storage.ledger import Spent

_ENDED = {
    "backfill": "its share is reached",
    "max_rows": "its limit of items ended it",
    "max_seconds": "its limit of time ended it",
    "max_cost": "its limit of money ended it",
    "target_quality": "its target quality is sure to be reached",
    "gain": "more of it is sure to gain nothing",
}


def spent_lines(spent: Spent, ended_by: str, margin: str = "") -> Iterator[str]:
    """What a backfill has used so far, and which limit ended it."""
    if spent.rows:
        cost = f", {spent.tokens} tokens" if spent.tokens else ""
        cost += f", {spent.cost:g} in cost" if spent.cost else ""
        ended = f"; {_ENDED[ended_by]}" if ended_by else ""
        yield f"{margin}backfill so far: {spent.rows} items in {spent.seconds:.1f} s{cost}{ended}"


def reason_lines(reasons: Sequence[tuple[str, str]], total: int) -> Iterator[str]:
    """The first items that cannot be embedded, with reasons, and how many more there are."""
    yield from (f"    {item}: {reason}" for item, reason in reasons)
    if total > len(reasons):
        yield f"    and {total - len(reasons)} more"
