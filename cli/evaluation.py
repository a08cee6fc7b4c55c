"""Verbs that measure what an upgrade gives: evaluate before anybody decides, report when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from compatstore.cli.exit_codes import GATE_FAILED
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.verb import (
    gallery_argument,
    open_gallery,
    open_target,
    target_encoder_option,
    trust_code_option,
    verb,
)
from compatstore.tables import Table, table

if TYPE_CHECKING:
    from compatstore.cli.settings import Options
    from compatstore.evaluation import DecisionRow, DecisionTable, Fusion, Merge
    from compatstore.upgrade.estimates.estimate import UpgradeEstimate
    from compatstore.upgrade.estimates.gates import Gate
    from compatstore.upgrade.estimates.reporting import UpgradeReport
    from compatstore.upgrade.requests.backfill import Backfill
    from compatstore.upgrade.requests.gates import Gates


def _of_evaluate() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_evaluate

    return of_evaluate()


@verb("evaluate", example="evaluate photos.lance v2 --labels category --plot decision.png", requests=_of_evaluate)
@gallery_argument
@click.argument("target")
@click.option(
    "--shares", type=float, multiple=True, metavar="SHARE", help="Budget of the backfill to show; repeat for more."
)
@click.option("--via", metavar="ARTIFACT", help="Artifact to use: its id, or the first digits of it.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the table, as PNG or SVG.")
@target_encoder_option
@trust_code_option
@pass_output
@click.pass_context
def evaluate(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str,
    shares: tuple[float, ...],
    via: str | None,
    plot: Path | None,
    encoder: str | None,
    trust_code: bool,
    asked: Gates,
    backfill: Backfill,
) -> None:
    """Measure what an upgrade gains, on a sample.

    Every way to serve the gallery during an upgrade to TARGET is measured, with intervals, and the best is advised.
    Nothing is written to the gallery: a sample of items is embedded with the target's model, compared with what the
    hop makes of it, and forgotten. Gates are judged at the budget with the best figure.
    """
    from compatstore.upgrade.estimates.estimate import SAMPLE
    from compatstore.upgrade.estimates.gates import check_gates

    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    with progress_bars("evaluate"):
        measured = opened.evaluate(
            target,
            labels=asked.labels,
            sample=SAMPLE if asked.sample is None else asked.sample,
            criterion=asked.criterion,
            shares=shares or (0.1, 0.25, 0.5),
            via=via,
            order=backfill.order,
            seed=backfill.seed or 0,
        )
    output.show(measured, _decision)
    if plot is not None:
        from compatstore.evaluation import plot_decision

        output.note(f"drew {plot_decision(measured, plot)}")
    judged = check_gates(measured.best_of(asked.serving), asked)
    for line in _gates(judged):
        output.note(line)
    ctx.exit(0 if all(gate.passed for gate in judged) else GATE_FAILED)


def _of_fuse() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_report

    return of_report()


@verb("fuse", example="fuse photos.lance v2 --labels category", requests=_of_fuse)
@gallery_argument
@click.argument("target")
@click.option("--sample", type=int, metavar="N", default=1000, show_default=True, help="Items to choose by.")
@click.option("--weight", type=float, metavar="W", help="Take this weight of the target's distances, from 0 to 1.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@target_encoder_option
@trust_code_option
@pass_output
def fuse(
    output: Output,
    gallery: str,
    target: str,
    sample: int,
    weight: float | None,
    seed: int,
    encoder: str | None,
    trust_code: bool,
    asked: Gates,
) -> None:
    """Choose how both versions of an upgrade are searched as one.

    The weight is chosen on a sample, for the share of TARGET's vectors that are native and for larger ones, and stored.
    From then on searches with an image or a text ask both models, until the version before TARGET is retired. Where
    no weight is surely better than the version before TARGET alone, searches go on as before. Without a hop it chooses
    how native items and the others are merged: by distance, by calibrated distance or by reciprocal rank.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    with progress_bars("fuse"):
        chosen = opened.fuse(
            target, labels=asked.labels, criterion=asked.criterion, sample=sample, weight=weight, seed=seed
        )
    output.show(chosen, _chosen)


def _of_report() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_report

    return of_report()


@verb("report", example="report photos.lance v2 --out report", requests=_of_report)
@gallery_argument
@click.argument("target", required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write Markdown, JSON and a picture there.")
@click.option(
    "--sample",
    type=int,
    metavar="N",
    help="Items to measure with; by default as many "
    "as the estimate had, or 2000 where --labels or --criterion is named.",
)
@click.option("--no-measure", is_flag=True, help="Only tell what was done and estimated.")
@target_encoder_option
@trust_code_option
@pass_output
@click.pass_context
def report(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str | None,
    out: Path | None,
    sample: int | None,
    no_measure: bool,
    encoder: str | None,
    trust_code: bool,
    asked: Gates,
) -> None:
    """Tell the life of an upgrade, and what it gave.

    What was estimated before it, with plan's terms, stands beside what is measured now, with items that the estimate
    has not seen. Where nothing was estimated, --sample, --labels or --criterion asks for a measurement. TARGET is that
    of the last upgrade, where it is left out.
    """
    from compatstore.upgrade.estimates.estimate import SAMPLE

    if encoder is not None and target is None:
        raise click.UsageError("--encoder needs TARGET.")
    opened = (
        open_gallery(gallery, trust_code=trust_code)
        if target is None
        else open_target(gallery, target, encoder, trust_code=trust_code)
    )
    if sample is None and not no_measure and (asked.labels is not None or _named(ctx, "criterion")):
        sample = SAMPLE
    with progress_bars("report"):
        told = opened.report(
            target, sample=sample, labels=asked.labels, criterion=asked.criterion, measure=not no_measure
        )
    output.show(told, _report)
    if out is not None:
        from compatstore.report.files import write_report

        for file in write_report(told, out):
            output.note(f"wrote {file}")


def _named(ctx: click.Context, option: str) -> bool:
    """Whether the command line names an option."""
    return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE


def _decision(result: DecisionTable) -> Iterator[str | Table]:
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
        yield result.provenance
    yield table(headings, rows)
    yield f"{result.num_queries} queries, correct by {result.truth}, intervals of {result.confidence:.0%}"
    yield f"{result.advice.verdict}: {result.advice.text}"


def _chosen(result: Fusion | Merge) -> Iterator[str | Table]:
    """How both versions are searched as one, by a fusion or by a merge."""
    from compatstore.evaluation import Merge

    yield from _merge(result) if isinstance(result, Merge) else _fusion(result)


def _merge(result: Merge) -> Iterator[str | Table]:
    """How the lists of native items and of the others are merged."""
    yield f"merge: {result.merge} at a native share of {result.native_share:.4g}"
    rows = [
        (f"{choice.native_share:.4g}", choice.merge, choice.gain.percent, choice.over_status_quo.percent)
        for choice in result.choices
    ]
    if result.choice is not None:
        criterion = result.choice.criterion
        headings = ("native share", "merge", f"{criterion} over {result.choice.rule}", f"{criterion} gained")
        yield table(headings, rows)
        yield f"{result.choice.num_queries} queries, correct by {result.choice.truth}"
    if not result.bridge:
        yield "price: two embeddings and two searches for a query, until the source is retired"


def _fusion(result: Fusion) -> Iterator[str | Table]:
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


def estimate_view(result: UpgradeEstimate) -> Iterator[str | Table]:
    """What an upgrade is expected to give."""
    measured, criterion = result.table, result.table.criterion
    rows = [
        (_mark(row.share, result), row.name, row.percent_of(criterion), _kept(row, criterion))
        for row in measured.served(result.terms.serving)
    ]
    before = measured.rows[0]
    yield ""
    if measured.provenance:
        yield measured.provenance
    yield table(
        ("", "way", f"{criterion} %", "of full backfill %"),
        [("", before.name, before.percent_of(criterion), _kept(before, criterion)), *rows],
    )
    yield (
        f"{measured.num_queries} queries, correct by {measured.truth}, intervals of {measured.confidence:.0%}; "
        "> budget taken, * best figure"
    )
    yield result.promise
    yield f"{measured.advice.verdict}: {measured.advice.text}"
    yield from _gates(result.gates)


def _gates(judged: Sequence[Gate]) -> Iterator[str]:
    """Which gates are passed."""
    for gate in judged:
        yield f"{'passed' if gate.passed else 'FAILED'}: {gate.name}, estimated {gate.estimate.percent} %"


def _kept(row: DecisionRow, criterion: str) -> str:
    return row.kept[criterion].percent if criterion in row.kept else "-"


def _mark(share: float, result: UpgradeEstimate) -> str:
    return (">" if share == result.share else "") + ("*" if share == result.best else "")


def _report(result: UpgradeReport) -> Iterator[str | Table]:
    """An upgrade as a whole."""
    yield f"{result.source} -> {result.target}: {result.state}"
    yield (
        f"{result.rows} items: {result.native} native, {result.transformed} transformed, {result.missing} missing; "
        f"{result.embedded} embedded, {result.seconds:.1f} s" + (f", cost {result.cost:.4g}" if result.cost else "")
    )
    yield table(
        ("at", "step", "rows", "seconds", "note"),
        [(step.at, step.step, step.rows, step.seconds, step.note) for step in result.history],
    )
    if result.estimate is not None:
        yield from estimate_view(result.estimate)
    if result.measured is not None and result.measured.provenance:
        yield result.measured.provenance
    if result.compared:
        yield ""
        yield table(
            ("figure", "estimated %", "measured %", "agree"),
            [(c.what, c.estimated.percent, c.measured.percent, "yes" if c.agrees else "no") for c in result.compared],
        )
    if result.measured is not None and (not result.compared or result.measured.served("fused")):
        yield ""
        yield from _measured(result.measured)
    if result.unbackfillable:
        yield f"{result.embeddable} items can be embedded natively, {result.unbackfillable} cannot:"
    for item, reason in result.reasons:
        yield f"not embedded: {item}: {reason}"
    if result.advice:
        yield result.advice
    if result.measured is None and result.estimate is None:
        yield "nothing was estimated or measured; measure it: compatstore report GALLERY TARGET --sample 500"


def _measured(result: DecisionTable) -> Iterator[Table]:
    """What is measured where nothing was estimated."""
    from compatstore.upgrade.estimates.measured import what_matters

    found = what_matters(result)
    names = list(dict.fromkeys(name for _, row in found for name in row.figures))
    rows = [(what, *(row.percent_of(name) for name in names)) for what, row in found]
    yield table(("way", *(f"{name} %" for name in names)), rows)
