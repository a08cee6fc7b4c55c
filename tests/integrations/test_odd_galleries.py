"""One model alone, sources that are written again, an overwritten table: the same through each framework."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import CompatStoreWarning, Incompatible, TableChanged
from lazily import Lazy
from tests.framework_stores import FRAMEWORKS
from toy_models import NEW, OLD

lancedb = Lazy("lancedb")

WORDS = [f"word{number}" for number in range(40)]
TEXTS = {f"doc{n}": " ".join(np.random.default_rng(n).choice(WORDS, 4)) for n in range(60)}


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return FRAMEWORKS[request.param]


class Counted:
    """An encoder that remembers the texts that it has embedded to store."""

    def __init__(self, encoder):
        self._encoder, self.texts = encoder, []
        self.dim, self.fingerprint, self.spec, self.reads = (
            encoder.dim,
            encoder.fingerprint,
            encoder.spec,
            encoder.reads,
        )

    def encode(self, texts):
        self.texts += texts
        return self._encoder.encode(texts)

    def encode_queries(self, texts):
        return self._encoder.encode_queries(texts)


def an_app_table(folder, framework):
    """A LanceDB table with the old model's vectors: its address, and the vectors' length."""
    vectors = np.asarray(framework.encoder().encode(list(TEXTS.values())), np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    rows = pa.table({"id": list(TEXTS), "text": list(TEXTS.values()), "vector": column})
    for name in framework.columns:
        rows = rows.append_column(name, pa.nulls(len(rows), pa.string()))
    lancedb.connect(folder).create_table("notes", rows, mode="overwrite")
    return f"{folder}#notes", vectors.shape[1]


def adopted(folder, framework, **settings):
    address, dim = an_app_table(folder, framework)
    version = cs.EmbeddingVersion("v1", dim=dim, metric="cosine", **settings)
    return address, cs.Gallery.adopt(address, version, vector="vector", id="id", source="text")


def upgraded(folder, framework, share=1.0):
    """An adopted table with a share of natives in v2, which is ready: address, gallery and the new model's calls."""
    address, _ = adopted(folder, framework, encoder=framework.encoder())
    new = Counted(framework.encoder(NEW))
    gallery = cs.Gallery.open(address, encoders={"v1": framework.encoder()})
    gallery.register(cs.EmbeddingVersion("v2", dim=new.dim, metric="cosine", encoder=new))
    gallery.upgrade("v2", backfill=share)
    return address, gallery, new.texts


def test_a_version_without_a_model_is_given_the_stores_own(framework, tmp_path):
    address, gallery = adopted(tmp_path, framework)
    with pytest.raises(Incompatible):
        framework(address)
    gallery.register(
        cs.EmbeddingVersion("v1", dim=framework.encoder().dim, metric="cosine", encoder=framework.encoder())
    )
    assert framework(address).search(TEXTS["doc7"]) == "doc7"


def test_a_search_that_both_models_should_answer_says_that_one_does(framework, tmp_path):
    address, gallery, _ = upgraded(tmp_path, framework)
    gallery.evaluate("v2", weight=0.5, sample=60)
    gallery.cutover("v2", serving="fused")
    with pytest.warns(CompatStoreWarning, match="v1 has no encoder here: this search is answered by v2 alone"):
        assert framework(address, [NEW]).search(TEXTS["doc7"]) == "doc7"
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompatStoreWarning)
        assert framework(address, [OLD, NEW]).search(TEXTS["doc7"]) == "doc7"


def test_a_text_that_is_written_again_costs_no_embedding(framework, tmp_path):
    address, gallery, calls = upgraded(tmp_path, framework)
    native = gallery.status().versions[1].native
    assert (native, len(calls)) == (len(TEXTS), len(TEXTS))
    framework(address).write({name: (text, {}) for name, text in TEXTS.items()})
    gallery.upgrade("v2", backfill=1.0)
    assert (gallery.status().versions[1].native, len(calls)) == (native, len(TEXTS))
    framework(address).write({"doc7": ("another text", {})})
    gallery.upgrade("v2", backfill=1.0)
    assert calls[len(TEXTS) :] == ["another text"]
    assert gallery.maintenance.verify().clean


def test_an_overwritten_table_is_refused_with_the_way_out(framework, tmp_path):
    address, _, _ = upgraded(tmp_path, framework)
    store = framework(address, [OLD, NEW])
    other = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(60 * 5, np.float32)), 5)
    rows = pa.table({"id": list(TEXTS), "text": list(TEXTS.values()), "vector": other})
    lancedb.connect(tmp_path).create_table("notes", rows, mode="overwrite")
    for call in (lambda: store.search("a"), lambda: store.write({"x": ("a", {})}), lambda: framework(address)):
        with pytest.raises(TableChanged, match="again=True"):
            call()
    assert len(lancedb.connect(tmp_path).open_table("notes")) == len(TEXTS)
