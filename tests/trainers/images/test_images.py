from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from compatstore import trainers
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput, NotFound, SourceError
from lazily import Lazy
from properties import examples

torch = Lazy("torch")

GREY = Preprocessing(size=8, mode="L")


def flat(labels: list[int]) -> trainers.Images:
    """Images that each hold their own position as grey value."""
    values = np.arange(len(labels), dtype=np.uint8)
    return trainers.Images(np.broadcast_to(values[:, None, None], (len(labels), 8, 8)), labels)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for index in range(3):
            Image.new("RGBA", (9, 7), (100 * label, 0, 0, 255)).save(tmp_path / name / f"{index}.png")
    return tmp_path


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=40), fraction=st.floats(0.05, 0.95))
@examples(40)
def test_a_split_shares_every_image_once_and_every_class_of_two(labels: list[int], fraction: float) -> None:
    images = flat(labels)
    if max(labels.count(label) for label in labels) < 2:
        with pytest.raises(InvalidInput, match="at least two images"):
            images.split(fraction)
        return
    rest, share = images.split(fraction, seed=1)
    assert sorted([*rest.images[:, 0, 0], *share.images[:, 0, 0]]) == list(range(len(labels)))
    assert set(rest.labels) == set(labels)
    assert set(share.labels) == {label for label in labels if labels.count(label) > 1}


def test_chosen_classes_are_numbered_anew() -> None:
    chosen = flat([0, 1, 2, 2, 1]).of_classes(["2", 1])
    assert chosen.class_names == ("2", "1")
    assert chosen.labels.tolist() == [1, 0, 0, 1]
    assert chosen.images[:, 0, 0].tolist() == [1, 2, 3, 4]
    with pytest.raises(NotFound, match=r"of 0, 1, 2.*'7'"):
        flat([0, 1, 2]).of_classes(["7"])
    with pytest.raises(InvalidInput, match="once"):
        flat([0, 1, 2]).of_classes(["1", 1])


def test_batches_cover_an_epoch_in_an_order_of_the_seed() -> None:
    images = flat([0] * 10)
    orders = [
        [int(value) for pixels, _ in images.batches(GREY, size=5, seed=seed) for value in pixels[:, 0, 0, 0]]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(10))


@pytest.mark.full
def test_files_give_the_same_batches_as_arrays_also_from_workers(folder: Path) -> None:
    files = trainers.Images.from_folder(folder)
    assert files.class_names == ("cat", "dog")
    preprocessing = Preprocessing(size=8)
    arrays = trainers.Images(
        np.stack([preprocessing.pixels(p).numpy().transpose(1, 2, 0) for p in files.images]), files.labels
    )
    for (a, la), (b, lb) in zip(
        arrays.batches(preprocessing, size=2, seed=0),
        files.batches(preprocessing, size=2, seed=0, workers=1),
        strict=True,
    ):
        assert torch.equal(a, b)
        assert torch.equal(la, lb)


def test_corrupt_files_are_all_named_before_training(folder: Path) -> None:
    (folder / "cat" / "1.png").write_bytes(b"broken")
    (folder / "dog" / "2.png").write_bytes(b"")
    with pytest.raises(SourceError) as caught:
        trainers.Images.from_folder(folder).require_readable("RGB")
    assert list(caught.value.failures) == [1, 5]
    assert "cat/1.png" in caught.value.failures[1]
    kept, reasons = trainers.Images.from_folder(folder).readable("RGB")
    assert [Path(path).name for path in kept.images] == ["0.png", "2.png", "0.png", "1.png"]
    assert ["cat/1.png" in reasons[0], "dog/2.png" in reasons[1]] == [True, True]
    with pytest.raises(SourceError):
        trainers.Images([folder / "cat" / "1.png"], [0]).readable("RGB")


def test_what_is_no_set_of_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="find images"):
        trainers.Images.from_folder(tmp_path)
    with pytest.raises(InvalidInput, match="float64"):
        trainers.Images(np.zeros((2, 8, 8)), [0, 1])
    with pytest.raises(InvalidInput, match="n >= 1"):
        trainers.Images([], [])
    with pytest.raises(InvalidInput, match=r"\(2,\) labels"):
        trainers.Images(np.zeros((2, 8, 8), np.uint8), [0])
    with pytest.raises(InvalidInput, match="labels from 0 to 0"):
        trainers.Images(np.zeros((2, 8, 8), np.uint8), [0, 1], ("one",))
