"""Ranges of settings: types of fields, as in `epochs: Count`, which `checked_fields` checks."""

from __future__ import annotations

from typing import Annotated

from compatstore.boundary import Rule as Rule


def at_least(least: float) -> Rule:
    """Numbers >= `least`."""
    return Rule(f">= {least:g}", lambda value: value >= least)


def above(limit: float) -> Rule:
    """Numbers > `limit`."""
    return Rule(f"> {limit:g}", lambda value: value > limit)


def from_to(least: float, most: float) -> Rule:
    """Numbers of the closed interval [least, most]."""
    return Rule(f"from {least:g} to {most:g}", lambda value: least <= value <= most)


def each(rule: Rule) -> Rule:
    """Tuples of one value or more, each of which fulfils a rule."""
    return Rule(f"of one value or more, each {rule.text}", lambda values: bool(values) and all(map(rule.holds, values)))


NOT_EMPTY = Rule("of one value or more", bool)

Count = Annotated[int, at_least(1)]
BatchRows = Annotated[int, at_least(2)]
Positive = Annotated[float, above(0)]
NotNegative = Annotated[float, at_least(0)]
Share = Annotated[float, Rule("from 0 to below 1", lambda value: 0 <= value < 1)]
OpenShare = Annotated[float, Rule("between 0 and 1", lambda value: 0 < value < 1)]
