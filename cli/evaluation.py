"""The verb that measures before anybody decides: evaluate."""

from __future__ import annotations

from pathlib import Path

import click

from compatstore.cli import views
from compatstore.cli.exit_codes import GATE_FAILED
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.terms import gate_options, gates, labels_option
from compatstore.cli.verb import gallery_argument, open_target, target_encoder_option, trust_code_option, verb


@verb("evaluate", example="evaluate photos.lance v2 --labels category --plot decision.png")
@gallery_argument
@click.argument("target")
@labels_option
@click.option("--sample", type=int, default=2000, show_default=True, help="Items to look at.")
@click.option(
    "--criterion",
    type=click.Choice(["map", "cmc@1", "cmc@5"]),
    default="map",
    show_default=True,
    help="The figure that decides.",
)
@click.option(
    "--shares", type=float, multiple=True, metavar="SHARE", help="Budget of the backfill to show; repeat for more."
)
@click.option("--via", metavar="ARTIFACT", help="Artifact to use: its id, or the first digits of it.")
@click.option("--policy", help="Order of the backfill.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample and of the intervals.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the table, as PNG or SVG.")
@gate_options[0]
@gate_options[1]
@target_encoder_option
@trust_code_option
@pass_output
@click.pass_context
def evaluate(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str,
    labels: str | None,
    sample: int,
    criterion: str,
    shares: tuple[float, ...],
    via: str | None,
    policy: str | None,
    seed: int,
    plot: Path | None,
    require: tuple[str, ...],
    max_negative_flips: float | None,
    encoder: str | None,
    trust_code: bool,
) -> None:
    """Measure what an upgrade gains, on a sample.

    Every way to serve the gallery during an upgrade to TARGET is measured, with intervals, and the best is advised.
    Nothing is written to the gallery: a sample of items is embedded with the target's model, compared with what the
    hop makes of it, and forgotten. Gates are judged at the budget with the best figure.
    """
    from compatstore.upgrade.estimates.gates import Terms, judge_gates

    asked = Terms(require=require, max_negative_flips=max_negative_flips)
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    with progress_bars("evaluate"):
        measured = opened.evaluate(
            target,
            labels=labels,
            sample=sample,
            criterion=criterion,
            shares=shares or (0.1, 0.25, 0.5),
            via=via,
            policy=policy,
            seed=seed,
        )
    output.show(measured, views.decision)
    if plot is not None:
        from compatstore.evaluation import plot_decision

        output.note(f"drew {plot_decision(measured, plot)}")
    judged = judge_gates(measured.best, asked)
    for line in gates(judged):
        output.note(line)
    ctx.exit(0 if all(gate.passed for gate in judged) else GATE_FAILED)


VERBS = (evaluate,)
