"""An image model trained against a gallery of captions, from the first caption to a search for images by a text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from compatstore.encoders import from_spec

pytest.importorskip("model2vec")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours

DIM = 16
NAMES = ("zero", "one", "two")
SHORT = (
    "--set",
    "size=8",
    "--set",
    "mode=L",
    "--set",
    "width=8",
    "--set",
    "epochs=8",
    "--set",
    "batch_size=16",
    "--set",
    "head=cosine",
)
SHAPE = ("--set", f"dim={DIM + 4}", "--set", "extra=4")


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    """A text model that has a vector for each of a few words."""
    import tokenizers
    from model2vec import StaticModel
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder = tmp_path_factory.mktemp("words")
    known = ["[PAD]", "[UNK]", *NAMES, "0", "1", "2", "by", "hand"]
    made = tokenizers.Tokenizer(WordLevel({name: row for row, name in enumerate(known)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    vectors = np.random.default_rng(0).standard_normal((len(known), DIM)).astype(np.float32)
    StaticModel(vectors=vectors, tokenizer=made, normalize=True).save_pretrained(folder)
    return folder


@pytest.fixture
def texts(run, photos, words, tmp_path):
    """A gallery of captions, an item for each photo; ids are their paths without the suffix."""
    paths = sorted(photos.rglob("*.png"))
    table = {
        "id": [path.relative_to(photos).as_posix().removesuffix(".png") for path in paths],
        "source": [f"{NAMES[int(path.parent.name)]} {'by hand' * (row % 2)}" for row, path in enumerate(paths)],
        "name": [NAMES[int(path.parent.name)] for path in paths],
    }
    parquet.write_table(pa.table(table), tmp_path / "captions.parquet")
    gallery = tmp_path / "texts.lance"
    for command in (
        ("init", gallery, "--version", "v1", "--encoder", f"model2vec:{words}", "--normalised"),
        ("add", gallery, tmp_path / "captions.parquet"),
    ):
        found = run(*command)
        assert found.code == 0, found.err
    return gallery


def names(result):
    return [row["name"] for row in result.json]


@pytest.mark.full
def test_images_ask_for_texts_then_for_images_and_texts_ask_for_images(run, photos, texts, words, tmp_path):
    out = tmp_path / "odd name & more.model"
    trained = run(
        *("train", "bt2", "--images", photos, "--gallery", texts, "--out", out),
        *(*SHAPE, *SHORT, "--held-out", 0.2, "--json"),
    )
    assert "48 images whose items have a vector in v1" in trained.err
    made = trained.json
    assert {"accuracy", "s/s", "t/s", "s/t", "t/t"} <= set(made["figures"])
    assert (made["dim"], made["metric"], made["normalised"]) == (DIM + 4, "cosine", True)
    for command in (
        ("register", texts, "v2", "--encoder", made["encoder"], "--metric", "cosine", "--normalised"),
        *(("link", texts, artifact) for artifact in made["artifacts"]),
    ):
        found = run(*command)
        assert found.code == 0, found.err
    ask = ("search", texts, "--image", next((photos / "1").iterdir()), "--version", "v2", "-k", 3, "--json")
    before = run(*ask)
    assert names(before) == ["one"] * 3
    assert {row["_version"] for row in before.json} == {"v1"}
    assert names(run("search", texts, "--text", "two", "-k", 3, "--json")) == ["two"] * 3

    assert run("upgrade", texts, "v2", "--backfill", 0.5, "--json").json["backfilled"] == 30
    assert names(run(*ask)) == ["one"] * 3
    assert run("upgrade", texts, "v2", "--backfill", 1.0, "--json").json["backfilled"] == 30
    assert run("cutover", texts, "v2").code == 0
    after = run(*ask)
    assert names(after) == ["one"] * 3
    assert {row["_version"] for row in after.json} == {"v2"}
    assert run("register", texts, "v2_text", "--of", "v2", "--dim", DIM).code == 0
    assert run("upgrade", texts, "v2_text").code == 0
    asked = from_spec(f"model2vec:{words}?normalise=true").encode(["zero by hand"])
    (tmp_path / "asked.json").write_text(json.dumps(asked.tolist()))
    found = run("search", texts, "--vector", tmp_path / "asked.json", "--version", "v2_text", "-k", 3, "--json")
    assert names(found) == ["zero"] * 3
    assert run("verify", texts).code == 0


@pytest.mark.full
def test_people_are_told_how_to_register_it(run, photos, texts, tmp_path):
    out = tmp_path / "v2.model"
    words = ("train", "bt2", "--images", photos, "--gallery", texts, "--out", out, *SHAPE, *SHORT)
    shown = run(*words, "--set", "epochs=1", "--set", "warmup_epochs=0", "--class-names")
    assert f"register {texts} VERSION --encoder network:{out}/encoder.safetensors --metric cosine" in shown.out
    shown = run(*words, "--set", "epochs=1", "--set", "warmup_epochs=0", "--overwrite", "--target", out)
    assert shown.code != 0
    assert "dim - extra = 16 values" in shown.err


@pytest.mark.full
def test_wrong_input_is_refused_before_training(run, photos, texts, empty, tmp_path):
    def refused(*words, gallery=texts, shape=SHAPE):
        found = run(
            *("train", "bt2", "--images", photos, "--gallery", gallery, "--out", tmp_path / "v2.model"),
            *(*shape, *SHORT, *words),
        )
        assert found.code != 0
        assert not (tmp_path / "v2.model").exists()
        return found.err

    assert "of metric l2; found cosine" in refused("--set", "metric=l2")
    assert "dim of at least the source's 16" in refused(shape=("--set", "dim=12", "--set", "extra=4"))
    assert "v9" in refused("--from", "v9")
    assert "gone.lance" in refused(gallery=tmp_path / "gone.lance")
    assert "ids that are paths below it" in refused(gallery=empty)
    assert "embeds the names" in refused("--class-names", gallery=empty)
    extra = photos / "1" / "new.png"
    extra.write_bytes(next((photos / "1").iterdir()).read_bytes())
    try:
        assert "--drop-missing" in refused()
    finally:
        extra.unlink()
