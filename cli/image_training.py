"""Training on images: `train METHOD --images FOLDER` of models, alone or against a source, and of side-information."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compatstore.cli.output import Output
from compatstore.cli.progress import Bars, progress_bars
from compatstore.cli.verb import open_gallery
from compatstore.encoders import FilesById
from compatstore.encoders.specs import join_spec
from compatstore.errors import InvalidInput, first_offenders
from compatstore.shown import Table, table
from compatstore.trainers import Augmentation, Images, Refreshed, TrainedModel, images_of_items
from compatstore.trainers.images.trained_model import require_free

if TYPE_CHECKING:
    from compatstore.arrays import FloatArray
    from compatstore.trainers import BT2, Independent
    from compatstore.trainers.images.compatible import CompatibleTraining
    from compatstore.trainers.side import SideTrainer
    from compatstore.trainers.training import EpochProgress
    from compatstore.versions import EmbeddingVersion, HeadLoss


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `train` that are about images, by their names."""

    images: str
    out: str
    overwrite: bool
    source: str | None = None
    held_out: float | None = None
    augment: bool = False
    drop_unreadable: bool = False
    checkpoint: str | None = None
    refreshed: tuple[tuple[str, str], ...] = ()
    gallery: str | None = None
    source_version: str | None = None
    target: str | None = None
    class_names: bool = False
    drop_missing: bool = False
    trust_code: bool = False

    @property
    def source_model(self) -> TrainedModel | None:
        """The model of --source."""
        return None if self.source is None else TrainedModel.load(self.source)

    def read(self, trainer: Any, output: Output) -> Images:
        """List the images, and say what of them is left out."""
        images = Images.from_folder(self.images)
        if not self.drop_unreadable:
            return images
        kept, reasons = images.readable(trainer.mode or "RGB")
        if reasons:
            output.note(f"Left out {len(reasons)} of {len(images)} images: {first_offenders(reasons)}")
        return kept

    def adapt(self, trainer: Any) -> Any:
        """A trainer that trains on random views where that is asked for."""
        return replace(trainer, augmentation=Augmentation()) if self.augment else trainer


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


def train_on_images(output: Output, trainer: Independent | CompatibleTraining, request: Request) -> None:
    """Train a model alone, or to stay comparable with a source."""
    require_free(request.out, overwrite=request.overwrite)
    source = request.source_model
    found = request.read(trainer, output)
    kept, measured = (found, None) if request.held_out is None else found.split(request.held_out, seed=trainer.seed)
    models: tuple[Any, ...] = (kept,) if source is None else (kept, source)
    further = {"refreshed": [_refreshed(*one) for one in request.refreshed]} if request.refreshed else {}
    fit: Any = request.adapt(trainer).fit
    with progress_bars("train") as bars:
        model = fit(*models, held_out=measured, progress=_onto(bars), checkpoint=request.checkpoint, **further)
    _save(output, model, request, getattr(trainer, "metric", None), f"network:{request.out}/encoder.safetensors")


def train_across(output: Output, trainer: BT2, request: Request) -> None:
    """Train an image model that understands a gallery of texts, by BT^2.

    Texts ask for images by the first values of these: `register --of` derives a version of as many values as the
    texts' has.
    """
    require_free(request.out, overwrite=request.overwrite)
    independent = None if request.target is None else TrainedModel.load(request.target)
    assert request.gallery is not None
    gallery = open_gallery(request.gallery, trust_code=request.trust_code)
    version = gallery.version(request.source_version)
    found = request.read(trainer, output)
    parts = [found] if request.held_out is None else list(found.split(request.held_out, seed=trainer.seed))
    encoder = f"network:{request.out}/encoder.safetensors"
    given: list[tuple[Images, FloatArray]] = []
    for part in parts:
        if request.class_names:
            given.append((part, _embed_names(version, part)))
            continue
        items = images_of_items(gallery, part, request.images, request.source_version)
        output.note(str(items))
        if items.left_out and not request.drop_missing:
            raise InvalidInput(
                f"train on {request.images}",
                expected=f"an item with a vector in {items.version.name} for each image",
                found=f"none for {first_offenders(items.left_out)}",
                fix="Leave these images out: --drop-missing.",
            )
        given.append((items.images, items.vectors))
        encoder = _by_id(request.images, f"{request.out}/encoder.safetensors", items.suffix)
    measured = given[1] if len(given) > 1 else (None, None)
    with progress_bars("train") as bars:
        model = request.adapt(trainer).fit_across(
            *given[0],
            version,
            target=independent,
            held_out=measured[0],
            held_out_vectors=measured[1],
            progress=_onto(bars),
            checkpoint=request.checkpoint,
        )
    _save(output, model, request, trainer.metric, encoder)


def train_side(output: Output, trainer: SideTrainer, request: Request) -> None:
    """Train a model of side-information."""
    source = request.source_model
    found = request.read(trainer, output)
    with progress_bars("train") as bars:
        made = request.adapt(trainer).fit(
            found,
            source=None if source is None else source.encoder,
            progress=_onto(bars),
            checkpoint=request.checkpoint,
        )
    made.encoder.save(request.out)
    encoder = f"network:{request.out}"
    output.show(SideTrained(request.out, encoder, made.encoder.dim, trainer.codes, made.figures), side_trained)


def _refreshed(model: str, adaptations: str) -> Refreshed:
    """Read how a gallery was refreshed: a model, and artifacts with commas between them."""
    from compatstore.artifacts import Artifact

    return Refreshed(TrainedModel.load(model), [Artifact.load(path) for path in adaptations.split(",")])


def _embed_names(version: EmbeddingVersion, images: Images) -> FloatArray:
    """(n, dim) float32: the vector of the name of each image's class."""
    if version.encoder is None:
        expected = f"an encoder of {version.name}, which embeds the names"
        fix = "Leave out --class-names, and the items' own vectors are taken."
        raise InvalidInput("train against class names", expected=expected, found="none", fix=fix)
    vectors: FloatArray = version.encoder.encode(list(images.class_names))[np.asarray(images.labels)]
    return vectors


def _by_id(folder: str, weights: str, suffix: str) -> str:
    """ENCODER of the images of items, which `register` takes."""
    settings = {"encoder": f"network:{Path(weights).absolute()}", "suffix": suffix}
    return join_spec("files", [str(Path(folder).absolute())], FilesById, settings)


def _onto(bars: Bars) -> Callable[[EpochProgress], None]:
    """What shows a training's epochs on a bar."""
    return lambda at: bars.update("train, epochs", at.epoch, at.epochs, f"loss {at.loss:.4g}")


def _save(output: Output, model: TrainedModel, request: Request, metric: str | None, encoder: str) -> None:
    out = request.out
    model.save(out, overwrite=request.overwrite)
    made = TrainedOnImages(
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
    output.show(made, trained_on_images)


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


def side_trained(result: SideTrained) -> Iterator[str | Table]:
    """What training made, and how to go on, for people."""
    yield f"{result.encoder}: {result.dim} values of side-information"
    yield table(("figure", "value"), [(name, f"{value:.4g}") for name, value in result.figures.items()])
    stored = " --side-dtype bits" if result.codes else ""
    yield f"Store it: compatstore init GALLERY --version VERSION ... --side-encoder {result.encoder}{stored}"
