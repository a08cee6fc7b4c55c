"""Images and the items of a gallery of texts: found by their paths, and measured across."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import compatstore as cs
from compatstore import trainers
from compatstore.artifacts import Space
from compatstore.errors import InvalidInput, NotFound
from lazily import Lazy

given_vectors = Lazy("compatstore.trainers.images.given_vectors")

NAMES = ("shoes/1.png", "shoes/2.png", "hats/1.png", "hats/odd name.v2.png", "hats/ü.jpg")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 90).save(path)
    return tmp_path / "photos"


def gallery_of(folder: Path, ids: list[str], id_type: str = "string") -> cs.Gallery:
    gallery = cs.Gallery.create(folder / "texts.lance", cs.EmbeddingVersion("v1", dim=2), id_type=id_type)
    vectors = np.arange(2 * len(ids), dtype=np.float32).reshape(-1, 2) + 1
    gallery.add({"id": [int(item) for item in ids] if id_type == "int64" else ids, "vector": vectors})
    return gallery


@pytest.mark.parametrize(
    ("ids", "suffix", "left_out"),
    [
        (["hats/odd name.v2.png", "shoes/2.png", "elsewhere.png"], "", 3),
        (["hats/odd name.v2", "shoes/2", "elsewhere"], ".png", 3),
        (["hats/ü.jpg", "shoes/2", "shoes/1"], ".png", 2),  # another suffix than most: it is no part to be left out
    ],
)
def test_an_image_s_item_is_found_by_its_path(
    photos: Path, tmp_path: Path, ids: list[str], suffix: str, left_out: int
) -> None:
    gallery = gallery_of(tmp_path, ids)
    found = trainers.images_of_items(gallery, trainers.Images.from_folder(photos), photos)
    assert (found.suffix, len(found.left_out), found.version.name) == (suffix, left_out, "v1")
    for path, vector in zip(found.images.images, found.vectors, strict=True):
        item = Path(path).relative_to(photos).as_posix().removesuffix(suffix)
        np.testing.assert_array_equal(vector, gallery.vectors([item])[0])
    assert found.images.class_names == ("hats", "shoes")
    assert f"{left_out} images without one" in str(found)


def test_ids_that_are_numbers_are_found_too(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    for name in ("12", "7"):
        (folder / "a").mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4)).save(folder / "a" / f"{name}.png")
    gallery = gallery_of(tmp_path, ["7", "12"], "int64")
    found = trainers.images_of_items(gallery, trainers.Images.from_folder(folder), folder / "a")
    np.testing.assert_array_equal(found.vectors, gallery.vectors([12, 7]))


def test_what_cannot_be_matched_says_why(photos: Path, tmp_path: Path) -> None:
    gallery, images = gallery_of(tmp_path, ["one", "two"]), trainers.Images.from_folder(photos)
    with pytest.raises(
        InvalidInput, match=r"ids that are paths below it; found ids of v1: one, two; files: hats/1\.png"
    ):
        trainers.images_of_items(gallery, images, photos)
    with pytest.raises(InvalidInput, match="paths below"):
        trainers.images_of_items(gallery, images, photos / "shoes")
    with pytest.raises(InvalidInput, match="found an array"):
        trainers.images_of_items(gallery, trainers.Images(np.zeros((2, 4, 4), np.uint8), [0, 1]), photos)
    with pytest.raises(NotFound, match="version"):
        trainers.images_of_items(gallery, images, photos, "v9")
    twice = images.take([0, 0, 1])
    with pytest.raises(InvalidInput, match="one image an item; found several of hats/1"):
        trainers.images_of_items(gallery_of(tmp_path / "more", ["hats/1"]), twice, photos)


def test_figures_are_counted_by_hand() -> None:
    """Four items of two classes on a circle; images lie near their texts, and one of them on the wrong side."""
    texts = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], np.float32)
    images = np.concatenate([texts, np.eye(4)], axis=1).astype(np.float32)
    images[3, :2] = (1, 0.05)
    spaces = {
        name: Space(dim=dim, fingerprint=name, metric="cosine", normalised=False)
        for name, dim in (("texts", 2), ("images", 6))
    }
    prefix = cs.Artifact.create("Prefix", source=spaces["texts"], target=spaces["images"])
    found = given_vectors.across_figures(prefix, images, texts, np.array([0, 0, 1, 1]), "cosine")
    assert found["s/s"] == 1
    # Itself left out, the last image lies among the texts of the other class, and so does no other.
    assert found["t/s"] == 0.75
    # Texts 0 and 1 find the misplaced image; of the images of others, one of class 0 is nearest to text 2.
    assert found["s/t"] == 0.25
