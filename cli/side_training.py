"""Verbs that train side-information on images: `train simclr --images FOLDER --out side.safetensors`, and the like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli.image_training import epochs_onto, read_images, trainer_loader
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.verb import Verb, require_free, verb
from compatstore.shown import Table, table

if TYPE_CHECKING:
    from compatstore.trainers.side.training import SideTrainer

# Name of the verb, trainer, what it is. Torch loads when a verb's options are needed and not before.
KINDS = (
    ("simclr", "SimCLR", "Side-information from images alone: two views of one image are close."),
    ("autoencoder", "Autoencoder", "Side-information that an image can be drawn again from."),
    ("alternate", "Alternate", "Side-information from a second source model, of another seed."),
)


@dataclass(frozen=True)
class SideTrained:
    """What training made.

    Attributes:
        out: File of the model.
        encoder: ENCODER for --side-encoder.
        dim: Values of side-information an item.
        codes: Whether it is made to be stored as bits.
        figures: What was measured.
    """

    out: str
    encoder: str
    dim: int
    codes: bool
    figures: Mapping[str, float]


def _method(name: str, trainer: str, summary: str, *, augment: bool) -> Verb:
    """Make the verb of one trainer; its settings become options."""
    example = f"train {name} --images photos --source v1.model --size 32 --dim 128 --codes --out side.safetensors"

    @click.option("--images", required=True, metavar="FOLDER", help="Folder of class folders.")
    @click.option("--out", required=True, metavar="FILE", help="File to write, by custom NAME.safetensors.")
    @click.option("--overwrite", is_flag=True, help="Replace what is there.")
    @click.option("--source", metavar="MODEL", help="The model it is stored beside, to measure what it adds (CKA).")
    @click.option(
        "--drop-unreadable", is_flag=True, help="Leave out images that cannot be read; else they are refused."
    )
    @click.option("--checkpoint", metavar="FILE", help="Save to this file while training; go on from it after a stop.")
    @pass_output
    def method(
        output: Output,
        images: str,
        out: str,
        overwrite: bool,
        source: str | None,
        drop_unreadable: bool,
        checkpoint: str | None,
        settings: SideTrainer,
        augment: bool = False,
    ) -> None:
        require_free(out, overwrite)
        encoder = _source(source)
        found = read_images(images, settings.mode or "RGB", output, drop_unreadable=drop_unreadable)
        trainer = _with_views(settings) if augment else settings
        with progress_bars("train") as bars:
            made = trainer.fit(found, source=encoder, progress=epochs_onto(bars), checkpoint=checkpoint)
        made.encoder.save(out)
        output.show(SideTrained(out, f"network:{out}", made.encoder.dim, trainer.codes, made.figures), side_trained)

    if augment:
        method = click.option("--augment", is_flag=True, help="Train on random views, as the source model was.")(method)
    made = verb(name, examples=(example,), settings=trainer_loader(trainer))(method)
    made.help = f"{summary}\n\n{_AFTERWARDS}"
    return made


_AFTERWARDS = (
    "Train it when the source model is trained, on its images: it is stored with each item, and `train fct` and others "
    "read it once there is a target. --source is a folder that `train` wrote."
)


def side_trained(result: SideTrained) -> Iterator[str | Table]:
    """What training made, and how to go on, for people."""
    yield f"{result.encoder}: {result.dim} values of side-information"
    yield table(("figure", "value"), [(name, f"{value:.4g}") for name, value in result.figures.items()])
    stored = " --side-dtype bits" if result.codes else ""
    yield f"Store it: compatstore init GALLERY --version VERSION ... --side-encoder {result.encoder}{stored}"


def _source(folder: str | None) -> Any:
    if folder is None:
        return None
    from compatstore.trainers import TrainedModel

    return TrainedModel.load(folder).encoder


def _with_views(settings: Any) -> Any:
    from compatstore.trainers import Augmentation

    return replace(settings, augmentation=Augmentation())


METHODS: tuple[click.Command, ...] = tuple(_method(*row, augment=row[0] == "alternate") for row in KINDS)
