"""Decisions as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore import next_step
from compatstore.evaluation.advice import MORE, metric_name
from compatstore.evaluation.decision import DecisionTable
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Merge
from compatstore.evaluation.sample import AGREEMENT
from compatstore.shown import Table, table, view, wrapped


@view.register
def _(result: DecisionTable) -> Iterator[str | Table]:
    """The verdict, and the ways to serve the gallery; a document has the other figures."""
    yield from wrapped(result.advice.text)
    if MORE in result.advice.text:
        yield f"next: {next_step.call('judge', 'TARGET', queries=next_step.FILE)}"
    yield ways_table(result)
    if result.provenance:
        yield from wrapped(result.provenance)
    yield from wrapped(truth_line(result))


def ways_table(result: DecisionTable) -> Table:
    """Ways to serve the gallery: quality, gains, and queries fixed and broken; or agreement."""
    if not result.has_ground_truth:
        return table(
            ("way", *(f"{name} %" for name in AGREEMENT)),
            [(row.name, *(row.percent_of(name) for name in AGREEMENT)) for row in result.rows],
        )
    criterion = result.criterion
    rows = [
        (
            row.name,
            row.percent_of(criterion),
            row.gains[criterion].percent if criterion in row.gains else "-",
            *("--" if row.flips is None else (f"{100 * row.flips.positive:.1f}", f"{100 * row.flips.negative:.1f}")),
        )
        for row in result.rows
    ]
    return table(("way", f"{metric_name(criterion)} %", "gained", "fixed %", "broken %"), rows)


def truth_line(result: DecisionTable) -> str:
    """The measurement of a table's figures."""
    measured = f"{result.num_queries} queries, intervals of {result.confidence:.0%}".replace("%", " %")
    if result.has_ground_truth:
        return f"{measured}, correct by {result.truth}"
    return (
        f"{measured}, no ground truth. Agreement: share of the first {result.neighbours} results of a wholly native "
        "gallery that a way finds first, too. Unchanged: the same for the current results."
    )


@view.register
def _(result: Merge) -> Iterator[str | Table]:
    """The merging of the lists of native items and of the others."""
    yield from wrapped(f"merge: {result}")
    if not (result.bridge or result.worth):
        yield "searches go on as before: the merge is not significantly better than the status quo"
    elif not result.bridge:
        yield "price: two embeddings and two searches for a query, until the source is retired"


@view.register
def _(result: Fusion) -> Iterator[str | Table]:
    """The weight of a fused search, and the sample on which it was chosen."""
    yield f"weight {result.weight:.4g} at a native share of {result.native_share:.4g}"
    rows = [
        (
            f"{choice.native_share:.4g}",
            f"{choice.weight:.4g}",
            "apart" if choice.per_origin else "together",
            "-" if choice.gain is None else f"{100 * choice.gain.value:+.1f} (>= {100 * choice.gain.low:+.1f})",
        )
        for choice in result.choices
    ]
    if result.choice is not None:
        yield table(("native share", "weight", "standardised", f"{result.choice.criterion} gained"), rows)
        truth = result.choice.truth
        yield f"{result.choice.num_queries} queries, " + (f"correct by {truth}" if truth else "no ground truth")
    if result.weight == 0:
        yield "searches go on as before: no weight is significantly better"
    elif result.weight == 1:
        yield "searches go on as before: the target alone is to be searched, after a cutover"
    else:
        yield "price: two embeddings and two searches for a query, until the source is retired"
        if result.choice is not None and result.choice.loss:
            yield from wrapped(f"without them: {result.choice.loss}")
