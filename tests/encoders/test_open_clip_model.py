"""CLIP models: a tiny one with random weights, made here, run by open_clip where it is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compatstore.encoders import OpenClipModel, encode_queries, encode_readable, from_spec
from compatstore.encoders.published_models import is_text
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound

DIM = 16
CONFIG = {
    "embed_dim": DIM,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    open_clip = pytest.importorskip("open_clip")
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    made = tmp_path / "clip"
    made.mkdir()
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    (made / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG, "preprocess_cfg": preprocess}))
    save_file(open_clip.CLIP(**CONFIG).state_dict(), made / "open_clip_model.safetensors")
    return made


@pytest.fixture
def image(tmp_path: Path) -> str:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cup.png")
    return str(tmp_path / "cup.png")


def test_items_are_images_and_queries_are_images_or_texts(folder: Path, image: str) -> None:
    encoder = OpenClipModel(str(folder), device="cpu")
    assert encoder.dim == DIM
    items = encoder.encode([image])
    queries = encode_queries(encoder, ["a red cup", image, "a coat", "gone.jpg"])
    assert sorted(queries.failures) == [3]
    assert queries.vectors.shape == (3, DIM)
    np.testing.assert_allclose(queries.vectors[1], items[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(queries.vectors, axis=1), 1, atol=1e-5)
    assert np.abs(queries.vectors[0] - queries.vectors[2]).max() > 1e-4
    assert encode_readable(encoder, ["a red cup"]).failures.keys() == {0}, "an item that is no image"


@pytest.mark.full
def test_the_spec_builds_the_same_model(folder: Path, image: str, tmp_path: Path) -> None:
    encoder = OpenClipModel(str(folder), device="cpu", normalise=False)
    again = from_spec(encoder.spec)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_allclose(again.encode([image]), encoder.encode([image]), atol=1e-5)
    moved = folder.rename(tmp_path / "moved")
    assert OpenClipModel(str(moved), normalise=False).fingerprint == encoder.fingerprint
    assert OpenClipModel(str(moved)).fingerprint != encoder.fingerprint


def test_models_that_are_not_there_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="list_models"):
        OpenClipModel("no such model")
    with pytest.raises(InvalidInput, match=r"weights.*Published: "):
        OpenClipModel("ViT-B-32")
    with pytest.raises(InvalidInput, match="holds its weights"):
        OpenClipModel(str(folder), weights="openai")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorruptArtifact, match="a model of open_clip"):
        OpenClipModel(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("query", "text"),
    [("a cup", True), ("cup.jpg", False), ("file:///a/cup.PNG", False), ("what is a .txt?", True), (b"\x89PNG", False)],
)
def test_a_query_is_a_text_unless_it_is_named_as_an_image(query: object, text: bool) -> None:
    assert is_text(query) == text
