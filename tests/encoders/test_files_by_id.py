"""Items embedded from the file of their id, and nothing that lies elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compatstore.encoders import (
    FilesById,
    Function,
    NetworkEncoder,
    Precomputed,
    encode_queries,
    encode_readable,
    from_spec,
)
from compatstore.encoders.backbones import SmallConvNet
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput, NotFound, SourceError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for number, name in enumerate(("a", "odd name?#%", "below/ü")):
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 60 * number + 20).save(path)
    Image.new("L", (8, 8), 0).save(tmp_path / "elsewhere.png")
    (folder / "link.png").symlink_to(tmp_path / "elsewhere.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture
def network(tmp_path: Path) -> NetworkEncoder:
    encoder = NetworkEncoder(SmallConvNet(size=8, dim=4, width=2), Preprocessing(size=8, mode="L"), device="cpu")
    encoder.save(tmp_path / "v2.safetensors")
    return encoder


def test_an_item_is_its_id_s_file_and_a_query_is_a_path(photos: Path, network: NetworkEncoder) -> None:
    encoder = FilesById(photos, encoder=network, suffix=".png")
    paths = [str(photos / f"{name}.png") for name in ("below/ü", "a")]
    np.testing.assert_array_equal(encoder.encode(["below/ü", "a"]), network.encode(paths))
    np.testing.assert_array_equal(encode_queries(encoder, paths).vectors, network.encode(paths))
    assert (encoder.reads, encoder.dim, encoder.fingerprint) == ("id", 4, network.fingerprint)


def test_its_spec_builds_it_again(photos: Path, network: NetworkEncoder, tmp_path: Path) -> None:
    spec = f"files:{photos}?encoder=network:{tmp_path}/v2.safetensors&suffix=.png"
    encoder = from_spec(spec)
    again = from_spec(encoder.spec)
    assert again.spec == encoder.spec
    np.testing.assert_array_equal(again.encode(["odd name?#%"]), network.encode([photos / "odd name?#%.png"]))
    by_function = FilesById(photos, encoder=Function(lambda paths: np.ones((len(paths), 1)), 1, fingerprint="ones"))
    assert by_function.spec == ""


def test_what_is_not_there_not_readable_or_elsewhere_is_listed(photos: Path, network: NetworkEncoder) -> None:
    encoder = FilesById(photos, encoder=network, suffix=".png")
    strange = ["../elsewhere", str(photos.parent / "elsewhere"), "link", "gone", "", "x" * 5000, "a\0b", "below"]
    found = encode_readable(encoder, ["a", *strange, "broken"])
    assert found.readable.tolist() == [0]
    assert set(found.failures) == set(range(1, len(strange) + 2))
    assert "no file ../elsewhere.png" in found.failures[1]
    with pytest.raises(SourceError, match="Put them below"):
        encoder.encode([7])


def test_what_reads_no_files_is_refused(photos: Path, network: NetworkEncoder) -> None:
    """A gallery that comes from elsewhere names its encoders: code and addresses are no part of this kind."""
    for spec in ("python:os:path", "openai:https://api.example.com#small", "files:a?encoder=network:b", "nothing"):
        with pytest.raises(InvalidInput, match="network:"):
            FilesById(photos, encoder=spec)
        with pytest.raises(InvalidInput, match="network:"):
            from_spec(f"files:{photos}?encoder={spec.replace('#', '%23').replace('?', '%3F')}")
    with pytest.raises(InvalidInput, match=r"encoder=...; found no encoder"):
        from_spec(f"files:{photos}?suffix=.png")
    with pytest.raises(InvalidInput, match="reads ids"):
        FilesById(photos, encoder=Precomputed({"a": [1.0]}))
    with pytest.raises(NotFound, match="a folder"):
        FilesById(photos / "gone", encoder=network)
