"""Text models in folders: tiny ones with random weights, made here, run by the real libraries where they are there."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from compatstore.encoders import (
    Encoder,
    FastembedModel,
    Model2VecModel,
    QueryEncoder,
    SentenceTransformersModel,
    TransformersModel,
    encode_queries,
    from_spec,
)
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, SourceError

WORDS = ("red", "green", "blue", "shirt", "coat", "hat", "small", "large", "query", "passage", ":", "a", "of", "the")
TEXTS = ["red shirt", "a large blue coat of the small hat", "hat"]
DIM = 16
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


def tokenizer(longest: int = 32):
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    made = tokenizers.Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return made, len(names)


def bert(folder: Path, seed: int = 0) -> Path:
    """A tiny BERT with its tokenizer, as `save_pretrained` writes them."""
    transformers = pytest.importorskip("transformers")
    import torch

    torch.manual_seed(seed)
    made, size = tokenizer()
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=DIM, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(config).eval().save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=32,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def sentence_model(folder: Path) -> Path:
    """The same for sentence-transformers, with prompts of its own."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    inner = bert(folder.with_name(f"{folder.name}-bert"))
    model = SentenceTransformer(str(inner), device="cpu", local_files_only=True)
    model.prompts = {"query": "query: ", "document": "passage: "}
    model.save(str(folder))
    shutil.rmtree(inner)
    return folder


def onnx_model(folder: Path) -> Path:
    """A table of token vectors as an ONNX graph: last_hidden_state of (n, tokens, DIM)."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("fastembed")
    from onnx import TensorProto, helper, numpy_helper

    folder.mkdir()
    made, size = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(0).standard_normal((size, DIM)).astype(np.float32)
    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in ("input_ids", "attention_mask")
    ]
    states = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", DIM])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "table", ids, [states], [numpy_helper.from_array(table, "table")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    settings = {"model_max_length": 32, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
    return folder


def static_model(folder: Path) -> Path:
    pytest.importorskip("model2vec")
    from model2vec import StaticModel

    made, size = tokenizer()
    vectors = np.random.default_rng(0).standard_normal((size, DIM)).astype(np.float32)
    StaticModel(vectors=vectors, tokenizer=made, normalize=False).save_pretrained(folder)
    return folder


MODELS = {
    "sentence-transformers": (SentenceTransformersModel, sentence_model),
    "transformers": (TransformersModel, bert),
    "fastembed": (FastembedModel, onnx_model),
    "model2vec": (Model2VecModel, static_model),
}
KINDS = pytest.mark.parametrize("kind", MODELS)


def made(kind: str, folder: Path, **settings: object):
    model, make = MODELS[kind]
    given = {"device": "cpu"} if kind in ("sentence-transformers", "transformers") else {}
    return model(make(folder), **given, **settings)


@KINDS
def test_texts_are_embedded_whatever_stands_beside_them(kind: str, tmp_path: Path) -> None:
    encoder = made(kind, tmp_path / "model", batch_size=2)
    assert isinstance(encoder, Encoder)
    assert isinstance(encoder, QueryEncoder)
    assert encoder.dim == DIM
    together = encoder.encode(TEXTS)
    assert together.shape == (3, DIM)
    assert together.dtype == np.float32
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(encoder.encode([text])[0], vector, atol=1e-5)
    assert encoder.encode([]).shape == (0, DIM)


@KINDS
def test_the_files_are_the_model_and_the_path_is_not(kind: str, tmp_path: Path) -> None:
    encoder = made(kind, tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "a copy? of #1, 100%")
    (tmp_path / "a copy? of #1, 100%" / "README.md").write_text("A tiny model.")
    elsewhere = type(encoder)(tmp_path / "a copy? of #1, 100%")
    assert elsewhere.fingerprint == encoder.fingerprint
    again = from_spec(elsewhere.spec)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    weights = next(path for path in (tmp_path / "model").rglob("*") if path.suffix in (".safetensors", ".onnx"))
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert from_spec(f"{kind}:{tmp_path / 'model'}").fingerprint != encoder.fingerprint


@KINDS
def test_prefixes_and_length_belong_to_the_fingerprint_and_to_the_spec(kind: str, tmp_path: Path) -> None:
    plain = made(kind, tmp_path / "model")
    model = type(plain)
    prefixed = model(tmp_path / "model", query_prefix="query : ", document_prefix="passage : ", normalise=True)
    assert prefixed.fingerprint != plain.fingerprint
    assert prefixed.fingerprint != model(tmp_path / "model", query_prefix="query : ").fingerprint
    items, queries = prefixed.encode(TEXTS), encode_queries(prefixed, TEXTS).vectors
    assert np.abs(items - queries).max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(items, axis=1), 1, atol=1e-5)
    again = from_spec(prefixed.spec)
    assert again.fingerprint == prefixed.fingerprint
    np.testing.assert_allclose(again.encode_queries(TEXTS), queries, atol=1e-5)
    if kind != "sentence-transformers":
        by_hand = plain.encode([f"query : {text}" for text in TEXTS])
        by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
        np.testing.assert_allclose(queries, by_hand, atol=1e-5)


def test_prompts_of_the_model_itself_are_used(tmp_path: Path) -> None:
    encoder = made("sentence-transformers", tmp_path / "model")
    assert np.abs(encoder.encode(TEXTS) - encoder.encode_queries(TEXTS)).max() > 1e-3
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), model.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS), model.encode_document(TEXTS), atol=1e-5)


@pytest.mark.parametrize("kind", ["transformers", "fastembed"])
def test_each_way_of_pooling_is_another_model(kind: str, tmp_path: Path) -> None:
    encoders = [made(kind, tmp_path / "model")]
    encoders += [type(encoders[0])(tmp_path / "model", pooling=pooling) for pooling in ("cls", "last")]
    assert len({encoder.fingerprint for encoder in encoders}) == 3
    vectors = [encoder.encode(TEXTS) for encoder in encoders]
    assert all(np.abs(one - other).max() > 1e-3 for one, other in itertools.pairwise(vectors))
    for encoder, together in zip(encoders, vectors, strict=True):
        np.testing.assert_allclose(encoder.encode(TEXTS[:1]), together[:1], atol=1e-5)


def test_long_texts_are_cut_where_the_model_ends(tmp_path: Path) -> None:
    encoder = made("transformers", tmp_path / "model")
    assert encoder.encode(["red shirt " * 500]).shape == (1, DIM)
    short = TransformersModel(tmp_path / "model", longest=4, device="cpu")
    np.testing.assert_allclose(short.encode(["red shirt hat"]), short.encode(["red shirt coat"]), atol=1e-6)
    assert short.fingerprint != encoder.fingerprint


@KINDS
def test_a_folder_that_holds_no_model_is_refused(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind.replace("-", "_"))
    with pytest.raises(NotFound, match=f"a model of {kind}.*a folder"):
        from_spec(f"{kind}:{tmp_path / 'nowhere'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises((CorruptArtifact, NotFound), match="model"):
        from_spec(f"{kind}:{tmp_path / 'empty'}")


@KINDS
def test_what_is_no_text_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as error:
        made(kind, tmp_path / "model").encode(["red", None, 3])
    assert sorted(error.value.failures) == [1, 2]


@pytest.mark.parametrize("settings", [{"pooling": "max"}, {"longest": 0}, {"batch_size": 0}])
def test_settings_out_of_their_range_are_refused(settings: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        TransformersModel(tmp_path, **settings)
