"""Verbs that train: `train METHOD`, one for each trainer on pairs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import Bars, progress_bars
from compatstore.cli.verb import trust_code_option, verb
from compatstore.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable

    from click import Command

    from compatstore.artifacts.manifest import Manifest
    from compatstore.trainers import FCT
    from compatstore.trainers.pair_loop import PairProgress


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


@click.group("train")
def train() -> None:
    """Train on pairs of embeddings, and write an artifact."""


def _trainer(name: str) -> Callable[[], type]:
    """A trainer's class; torch loads here and not before."""

    def load() -> type:
        found: type = getattr(importlib.import_module("compatstore.trainers"), name)
        return found

    return load


@verb("fct", example="train fct --source v1.npz --target v2.npz --out h.compat", settings=_trainer("FCT"))
@click.option("--out", required=True, metavar="ARTIFACT", help="Directory to write, by custom NAME.compat.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@click.option("--source", metavar="FILE", help="Source vectors: Parquet, Arrow, Feather, npz or npy.")
@click.option("--target", metavar="FILE", help="Target vectors of the same items, by id or in the same order.")
@click.option("--side", metavar="FILE", help="Side-information of the source, by id or in the source's order.")
@click.option("--target-side", metavar="FILE", help="Side-information of the target, likewise.")
@click.option("--labels", metavar="FILE", help="Classes of the items (npy, npz or JSON), in the source's order.")
@click.option("--head", metavar="FILE", help="Classifier head of the target (npy or npz), for --loss kl.")
@click.option("--drop-missing", is_flag=True, help="Leave out ids that only one file has, instead of refusing them.")
@click.option("--gallery", help="Gallery whose versions the artifact is for; its own vectors, where no file is given.")
@click.option("--from", "source_version", metavar="VERSION", help="Version of the source vectors in --gallery.")
@click.option("--to", "target_version", metavar="VERSION", help="Version of the target vectors in --gallery.")
@trust_code_option
@pass_output
def fct(
    output: Output,
    out: str,
    overwrite: bool,
    source: str | None,
    target: str | None,
    side: str | None,
    target_side: str | None,
    labels: str | None,
    head: str | None,
    drop_missing: bool,
    gallery: str | None,
    source_version: str | None,
    target_version: str | None,
    trust_code: bool,
    settings: FCT,
) -> None:
    """Train a transform of stored vectors into the target space (FCT, CVPR 2022).

    Files hold `vector`, and perhaps `id`, `label` and `side`. With --gallery, --from and --to the artifact is bound to
    these versions, and learns from the items that are native in both where no files are given.
    """
    from compatstore.cli.pair_files import PairFiles

    files = PairFiles(
        source=source,
        target=target,
        side=side,
        target_side=target_side,
        labels=labels,
        head=head,
        drop_missing=drop_missing,
        gallery=gallery,
        source_version=source_version,
        target_version=target_version,
        trust_code=trust_code,
    )
    _require_free(out, overwrite)
    pairs = files.read()
    with progress_bars() as bars:
        artifact = settings.fit(pairs, _onto(bars))
    artifact.save(out, overwrite=overwrite)
    output.show(Trained(artifact.id, out, artifact.manifest), views.trained)


train.add_command(fct)


def _require_free(out: str, overwrite: bool) -> None:
    """Refuse before hours of training what would be refused after them."""
    if Path(out).exists() and not overwrite:
        fix = "Choose another name, or pass --overwrite."
        raise AlreadyExists(f"write {out}", expected="nothing there", found="something", fix=fix)


def _onto(bars: Bars) -> Callable[[PairProgress], None]:
    def update(at: PairProgress) -> None:
        watched: Any = at.loss if at.held_out_loss is None else at.held_out_loss
        bars.update(f"train {at.network}, epochs", at.epoch, at.epochs, f"loss {watched:.4g}")

    return update


VERBS: tuple[Command, ...] = (train,)
