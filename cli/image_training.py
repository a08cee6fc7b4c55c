"""Verbs that train on images: `train METHOD --images FOLDER`, a line of a table for each trainer."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import Bars, progress_bars
from compatstore.cli.verb import Verb, verb
from compatstore.errors import first_offenders
from compatstore.shown import Table, table

if TYPE_CHECKING:
    from compatstore.encoders.images import Mode
    from compatstore.trainers import Images, Independent, Refreshed, TrainedModel
    from compatstore.trainers.images.compatible import CompatibleTraining
    from compatstore.trainers.training import EpochProgress
    from compatstore.versions import HeadLoss

# Name of the verb, trainer, what it is. Torch loads when a verb's options are needed and not before.
ALONE = (("independent", "Independent", "A classifier that knows nothing of any other model."),)
COMPATIBLE = (
    ("bct", "BCT", "Backward-compatible training, through the source's classifier head."),
    ("ract", "RACT", "Contrast with the source's embeddings (RACT)."),
    ("regression", "Regression", "Regression to the source's embeddings."),
    ("focal-distillation", "FocalDistillation", "Regression, above all where the source is right."),
    ("unibct", "UniBCT", "BCT through prototypes refined over their neighbours."),
    ("lce-alignment", "LCEAlignment", "Classes stand where they stood in the source (LCE, joint)."),
    ("bt2", "BT2", "Basis transformations: the first values are compared with the source."),
    ("dmu", "DMU", "Darwinian model upgrade: selective inheritance, and a head that adapts the gallery."),
)


@dataclass(frozen=True)
class TrainedOnImages:
    """What training made.

    Attributes:
        out: Folder of the model.
        encoder: ENCODER to register it with.
        classifier: File of its classifier head, for --head.
        dim: Values of an embedding.
        metric: To register both versions with, or None for a model that was trained alone.
        normalised: Whether embeddings have unit length.
        artifacts: To link, by folder.
        head_loss: That the model was trained by.
        figures: What was measured; CMC-1 of source and target queries on either gallery among them.
    """

    out: str
    encoder: str
    classifier: str
    dim: int
    metric: str | None
    normalised: bool
    artifacts: tuple[str, ...]
    head_loss: HeadLoss | None
    figures: Mapping[str, float]


images_option = click.option("--images", required=True, metavar="FOLDER", help="Folder of class folders.")
out_option = click.option("--out", required=True, metavar="MODEL", help="Folder to write, by custom NAME.model.")
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace the model that is there.")
held_out_option = click.option(
    "--held-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of every class that is not trained on, and measured.",
)
augment_option = click.option(
    "--augment", is_flag=True, help="Train on random views: crops, small rotations, blur and noise."
)
drop_unreadable_option = click.option(
    "--drop-unreadable", is_flag=True, help="Leave out images that cannot be read; else they are refused."
)
checkpoint_option = click.option(
    "--checkpoint", metavar="FILE", help="Save to this file while training; go on from it after a stop."
)


refreshed_option = click.option(
    "--refreshed",
    nargs=2,
    multiple=True,
    metavar="MODEL ARTIFACT,...",
    help="The adaptation learns from a gallery that was refreshed before too: the model of its natives, and the "
    "adaptations that led from there to --source.",
)


def _method(name: str, trainer: str, summary: str, *, compatible: bool) -> Verb:
    """Make the verb of one trainer; its settings become options."""
    source = "--source v1.model " if compatible else ""
    out = "v2.model" if compatible else "v1.model"
    example = f"train {name} --images photos {source}--dim 64 --size 32 --out {out}"

    @images_option
    @out_option
    @overwrite_option
    @held_out_option
    @augment_option
    @drop_unreadable_option
    @checkpoint_option
    @pass_output
    def method(
        output: Output,
        images: str,
        out: str,
        overwrite: bool,
        held_out: float | None,
        augment: bool,
        drop_unreadable: bool,
        checkpoint: str | None,
        settings: Independent | CompatibleTraining,
        source: str | None = None,
        refreshed: tuple[tuple[str, str], ...] = (),
    ) -> None:
        from compatstore.trainers import Augmentation, TrainedModel
        from compatstore.trainers.images.trained_model import require_free

        require_free(out, overwrite=overwrite)
        known = None if source is None else TrainedModel.load(source)
        further = {"refreshed": [_refreshed(*one) for one in refreshed]} if refreshed else {}
        found = read_images(images, settings.mode or "RGB", output, drop_unreadable=drop_unreadable)
        kept, measured = (found, None) if held_out is None else found.split(held_out, seed=settings.seed)
        trainer = replace(settings, augmentation=Augmentation()) if augment else settings
        with progress_bars("train") as bars:
            model = _fit(trainer, kept, known, measured, epochs_onto(bars), checkpoint, **further)
        model.save(out, overwrite=overwrite)
        metric = getattr(settings, "metric", None)
        output.show(result(model, out, metric, f"network:{out}/encoder.safetensors"), trained_on_images)

    if compatible:
        option = click.option("--source", required=True, metavar="MODEL", help="The model to stay comparable with.")
        method = option(method)
    if trainer == "DMU":
        method = refreshed_option(method)
    made = verb(name, examples=(example,), settings=trainer_loader(trainer))(method)
    made.help = f"{summary}\n\n{_AFTERWARDS if compatible else _ALONE}"
    return made


_ALONE = "The model starts from random weights, or those of --pretrained. Its encoder goes into `init` or `register`."
_AFTERWARDS = (
    "The model starts as an independent one does and stays comparable with the source: `register` its encoder, `link` "
    "its artifact, and its queries search the source's gallery. --source is a folder that `train` wrote."
)


def read_images(folder: str, mode: Mode, output: Output, *, drop_unreadable: bool) -> Images:
    """List a folder of class folders, and say what of it is left out."""
    from compatstore.trainers import Images

    images = Images.from_folder(folder)
    if not drop_unreadable:
        return images
    kept, reasons = images.readable(mode)
    if reasons:
        output.note(f"Left out {len(reasons)} of {len(images)} images: {first_offenders(reasons)}")
    return kept


def _fit(
    trainer: Any,
    images: Images,
    source: TrainedModel | None,
    held_out: Images | None,
    progress: Callable[[EpochProgress], None],
    checkpoint: str | None,
    **further: Any,
) -> TrainedModel:
    """Call the trainer with a source, or without one, and with what it alone takes."""
    models = (images,) if source is None else (images, source)
    common = {"held_out": held_out, "progress": progress, "checkpoint": checkpoint}
    model: TrainedModel = trainer.fit(*models, **common, **further)
    return model


def _refreshed(model: str, adaptations: str) -> Refreshed:
    """Read how a gallery was refreshed: a model, and artifacts parted by commas."""
    from compatstore.artifacts import Artifact
    from compatstore.trainers import Refreshed, TrainedModel

    return Refreshed(TrainedModel.load(model), [Artifact.load(path) for path in adaptations.split(",")])


def result(model: TrainedModel, out: str, metric: str | None, encoder: str) -> TrainedOnImages:
    """What training made, in the folder `out`, registered by ENCODER."""
    return TrainedOnImages(
        out=out,
        encoder=encoder,
        classifier=f"{out}/head.npy",
        dim=model.encoder.dim,
        metric=metric,
        normalised=model.encoder.normalise,
        artifacts=tuple(f"{out}/{name}.compat" for name in model.artifacts()),
        head_loss=model.head_loss,
        figures=model.figures,
    )


def trained_on_images(result: TrainedOnImages) -> Iterator[str | Table]:
    """What training made, and how to go on, for people."""
    length = "unit length" if result.normalised else "any length"
    yield f"{result.encoder}: {result.dim} values, of {length}"
    yield table(("figure", "value"), [(name, f"{value:.4g}") for name, value in result.figures.items()])
    metric = f" --metric {result.metric}" if result.metric else ""
    normalised = " --normalised" if result.normalised else ""
    encoder = shlex.quote(result.encoder)
    loss = result.head_loss
    margin = f" --head-margin {loss.margin:g}" if loss and loss.kind != "cross-entropy" else ""
    said = f" --head-loss {loss.kind}{margin}" if loss else ""
    yield f"Register it: compatstore register GALLERY VERSION --encoder {encoder}{metric}{normalised}{said}"
    yield from (f"Link: compatstore link GALLERY {shlex.quote(artifact)}" for artifact in result.artifacts)


def trainer_loader(trainer: str) -> Callable[[], type]:
    """What loads a trainer, by its name in `compatstore.trainers`, when it is called."""

    def load() -> type:
        from compatstore import trainers

        found: type = getattr(trainers, trainer)
        return found

    return load


def epochs_onto(bars: Bars) -> Callable[[EpochProgress], None]:
    """What shows a training's epochs on a bar."""
    return lambda at: bars.update("train, epochs", at.epoch, at.epochs, f"loss {at.loss:.4g}")


METHODS: tuple[click.Command, ...] = (
    *(_method(*row, compatible=False) for row in ALONE),
    *(_method(*row, compatible=True) for row in COMPATIBLE),
)
