"""Decisions as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.evaluation.decision import DecisionTable
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Merge
from compatstore.shown import Table, table, view, wrapped


@view.register
def _(result: DecisionTable) -> Iterator[str | Table]:
    """What every way to serve the gallery is worth, and what to do."""
    names = list(dict.fromkeys(name for row in result.rows for name in row.figures))
    criterion = result.criterion
    rows = [
        (
            row.name,
            row.notation,
            *(row.percent_of(name) for name in names),
            row.gains[criterion].percent if criterion in row.gains else "-",
        )
        for row in result.rows
    ]
    headings = ("way", "query/gallery", *(f"{name} %" for name in names), f"{criterion} gained")
    if result.provenance:
        yield from wrapped(result.provenance)
    yield table(headings, rows)
    yield from wrapped(f"{result.num_queries} queries, correct by {result.truth}, intervals of {result.confidence:.0%}")
    yield from wrapped(f"{result.advice.verdict}: {result.advice.text}")


@view.register
def _(result: Merge) -> Iterator[str | Table]:
    """How the lists of native items and of the others are merged."""
    yield from wrapped(f"merge: {result}")
    if not (result.bridge or result.worth):
        yield "searches go on as before: the merge is not better than the status quo for certain"
    elif not result.bridge:
        yield "price: two embeddings and two searches for a query, until the source is retired"


@view.register
def _(result: Fusion) -> Iterator[str | Table]:
    """How both versions are searched as one."""
    yield f"weight {result.weight:.4g} at a native share of {result.native_share:.4g}"
    rows = [
        (
            f"{choice.native_share:.4g}",
            f"{choice.weight:.4g}",
            "apart" if choice.per_origin else "together",
            f"{100 * choice.gain:+.1f} ({100 * choice.low:+.1f} at least)",
        )
        for choice in result.choices
    ]
    if result.choice is not None:
        yield table(("native share", "weight", "standardised", f"{result.choice.criterion} gained"), rows)
        yield f"{result.choice.num_queries} queries, correct by {result.choice.truth}"
    if result.weight == 0:
        yield "searches go on as before: no weight is surely better"
    elif result.weight == 1:
        yield "searches go on as before: the target alone is best, when it is cut over to"
    else:
        yield "price: two embeddings and two searches for a query, until the source is retired"
        if result.choice is not None and result.choice.loss:
            yield from wrapped(f"without them: {result.choice.loss}")
