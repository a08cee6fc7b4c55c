"""Pictures of a page: small, bounded together, of files of this machine alone."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from compatstore.report.files import SIDE, Thumbnails


def picture(path, size=(640, 480)):
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return str(path)


def read(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


@pytest.mark.parametrize(("size", "shown"), [((640, 480), (96, 72)), ((8, 8), (96, 96)), ((60, 10), (60, 10))])
def test_a_picture_becomes_small_and_a_tiny_one_is_enlarged(tmp_path, size, shown):
    uri = Thumbnails().of(picture(tmp_path / "a.png", size))
    assert uri.startswith("data:image/jpeg;base64,")
    assert read(uri).size == shown
    assert max(shown) <= SIDE


def test_what_is_no_picture_of_this_machine_has_none(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (tmp_path / "text.txt").write_text("text")
    for source in (
        *("", "a text", "http://x/a.png", "https://x/a.jpg", "s3://x/a.png", "data:image/png;base64,AAAA.png"),
        *(str(tmp_path / name) for name in ("broken.png", "text.txt", "missing.png")),
        "a\x00.png",
        "x" * 5000 + ".png",
    ):
        assert Thumbnails().of(source) == ""


def test_a_uri_of_a_file_is_read(tmp_path):
    assert Thumbnails().of((tmp_path / "a.png").as_uri()) == ""
    picture(tmp_path / "a.png")
    assert Thumbnails().of((tmp_path / "a.png").as_uri())


def test_all_pictures_together_are_bounded(tmp_path):
    source = picture(tmp_path / "a.png")
    once = len(Thumbnails().of(source))
    some = Thumbnails(largest=3 * once)
    assert [bool(some.of(source)) for _ in range(5)] == [True, True, True, False, False]
