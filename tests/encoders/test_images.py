import contextlib
import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from compatstore.encoders.images import find_classes, find_images, read_image
from compatstore.errors import InvalidInput, NotFound, SourceError
from properties import examples

RED = (200, 10, 30)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def red(tmp_path: Path) -> Path:
    path = tmp_path / "a red one.png"
    Image.new("RGB", (5, 4), RED).save(path)
    return path


def test_every_kind_of_source_gives_the_same_image(red: Path) -> None:
    image = Image.open(red)
    sources = [red, str(red), red.as_uri(), red.read_bytes(), image, np.asarray(image)]
    arrays = [np.asarray(read_image(source)) for source in sources]
    assert all(np.array_equal(array, arrays[0]) for array in arrays)
    assert arrays[0].shape == (4, 5, 3)
    assert tuple(arrays[0][0, 0]) == RED


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("asked", ["L", "RGB"])
def test_every_mode_of_file_is_turned_into_the_asked_mode(mode: str, asked: str) -> None:
    white = {"I;16": 65535, "CMYK": (0, 0, 0, 0)}.get(mode, "white")
    image = Image.new(mode, (3, 3), white)
    buffer = io.BytesIO()
    image.save(buffer, "TIFF")
    read = read_image(buffer.getvalue(), asked)
    assert read.mode == asked
    assert np.asarray(read).min() == 255


def test_transparency_is_laid_on_white() -> None:
    clear = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    assert np.asarray(read_image(png(clear))).min() == 255
    palette = Image.new("P", (2, 2))
    palette.info["transparency"] = 0
    assert np.asarray(read_image(png(palette), "L")).min() == 255


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "sideways.jpg"
    Image.new("RGB", (8, 4)).save(path, exif=exif)
    assert read_image(path).size == (4, 8)


def test_what_cannot_be_read_says_why(red: Path, tmp_path: Path) -> None:
    truncated = png(Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 50, 3), np.uint8)))[:500]
    sources = [tmp_path / "gone.png", b"not an image", truncated, "s3://bucket/a.png", 7, np.zeros((2, 2))]
    reasons = []
    for source in sources:
        with pytest.raises(SourceError) as caught:
            read_image(source)
        assert list(caught.value.failures) == [0]
        reasons.append(caught.value.failures[0])
    assert "no such file" in reasons[0]
    assert "gone.png" in reasons[0]
    assert "s3://" in reasons[3]


@given(
    content=st.binary(max_size=60),
    magic=st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"BM"]),
)
@examples(60)
def test_no_bytes_cause_another_error(content: bytes, magic: bytes) -> None:
    with contextlib.suppress(SourceError):
        assert read_image(magic + content).mode == "RGB"


def test_paths_outside_the_roots_are_refused(red: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.png").symlink_to(red)
    good = inside / "good.png"
    good.write_bytes(red.read_bytes())
    assert read_image(good, roots=[inside]).size == (5, 4)
    for outside in (red, inside / ".." / red.name, inside / "link.png", red.as_uri()):
        with pytest.raises(SourceError, match="outside the allowed folders"):
            read_image(outside, roots=[inside])


def test_an_unknown_mode_is_the_callers_mistake(red: Path) -> None:
    with pytest.raises(InvalidInput, match="mode of"):
        read_image(red, "HSV")


def test_folders_are_walked_in_order(tmp_path: Path, red: Path) -> None:
    for name in ("b/2.PNG", "b/1.png", "a/x/1.jpg", "a/notes.txt", ".hidden/1.png", "empty/notes.txt"):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(red.read_bytes())
    names = [path.relative_to(tmp_path / "set").as_posix() for path in find_images(tmp_path / "set")]
    assert names == ["a/x/1.jpg", "b/1.png", "b/2.PNG"]
    paths, labels, classes = find_classes(tmp_path / "set")
    assert [path.name for path in paths] == ["1.jpg", "1.png", "2.PNG"]
    assert (labels, classes) == ([0, 1, 1], ("a", "b"))


def test_folders_without_images_or_classes_are_named(tmp_path: Path, red: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"find images in .*empty"):
        find_images(tmp_path / "empty")
    with pytest.raises(NotFound, match="nowhere"):
        find_images(tmp_path / "nowhere")
    with pytest.raises(NotFound, match="one sub-folder of images per class"):
        find_classes(tmp_path)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few KiB that says that it is large; its one channel is all white."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    row = b"\0" + b"\xff" * ((width + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_an_image_of_many_pixels_in_a_few_bytes_is_listed_and_not_decoded(monkeypatch) -> None:
    small, large = png(Image.new("L", (4, 4))), bomb(13_000, 13_000)
    assert len(large) < 40_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(SourceError, match="13000 x 13000 pixels, more than the 100000000 that are decoded"):
            read_image(large, "L")
    monkeypatch.setenv("COMPATSTORE_MAX_PIXELS", "30000")
    assert read_image(bomb(300, 100)).size == (300, 100)
    monkeypatch.setenv("COMPATSTORE_MAX_PIXELS", "29999")
    with pytest.raises(SourceError, match="300 x 100 pixels"):
        read_image(bomb(300, 100))
    with pytest.raises(SourceError, match="COMPATSTORE_MAX_PIXELS"):
        read_image(Image.new("L", (200, 200)))
    monkeypatch.setenv("COMPATSTORE_MAX_PIXELS", "1000")
    with pytest.raises(SourceError, match="more than the 1000 that"):
        read_image(bomb(300, 100))
    monkeypatch.setenv("COMPATSTORE_MAX_PIXELS", "many")
    with pytest.raises(InvalidInput, match="COMPATSTORE_MAX_PIXELS"):
        read_image(small)
    monkeypatch.setenv("COMPATSTORE_MAX_PIXELS", "0")
    with pytest.raises(InvalidInput, match="whole number >= 1"):
        read_image(small)
