"""Images, sources and checkpoints that nothing can be trained on: one error of ours, before training."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compatstore import encoders, trainers
from compatstore.encoders.backbones import SmallConvNet
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.errors import CompatStoreError, InvalidInput, SourceError
from compatstore.trainers import TrainedModel
from compatstore.versions import EmbeddingVersion

TINY = {"width": 2, "epochs": 1, "batch_size": 8, "warmup_epochs": 0.0}
PIXELS = np.random.default_rng(0).integers(0, 255, (24, 8, 8), dtype=np.uint8)
LABELS = np.arange(24) % 3
LABELLED = ["Independent", "Alternate", "BCT", "DMU"]
TRAINERS = [*LABELLED, "SimCLR", "Autoencoder", "BT2"]


def named(trainer: object) -> str:
    return type(trainer).__name__


@pytest.fixture
def trainer(request: pytest.FixtureRequest):
    dims = {"dim": 6, "extra": 2} if request.param == "BT2" else {"dim": 4}
    return getattr(trainers, request.param)(**dims, **TINY)


@functools.cache
def good() -> trainers.Images:
    return trainers.Images(PIXELS, LABELS)


def source() -> TrainedModel:
    encoder = NetworkEncoder(SmallConvNet(size=8, dim=4, width=2), Preprocessing(size=8, mode="L"))
    return TrainedModel(encoder=encoder, head=np.eye(3, 4, dtype=np.float32), class_names=("0", "1", "2"))


def fit(trainer, images: trainers.Images, **options):
    """Fit; nothing may be trained, as the errors here are to come before the first epoch."""
    if isinstance(trainer, trainers.BCT | trainers.DMU | trainers.BT2):
        options.setdefault("source", source())

    def progress(at: object) -> None:
        raise AssertionError("an epoch was trained")

    return trainer.fit(images, progress=progress, **options)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (PIXELS[:0], [], "n >= 1"),
        (PIXELS[0], [0] * 8, r"c from 1 to 4, or n >= 1 paths; found \(8, 8\) uint8"),
        (PIXELS[..., None, None], LABELS, r"\(24, 8, 8, 1, 1\)"),
        (PIXELS[:, :0], LABELS, r"found \(24, 0, 8\)"),
        (np.full((24, 8, 8), np.nan, np.float32), LABELS, "float32"),
        (np.ma.masked_array(PIXELS, PIXELS > 200), LABELS, "without masked values"),
        (PIXELS, None, "one dimension or more"),
        (PIXELS, LABELS[:3], r"\(24,\) labels; found \(3,\)"),
        (PIXELS, ["a"] * 24, "integer labels from 0 to 9999999; found <U1.*class_names"),
        (PIXELS, [float("nan")] * 24, "integer labels.*float64"),
        (PIXELS, [[0], [0, 1]], "labels that are an array"),
        (PIXELS, [2**40] * 24, "integer labels.*from 1099511627776"),
    ],
)
def test_what_is_no_set_of_labelled_images_is_refused(images: object, labels: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        trainers.Images(images, labels)


@pytest.mark.parametrize("trainer", LABELLED, indirect=True)
@pytest.mark.parametrize("items", [1, 24], ids=["one item", "one class"])
def test_a_single_class_is_refused_where_classes_are_learned(trainer, items: int) -> None:
    with pytest.raises(InvalidInput, match=r"images of two classes; found 1.*SimCLR"):
        fit(trainer, trainers.Images(PIXELS[:items], [0] * items))


@pytest.mark.parametrize("trainer", TRAINERS, indirect=True)
@pytest.mark.parametrize(
    "images",
    [np.zeros((24, 1, 1), np.uint8), np.zeros((24, 8, 8, 2), np.uint8), ["no.png"] * 24, [None] * 24, ["a\0b"] * 24],
    ids=["one pixel", "two channels", "no files", "no paths", "NUL"],
)
def test_images_that_no_network_reads_are_refused(trainer, images: object) -> None:
    if isinstance(images, list):
        trainer = type(trainer)(**{**vars(trainer), "size": 8})
    with pytest.raises(
        (InvalidInput, SourceError), match=r"expected size 8 to 64|no such file|\(8, 8, 2\)|NoneType|null"
    ):
        fit(trainer, trainers.Images(images, LABELS))


@pytest.mark.parametrize("trainer", TRAINERS, indirect=True)
@pytest.mark.parametrize("images", [None, PIXELS, "photos", [1]], ids=["None", "array", "text", "list"])
def test_what_is_no_images_is_refused(trainer, images: object) -> None:
    with pytest.raises(InvalidInput, match="images: an Images"):
        fit(trainer, images)
    with pytest.raises(InvalidInput, match="held_out: an Images or None"):
        fit(trainer, good(), held_out=3 if images is None else images)


@pytest.mark.parametrize("trainer", TRAINERS, indirect=True)
def test_held_out_files_that_cannot_be_read_are_named_before_training(trainer, tmp_path: Path) -> None:
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    held_out = trainers.Images([tmp_path / "a.png", tmp_path / "b.png", tmp_path / "a.png"], [0, 1, 2])
    with pytest.raises(SourceError, match=r"b\.png: no such file"):
        fit(trainer, good(), held_out=held_out)


@pytest.mark.parametrize("trainer", LABELLED[2:], indirect=True)
@pytest.mark.parametrize("given", ["v1", 3, None, encoders.Precomputed({"a": [1.0, 2.0]})], ids=named)
def test_a_source_that_is_no_model_is_refused(trainer, given: object) -> None:
    with pytest.raises(InvalidInput, match="source: a TrainedModel"):
        fit(trainer, good(), source=given)


@pytest.mark.parametrize(
    "given", ["v1", 3, object(), encoders.Precomputed], ids=["a name", "a number", "an object", "a class"]
)
def test_a_source_of_side_information_that_is_no_encoder_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="source: an Encoder or None"):
        fit(trainers.SimCLR(dim=4, **TINY), good(), source=given)


@pytest.mark.parametrize("trainer", TRAINERS[:1] + TRAINERS[-3:-1], indirect=True)
def test_a_checkpoint_that_cannot_be_written_is_refused_before_training(trainer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, "", "a\0b", 3, tmp_path / "file" / "c", tmp_path / "file", "x" * 300):
        with pytest.raises(
            CompatStoreError, match=r"a file; found a folder|without NUL|a text|File exists|too long|format"
        ):
            fit(trainer, good(), checkpoint=path)


@pytest.mark.parametrize("trainer", TRAINERS, indirect=True)
def test_a_network_that_finds_no_memory_names_the_settings_to_lower(trainer) -> None:
    large = type(trainer)(**{**vars(trainer), "dim": 2**40})
    with pytest.raises(InvalidInput, match=r"fit into memory.*Lower dim"):
        fit(large, good())


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ("x", "vectors"),
        (None, "vectors"),
        (np.array([[None] * 4] * 24), "numbers"),
        (np.full((24, 4), np.nan), "NaN or inf"),
        (np.ones(24), "a matrix"),
        (np.ones((2, 4)), "24 vectors, one an image; found 2"),
        (np.ones((24, 3)), "vectors of 4 values; found 3"),
    ],
)
def test_given_vectors_that_do_not_fit_are_refused(vectors: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        trainers.BT2(dim=6, extra=2, **TINY).fit_across(good(), vectors, EmbeddingVersion("text", dim=4))


def test_given_vectors_may_be_of_any_real_type() -> None:
    vectors = np.random.default_rng(0).normal(size=(24, 4))
    model = trainers.BT2(dim=6, extra=2, **TINY).fit_across(good(), vectors.tolist(), EmbeddingVersion("text", dim=4))
    assert model.artifact.kind == "Prefix"


def test_positions_classes_and_shares_that_do_not_exist_are_refused() -> None:
    for positions in ("x", [], [24], [-1], [0.5], np.ones(24, bool), None):
        with pytest.raises(InvalidInput):
            good().take(positions)
    for classes in ("012", 3, [0.5], [], None):
        with pytest.raises(InvalidInput):
            good().of_classes(classes)
    for share in ({"fraction": float("nan")}, {"fraction": "x"}, {"seed": -1}, {"seed": "x"}):
        with pytest.raises(InvalidInput):
            good().split(**share)


def test_a_fingerprint_is_of_files_and_of_pixels_and_names_what_is_missing(tmp_path: Path) -> None:
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    of_pixels = trainers.Images([PIXELS[0], PIXELS[1]], [0, 1])
    assert of_pixels.fingerprint == trainers.Images([PIXELS[0].copy(), PIXELS[1]], [0, 1]).fingerprint
    assert of_pixels.fingerprint != trainers.Images([PIXELS[1], PIXELS[0]], [0, 1]).fingerprint
    assert len(trainers.Images([tmp_path / "a.png"], [0]).fingerprint) == 32
    with pytest.raises(SourceError, match="no such file"):
        _ = trainers.Images([tmp_path / "b.png"], [0]).fingerprint
