"""The verb that measures before anybody decides: evaluate."""

from __future__ import annotations

from pathlib import Path

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import gallery_argument, open_target, target_encoder_option, trust_code_option, verb


@verb("evaluate", example="evaluate photos.lance v2 --labels category --plot decision.png")
@gallery_argument
@click.argument("target")
@click.option("--labels", metavar="COLUMN", help="Column that says which items are correct for each other.")
@click.option("--sample", type=int, default=2000, show_default=True, help="Items to look at.")
@click.option(
    "--criterion",
    type=click.Choice(["cmc@1", "cmc@5", "map"]),
    default="cmc@1",
    show_default=True,
    help="The figure that decides.",
)
@click.option(
    "--shares", type=float, multiple=True, metavar="SHARE", help="Budget of the backfill to measure; repeat for more."
)
@click.option("--via", metavar="ARTIFACT", help="Artifact to use: its id, or the first digits of it.")
@click.option("--policy", help="Order of the backfill.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample and of the intervals.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the table, as PNG or SVG.")
@target_encoder_option
@trust_code_option
@pass_output
def evaluate(
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
    encoder: str | None,
    trust_code: bool,
) -> None:
    """Measure what an upgrade gains, on a sample.

    Every way to serve the gallery during an upgrade to TARGET is measured, with intervals, and the best is advised.
    Nothing is written to the gallery: a sample of items is embedded with the target's model, compared with what the
    hop makes of it, and forgotten.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
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


VERBS = (evaluate,)
