"""Verbs that train: `train METHOD`, here on pairs of embeddings, a line of a table for each trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from compatstore.cli import across_training, image_training, side_training
from compatstore.cli.image_training import trainer_loader
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import Bars, progress_bars
from compatstore.cli.verb import Verb, require_free, shown_examples, trust_code_option, verb
from compatstore.shown import Table, figures

if TYPE_CHECKING:
    from compatstore.artifacts.manifest import Manifest
    from compatstore.trainers.pairs.trainer import PairTrainer
    from compatstore.trainers.training import EpochProgress

# Name of the verb, trainer, what it is. Torch loads when a verb's options are needed and not before.
METHODS = (
    ("fct", "FCT", "Forward-compatible training: a network, with side-information where there is some."),
    ("fastfill", "FastFill", "FastFill: FCT's network, a loss through the target's head, and an uncertainty."),
    ("residual", "Residual", "The residual start: a ridge solution and a network for what it misses."),
    ("rbt", "RBT", "A residual bottleneck transform."),
    ("lce", "LCE", "The transform of learning compatible embeddings."),
    ("dmu-head", "DMUHead", "The adaptation head of darwinian model upgrades."),
    ("drift-adapter", "DriftAdapter", "A small residual network, trained in a minute."),
    ("ridge", "Ridge", "An affine map by ridge regression, in closed form."),
    ("low-rank-ridge", "LowRankRidge", "A ridge regression of reduced rank, in closed form."),
    ("low-rank-affine", "LowRankAffine", "A low-rank affine map, in closed form."),
    ("kernel-ridge", "KernelRidge", "Ridge regression with a Gaussian kernel: not linear, and in closed form."),
    ("procrustes", "Procrustes", "A rotation, in closed form."),
    ("diagonal-scale", "DiagonalScale", "A rotation and a scale a dimension, in closed form."),
    ("mean-shift", "MeanShift", "A shift of the mean, in closed form."),
    ("auto", "Auto", "Fit several and keep the one that retrieves best on held-out pairs."),
)


@dataclass(frozen=True)
class Trained:
    """What training made.

    Attributes:
        id: Of the artifact.
        out: Where it lies.
        manifest: What it is, with its settings and held-out figures.
    """

    id: str
    out: str
    manifest: Manifest


@click.group(
    "train",
    epilog=shown_examples(
        (
            "train auto --gallery photos.lance --source v1 --target v2.npz --to v2 --out h.compat",
            "train bct --images photos --source v1.model --dim 64 --size 32 --out v2.model",
        )
    ),
)
def train() -> None:
    """Train on pairs of embeddings, or on images."""


_KINDS = "a file (Parquet, Arrow, Feather, npz, npy); with --gallery also one of its versions or columns."
_LABELS = "Classes: with --gallery one of its columns, else a file (npy, npz, JSON) in the source's order."
_FILES = (
    "Files hold `vector`, and perhaps `id`, `label` and `side`; rows are joined by id, or else by their order. With "
    "--gallery each of --source and --target is a version of it (its native vectors), a column of it, or a file with "
    "ids, and all are joined by id: train ridge --gallery photos.lance --source v1 --target v2.npz --to v2. --from and "
    "--to bind the artifact to versions, and are what --source and --target are where these are left out."
)


def _method(name: str, trainer: str, summary: str) -> Verb:
    """Make the verb of one trainer; its settings become options."""

    @verb(
        name,
        examples=(
            f"train {name} --source v1.npz --target v2.npz --out h.compat",
            f"train {name} --gallery photos.lance --source v1 --target v2.npz --to v2 --out h.compat",
        ),
        settings=trainer_loader(trainer),
    )
    @click.option("--out", required=True, metavar="ARTIFACT", help="Directory to write, by custom NAME.compat.")
    @click.option("--overwrite", is_flag=True, help="Replace what is there.")
    @click.option("--source", metavar="VECTORS", help=f"Source vectors: {_KINDS}")
    @click.option("--target", metavar="VECTORS", help=f"Target vectors of the same items: {_KINDS}")
    @click.option("--side", metavar="FILE", help="Side-information of the source, by id or in the source's order.")
    @click.option("--target-side", metavar="FILE", help="Side-information of the target.")
    @click.option("--labels", metavar="LABELS", help=_LABELS)
    @click.option("--target-head", metavar="FILE", help="Classifier head of the target model (npy, npz).")
    @click.option("--drop-missing", is_flag=True, help="Leave ids out that only one file has; else they are refused.")
    @click.option(
        "--gallery",
        metavar="GALLERY",
        help="Gallery whose versions the artifact is for, or whose vectors it learns from.",
    )
    @click.option("--from", "source_version", metavar="VERSION", help="Version in --gallery of the source vectors.")
    @click.option("--to", "target_version", metavar="VERSION", help="Version in --gallery of the target vectors.")
    @trust_code_option
    @pass_output
    def method(
        output: Output,
        out: str,
        overwrite: bool,
        source: str | None,
        target: str | None,
        side: str | None,
        target_side: str | None,
        labels: str | None,
        target_head: str | None,
        drop_missing: bool,
        gallery: str | None,
        source_version: str | None,
        target_version: str | None,
        trust_code: bool,
        settings: PairTrainer,
    ) -> None:
        from compatstore.cli.pair_files import PairFiles

        files = PairFiles(
            source=source,
            target=target,
            side=side,
            target_side=target_side,
            labels=labels,
            target_head=target_head,
            drop_missing=drop_missing,
            gallery=gallery,
            source_version=source_version,
            target_version=target_version,
            trust_code=trust_code,
        )
        require_free(out, overwrite)
        pairs = files.read(output.note)
        with progress_bars("train") as bars:
            artifact = settings.fit(pairs, _onto(bars))
        artifact.save(out, overwrite=overwrite)
        output.show(Trained(artifact.id, out, artifact.manifest), _trained)

    method.help = f"{summary}\n\n{_FILES}"
    return method


def _onto(bars: Bars) -> Callable[[EpochProgress], None]:
    def update(at: EpochProgress) -> None:
        watched = at.loss if at.held_out_loss is None else at.held_out_loss
        bars.update(f"train {at.network}, epochs", at.epoch, at.epochs, f"loss {watched:.4g}")

    return update


def _trained(result: Trained) -> Iterator[str | Table]:
    """What training made."""
    source, target = result.manifest.source, result.manifest.target
    yield f"{result.id[:12]}  {result.manifest.method}  {source.dim} -> {target.dim} values, in {result.out}"
    yield from figures(result.manifest.figures)


for row in METHODS:
    train.add_command(_method(*row))
for command in (*image_training.METHODS, across_training.bt2_across, *side_training.METHODS):
    train.add_command(command)
