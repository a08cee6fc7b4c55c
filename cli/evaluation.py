"""The verb that measures before anybody decides: evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.estimate_views import gates
from compatstore.cli.exit_codes import GATE_FAILED
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.verb import gallery_argument, open_target, target_encoder_option, trust_code_option, verb

if TYPE_CHECKING:
    from compatstore.cli.settings import Options
    from compatstore.upgrade.requests.backfill import Backfill
    from compatstore.upgrade.requests.gates import Gates


def _options() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_evaluate

    return of_evaluate()


@verb("evaluate", example="evaluate photos.lance v2 --labels category --plot decision.png", requests=_options)
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
    output.show(measured, views.decision)
    if plot is not None:
        from compatstore.evaluation import plot_decision

        output.note(f"drew {plot_decision(measured, plot)}")
    judged = check_gates(measured.best, asked)
    for line in gates(judged):
        output.note(line)
    ctx.exit(0 if all(gate.passed for gate in judged) else GATE_FAILED)


VERBS = (evaluate,)
