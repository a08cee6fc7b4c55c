"""The verb that trains an image model against a gallery of texts: `train bt2-across --gallery texts.lance`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from compatstore.cli.image_training import (
    augment_option,
    checkpoint_option,
    drop_unreadable_option,
    epochs_onto,
    held_out_option,
    images_option,
    out_option,
    overwrite_option,
    read_images,
    result,
    trained_on_images,
    trainer_loader,
)
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.verb import open_gallery, trust_code_option, verb
from compatstore.errors import InvalidInput, first_offenders

if TYPE_CHECKING:
    from compatstore.arrays import FloatArray
    from compatstore.gallery import Gallery
    from compatstore.trainers import BT2, Images
    from compatstore.versions import EmbeddingVersion


@verb(
    "bt2-across",
    examples=(
        "train bt2-across --images photos --gallery texts.lance --from v1 --dim 416 --size 64 --out v2.model",
        "train bt2-across --images photos --gallery texts.lance --class-names --dim 416 --size 64 --out v2.model",
    ),
    settings=trainer_loader("BT2"),
)
@images_option
@click.option("--gallery", required=True, metavar="GALLERY", help="Gallery of the texts, or of another modality.")
@click.option("--from", "version", metavar="VERSION", help="Version to be compared with; the active one by default.")
@click.option(
    "--target", metavar="MODEL", help="An independent model of dim - extra values; else one is trained first."
)
@click.option(
    "--class-names",
    is_flag=True,
    help="Train against the names of the class folders, embedded by the version's encoder, not against items' vectors.",
)
@click.option("--drop-missing", is_flag=True, help="Leave out images without an item; else they are refused.")
@out_option
@overwrite_option
@held_out_option
@augment_option
@drop_unreadable_option
@checkpoint_option
@trust_code_option
@pass_output
def bt2_across(
    output: Output,
    images: str,
    gallery: str,
    version: str | None,
    target: str | None,
    class_names: bool,
    drop_missing: bool,
    out: str,
    overwrite: bool,
    held_out: float | None,
    augment: bool,
    drop_unreadable: bool,
    checkpoint: str | None,
    trust_code: bool,
    settings: BT2,
) -> None:
    """Train an image model that understands a gallery of texts, by BT^2.

    An image is trained against the stored native vector of its item, such as that of a caption: an item's id is the
    image's path below the folder, with its suffix or without. The model's queries then search the gallery before any
    image is embedded, and a backfill embeds the images of the items (`register` with the encoder that is shown). Texts
    ask for images by the first values of these: `derive` a version of as many values as the texts' has.
    """
    from compatstore.trainers import Augmentation, TrainedModel
    from compatstore.trainers.images.trained_model import require_free

    require_free(out, overwrite=overwrite)
    independent = None if target is None else TrainedModel.load(target)
    opened = open_gallery(gallery, trust_code=trust_code)
    found = read_images(images, settings.mode or "RGB", output, drop_unreadable=drop_unreadable)
    parts = [found] if held_out is None else list(found.split(held_out, seed=settings.seed))
    encoder = f"network:{out}/encoder.safetensors"
    given: list[tuple[Images, FloatArray]] = []
    for part in parts:
        if class_names:
            given.append((part, _names_embedded(opened.version(version), part)))
            continue
        items = _items(opened, part, images, version, output, drop_missing=drop_missing)
        given.append((items[0], items[1]))
        encoder = _by_id(images, f"{out}/encoder.safetensors", items[2])
    trainer = replace(settings, augmentation=Augmentation()) if augment else settings
    measured = given[1] if len(given) > 1 else (None, None)
    with progress_bars("train") as bars:
        model = trainer.fit_across(
            *given[0],
            opened.version(version),
            target=independent,
            held_out=measured[0],
            held_out_vectors=measured[1],
            progress=epochs_onto(bars),
            checkpoint=checkpoint,
        )
    model.save(out, overwrite=overwrite)
    output.show(result(model, out, settings.metric, encoder), trained_on_images)


def _items(
    gallery: Gallery, images: Images, folder: str, version: str | None, output: Output, *, drop_missing: bool
) -> tuple[Images, FloatArray, str]:
    """The images that have an item, its vectors, and the suffix between ids and names of files."""
    from compatstore.trainers import images_of_items

    found = images_of_items(gallery, images, folder, version)
    output.note(str(found))
    if found.left_out and not drop_missing:
        expected = f"an item with a vector in {found.version.name} for each image"
        fix = "Leave these images out: --drop-missing."
        raise InvalidInput(
            f"train on {folder}", expected=expected, found=f"none for {first_offenders(found.left_out)}", fix=fix
        )
    return found.images, found.vectors, found.suffix


def _names_embedded(version: EmbeddingVersion, images: Images) -> FloatArray:
    """(n, dim) float32: the vector of the name of each image's class."""
    if version.encoder is None:
        expected = f"an encoder of {version.name}, which embeds the names"
        fix = "Leave out --class-names, and the items' own vectors are taken."
        raise InvalidInput("train against class names", expected=expected, found="none", fix=fix)
    import numpy as np

    vectors: FloatArray = version.encoder.encode(list(images.class_names))[np.asarray(images.labels)]
    return vectors


def _by_id(folder: str, weights: str, suffix: str) -> str:
    """ENCODER of the images of items, which `register` takes."""
    from compatstore.encoders import FilesById
    from compatstore.encoders.specs import join_spec

    settings = {"encoder": f"network:{Path(weights).absolute()}", "suffix": suffix}
    return join_spec("files", [str(Path(folder).absolute())], FilesById, settings)
