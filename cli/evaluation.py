"""Verbs that measure the gain of an upgrade: evaluate before a decision, report afterwards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

import compatstore as cs
from compatstore.cli.exit_codes import GATE_FAILED
from compatstore.cli.output import Output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.settings import Options
from compatstore.cli.verb import gallery_verb, is_given, open_gallery, target_encoder, trust_code_option
from compatstore.shown import view


@gallery_verb(
    "evaluate",
    "evaluate photos.lance v2 --sample 1000",
    "evaluate photos.lance v2 --labels category --weight best",
    "evaluate shop.lance v2 --queries queries.jsonl --qrels qrels.tsv --criterion ndcg@10",
    requests={
        "gates": Options(
            "compatstore:Gates", only=("require", "max_negative_flips", "labels", "criterion", "sample", "serving")
        ),
        "backfill": Options("compatstore:Backfill", only=("order", "seed")),
    },
)
@click.argument("target")
@click.option(
    "--shares", type=float, multiple=True, metavar="SHARE", help="Budget of the backfill to show; repeat for more."
)
@click.option("--transform", metavar="ARTIFACT", help="Artifact to use: its id, or the first digits of it.")
@click.option(
    "--weight",
    metavar="W|best",
    help="Weight of TARGET's distances in the fused search of an upgrade under way, 0 to 1, or "
    "best to choose it on the sample; it is stored.",
)
@trust_code_option
def evaluate(
    output: Output,
    gallery: str,
    target: str,
    shares: tuple[float, ...],
    transform: str | None,
    weight: str | None,
    trust_code: bool,
    gates: cs.Gates,
    backfill: cs.Backfill,
) -> int:
    """Measure the gain of an upgrade, on a sample.

    Every way to serve the gallery during an upgrade to TARGET is measured, with intervals, and the best is advised.
    Nothing is written to the gallery: a sample of items is embedded with the target's model, compared with the output
    of the hop, and discarded. Gates are checked at the budget with the best figure.

    With --weight best the weight of each version is chosen on the sample, for the share of TARGET's vectors that are
    native and for larger ones, and stored. From then on searches with an image or a text use both models, until the
    version before TARGET is retired. If no weight is significantly better than that version alone, searches go on as
    before. Without a hop the merge of native items and the others is calibrated and measured instead.
    """
    from compatstore.upgrade.requests.gates import check_gates, require_ground_truth
    from compatstore.upgrade.views import gate_lines

    require_ground_truth(gates.figures, gates.labels)  # before anything is embedded
    opened = open_gallery(gallery, trust_code=trust_code, target=target)
    ways: dict[str, Any] = {"transform": transform, **({"shares": shares} if shares else {})}
    if weight is not None:
        ways = {"weight": weight if weight == "best" else float(click.FLOAT(weight))}
    with progress_bars("evaluate") as bars:
        measured = opened.evaluate(
            target,
            labels=gates.labels,
            sample=gates.sample,
            criterion=gates.criterion,
            backfill=backfill,
            progress=onto(bars),
            **ways,
        )
    output.show(measured, view)
    if weight is not None:
        return 0
    checked = check_gates(measured.best_of(gates.way), gates)
    for line in gate_lines(checked):
        output.note(line)
    return 0 if all(gate.passed for gate in checked) else GATE_FAILED


@gallery_verb(
    "report",
    "report photos.lance --out report.html",
    "report photos.lance v2 --labels category --by category --worst 3",
    requests={
        "gates": Options("compatstore:Gates", only=("labels", "criterion")),
        "details": Options("compatstore:Details"),
    },
)
@click.argument("target", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write the report there: one page if PATH ends in .html, else Markdown, JSON and pictures in a folder.",
)
@click.option(
    "--sample",
    type=int,
    metavar="N",
    help="Items to measure with; by default as many "
    "as the estimate had, or 2000 if there was none and another option needs a measurement.",
)
@click.option("--no-measure", is_flag=True, help="Report the history and the estimates only.")
@trust_code_option
def report(
    output: Output,
    gallery: str,
    target: str | None,
    out: Path | None,
    sample: int | None,
    no_measure: bool,
    trust_code: bool,
    gates: cs.Gates,
    details: cs.Details,
) -> None:
    """Report on an upgrade: history, estimates and measured quality.

    The report compares the estimates made before the upgrade, on plan's terms, with a new measurement, on items that
    the estimate has not used. Without an estimate, --sample, --labels or --criterion requests a measurement. TARGET is
    that of the last upgrade by default.

    With --out the report lists single queries too, if there is a measurement; --worst, --best, --neighbours, --by and
    --caption list queries as well, and request a measurement.
    """
    from compatstore.upgrade.estimates.estimate import SAMPLE

    if target is None and target_encoder() is not None:
        raise click.UsageError("--encoder needs TARGET, or VERSION=.")
    opened = open_gallery(gallery, trust_code=trust_code, target=target)
    if sample is None and not no_measure and (gates.labels is not None or is_given("criterion")):
        sample = SAMPLE
    named = [option for option in ("worst", "best", "neighbours", "by", "caption") if is_given(option)]
    if named and no_measure:
        raise click.UsageError(f"--{named[0]} needs a measurement: remove --no-measure.")
    with progress_bars("report") as bars:
        make_report = partial(
            opened.report,
            target,
            labels=gates.labels,
            criterion=gates.criterion,
            measure=not no_measure,
            details=details if named or out is not None else None,
            progress=onto(bars),
        )
        result = make_report(sample=sample)
        if named and result.measured is None:  # without an estimate no number of items is known
            result = make_report(sample=SAMPLE)
    output.show(result, view)
    if out is not None:
        from compatstore.report.files import write_report

        for file in write_report(result, out):
            output.note(f"wrote {file}")
