"""The verb that looks back on an upgrade: report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from compatstore.cli import estimate_views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.tables import Table, table
from compatstore.cli.verb import (
    gallery_argument,
    open_gallery,
    open_target,
    target_encoder_option,
    trust_code_option,
    verb,
)

if TYPE_CHECKING:
    from click import Command

    from compatstore.cli.settings import Options
    from compatstore.evaluation import DecisionTable
    from compatstore.upgrade.estimates.reporting import UpgradeReport
    from compatstore.upgrade.requests.gates import Gates


def _options() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_report

    return of_report()


@verb("report", example="report photos.lance v2 --out report", requests=_options)
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
    output.show(told, _view)
    if out is not None:
        from compatstore.upgrade.estimates.report_files import write_report

        for file in write_report(told, out):
            output.note(f"wrote {file}")


def _view(result: UpgradeReport) -> Iterator[str | Table]:
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
        yield from estimate_views.estimate(result.estimate)
    if result.measured is not None and result.measured.provenance:
        yield result.measured.provenance
    if result.compared:
        yield ""
        yield table(
            ("figure", "estimated %", "measured %", "agree"),
            [(c.what, c.estimated.percent, c.measured.percent, "yes" if c.agrees else "no") for c in result.compared],
        )
    elif result.measured is not None:
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


def _named(ctx: click.Context, option: str) -> bool:
    """Whether the command line names an option."""
    return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE


def _measured(result: DecisionTable) -> Iterator[Table]:
    """What is measured where nothing was estimated."""
    from compatstore.upgrade.estimates.measured import what_matters

    found = what_matters(result)
    names = list(dict.fromkeys(name for _, row in found for name in row.figures))
    rows = [(what, *(row.percent_of(name) for name in names)) for what, row in found]
    yield table(("way", *(f"{name} %" for name in names)), rows)


VERBS: tuple[Command, ...] = (report,)
