"""Runs of `train METHOD`: on pairs, on images alone or against a source, and of side-information."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from compatstore.artifacts import Artifact
from compatstore.cli.files import read_array
from compatstore.cli.output import Output
from compatstore.cli.progress import Bars, progress_bars
from compatstore.cli.verb import open_gallery
from compatstore.encoders import FilesById
from compatstore.encoders.specs import join_spec
from compatstore.errors import InvalidInput, first_offenders
from compatstore.gallery import Gallery
from compatstore.shown import Table, figures, table
from compatstore.trainers import Augmentation, Images, Pairs, Refreshed, TrainedModel, images_of_items
from compatstore.trainers.images.trained_model import require_free
from compatstore.trainers.pairs.sources import PairSource, from_file, from_gallery, labels_of, match_pairs

if TYPE_CHECKING:
    from compatstore.arrays import FloatArray
    from compatstore.trainers import BT2, Independent, Unpaired
    from compatstore.trainers.images.compatible import CompatibleTraining
    from compatstore.trainers.pairs.trainer import PairTrainer
    from compatstore.trainers.side import SideTrainer
    from compatstore.trainers.training import EpochProgress
    from compatstore.versions import EmbeddingVersion


def read_pairs(
    say: Callable[[str], None],
    *,
    pairs: tuple[str | None, str | None] = (None, None),
    side: str | None = None,
    target_side: str | None = None,
    labels: str | None = None,
    target_head: str | None = None,
    drop_missing: bool = False,
    gallery: str | None = None,
    source_version: str | None = None,
    target_version: str | None = None,
    trust_code: bool = False,
) -> Pairs:
    """Read the pairs that the options of `train` name, from files or from a gallery.

    Args:
        say: Called with the number of items that were matched.
        pairs: Files of source and target vectors; with a gallery also a version or a column of it, by default the two
            versions.
        side: File of side-information of the source, or None for the column `side` of the source's file.
        target_side: The same of the target.
        labels: File of classes, in the order of the source; with a gallery a column of it.
        target_head: File of the classifier head of the target model.
        drop_missing: Leave out ids that only one file has.
        gallery: Gallery whose versions the pairs are of, or None.
        source_version: Name of the version in it that the source vectors are of.
        target_version: Name of the version in it that the target vectors are of.
        trust_code: Build encoders that the gallery names as Python code or as an address.

    Raises:
        InvalidInput: A side is missing, or the gallery of a version. A file cannot be read, rows cannot be joined, or
            the gallery has no pairs.
        NotFound: A file, column, gallery or version does not exist.
    """
    names = (source_version, target_version)
    left, right, opened = _read_sets(pairs, names, gallery, trust_code)
    head = None if target_head is None else read_array(target_head, "head")
    classes: Callable[..., Any] | None = None
    if opened is not None and labels is not None and (left.in_gallery or right.in_gallery):
        classes = labels_of(opened, labels)
    if labels is not None and classes is None:
        known = read_array(labels, "label", "labels")
        if len(known) != left.rows:
            expected = f"{left.rows} values, in the order of {left.what}"
            raise InvalidInput(f"train with labels {labels}", expected=expected, found=str(len(known)))
        left = replace(left, labels=lambda rows: known[rows])
    missing: Literal["refuse", "drop"] = "drop" if drop_missing else "refuse"
    found, matched = match_pairs(
        left, right, labels=classes, side=side, target_side=target_side, head=head, missing=missing
    )
    if gallery is not None:
        say(matched)
    return found


def _read_sets(
    given: tuple[str | None, str | None], versions: tuple[str | None, str | None], gallery: str | None, trust_code: bool
) -> tuple[PairSource, PairSource, Gallery | None]:
    """Open the source and target vectors that `--pairs`, `--from` and `--to` name, and the gallery if there is one."""
    source, target = (one or name for one, name in zip(given, versions, strict=True))
    if source is None or target is None:
        wanted = "--pairs SOURCE TARGET" + ("" if gallery is None else ", or --from and --to")
        raise InvalidInput(
            "train on pairs",
            expected=wanted,
            found="no pairs",
            fix="Vectors come from files (--pairs FILE FILE), or from a gallery: with --gallery each of the two is a "
            "version of it, a column of it, or a file with ids.",
        )
    if gallery is None and any(versions):
        raise InvalidInput("train with --from and --to", expected="--gallery too", found="none")
    if gallery is None:
        return from_file(source), from_file(target), None
    opened = Gallery.open(gallery, trust_code=trust_code)
    left, right = (
        from_gallery(opened, name, version) for name, version in zip((source, target), versions, strict=True)
    )
    return left, right, opened


def train_on_pairs(output: Output, trainer: PairTrainer, out: str, overwrite: bool, given: dict[str, Any]) -> None:
    """Train a transform on the pairs that the options `given` name."""
    pairs = read_pairs(output.note, **given)
    with progress_bars("train") as bars:
        artifact = trainer.fit(pairs, _onto(bars))
    _save_transform(output, artifact, out, overwrite)


def train_unpaired(
    output: Output,
    trainer: Unpaired,
    out: str,
    overwrite: bool,
    *,
    pairs: tuple[str | None, str | None] = (None, None),
    gallery: str | None = None,
    source_version: str | None = None,
    target_version: str | None = None,
    trust_code: bool = False,
) -> None:
    """Align two sets of vectors that no id or position joins; the arguments are those of `read_pairs`."""
    left, right, _ = _read_sets(pairs, (source_version, target_version), gallery, trust_code)
    vectors = (side.vectors(np.arange(side.rows)) for side in (left, right))
    artifact = trainer.fit(*vectors, source_version=left.version, target_version=right.version)
    _save_transform(output, artifact, out, overwrite)


def _save_transform(output: Output, artifact: Artifact, out: str, overwrite: bool) -> None:
    """Save an artifact, and show its figures."""
    artifact.save(out, overwrite=overwrite)
    manifest = artifact.manifest
    lines = [
        f"{artifact.id[:12]}  {manifest.method}  {manifest.source.dim} -> {manifest.target.dim} values, in {out}",
        *figures(manifest.figures),
    ]
    output.show({"id": artifact.id, "out": out, "manifest": manifest}, lambda _: lines)


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
        """The trainer, on random views if --augment is given."""
        return replace(trainer, augmentation=Augmentation()) if self.augment else trainer


def train_on_images(output: Output, trainer: Independent | CompatibleTraining, request: Request) -> None:
    """Train a model alone, or to stay comparable with a source."""
    require_free(request.out, overwrite=request.overwrite)
    source = request.source_model
    found = request.read(trainer, output)
    kept, measured = (found, None) if request.held_out is None else found.split(request.held_out, seed=trainer.seed)
    models: tuple[Any, ...] = (kept,) if source is None else (kept, source)
    refreshed = [
        Refreshed(TrainedModel.load(model), [Artifact.load(path) for path in adaptations.split(",")])
        for model, adaptations in request.refreshed
    ]
    further = {"refreshed": refreshed} if refreshed else {}
    fit: Any = request.adapt(trainer).fit
    with progress_bars("train") as bars:
        model = fit(*models, held_out=measured, progress=_onto(bars), checkpoint=request.checkpoint, **further)
    _save(output, model, request, getattr(trainer, "metric", None), f"network:{request.out}/encoder.safetensors")


def train_across(output: Output, trainer: BT2, request: Request) -> None:
    """Train an image model that understands a gallery of texts, by BT^2.

    Texts search images by the first values of these: `register --of` derives a version of as many values as the
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
        settings = {"encoder": f"network:{Path(request.out).absolute()}/encoder.safetensors", "suffix": items.suffix}
        encoder = join_spec("files", [str(Path(request.images).absolute())], FilesById, settings)
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
    dim, codes = made.encoder.dim, trainer.codes
    stored = " --side-dtype bits" if codes else ""
    lines: tuple[str | Table, ...] = (
        f"{encoder}: {dim} values of side-information",
        table(("figure", "value"), [(name, f"{value:.4g}") for name, value in made.figures.items()]),
        f"Store it: compatstore init GALLERY --version VERSION ... --side-encoder {encoder}{stored}",
    )
    result = {"out": request.out, "encoder": encoder, "dim": dim, "codes": codes, "figures": made.figures}
    output.show(result, lambda _: lines)


def _embed_names(version: EmbeddingVersion, images: Images) -> FloatArray:
    """(n, dim) float32: the vector of the name of each image's class."""
    if version.encoder is None:
        expected = f"an encoder of {version.name}, which embeds the names"
        fix = "Leave out --class-names, and the items' own vectors are taken."
        raise InvalidInput("train against class names", expected=expected, found="none", fix=fix)
    vectors: FloatArray = version.encoder.encode(list(images.class_names))[np.asarray(images.labels)]
    return vectors


def _onto(bars: Bars) -> Callable[[EpochProgress], None]:
    """Show a training's epochs on a bar."""

    def update(at: EpochProgress) -> None:
        loss = at.loss if at.held_out_loss is None else at.held_out_loss
        bars.update(f"train {at.network}, epochs", at.epoch, at.epochs, f"loss {loss:.4g}")

    return update


def _save(output: Output, model: TrainedModel, request: Request, metric: str | None, encoder: str) -> None:
    """Save a model, and show what training made and how to go on."""
    out, loss = request.out, model.head_loss
    model.save(out, overwrite=request.overwrite)
    artifacts = [f"{out}/{name}.compat" for name in model.artifacts()]
    result = {
        "out": out,
        "encoder": encoder,  # ENCODER to register it with
        "classifier": f"{out}/head.npy",  # for --head
        "dim": model.encoder.dim,
        "metric": metric,  # to register both versions with, or None for a model that was trained alone
        "normalised": model.encoder.normalise,
        "artifacts": artifacts,
        "head_loss": loss,
        "figures": model.figures,  # CMC-1 of source and target queries on either gallery among them
    }
    options = ["--encoder", shlex.quote(encoder), *(["--metric", metric] if metric else [])]
    options += ["--normalised"] if model.encoder.normalise else []
    if loss is not None:
        options += ["--head-loss", loss.kind]
        options += [] if loss.kind == "cross-entropy" else ["--head-margin", f"{loss.margin:g}"]
    lines: tuple[str | Table, ...] = (
        f"{encoder}: {model.encoder.dim} values, of {'unit' if model.encoder.normalise else 'any'} length",
        table(("figure", "value"), [(name, f"{value:.4g}") for name, value in model.figures.items()]),
        f"Register it: compatstore register GALLERY VERSION {' '.join(options)}",
        *(f"Link: compatstore link GALLERY {shlex.quote(path)}" for path in artifacts),
    )
    output.show(result, lambda _: lines)
