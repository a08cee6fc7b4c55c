"""Native vectors stay while their item's source stays: another source vector costs no embedding."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.trainers import Pairs, Ridge
from lazily import Lazy

lancedb = Lazy("lancedb")

N, DIM = 120, 6
IDS = [f"i{number:03d}" for number in range(N)]
TEXTS = [f"text {number}" for number in range(N)]
HALF = 0.5


def old(texts, shift=0.0):
    numbers = np.array([int(text.split()[1]) for text in texts])[:, None]
    return np.cos(numbers + np.arange(1, DIM + 1) + shift).astype(np.float32)


class Counter:
    """An encoder that remembers the texts that it has embedded."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return np.sin(old(texts) * 3)


def rows_of(ids, texts, vectors):
    return pa.table({"id": ids, "text": texts, "vector": pa.array(list(vectors), pa.list_(pa.float32(), DIM))})


@pytest.fixture
def life(tmp_path):
    """An adopted table, half of it native in v2: the app's handle, the gallery, the counting encoder."""
    table = lancedb.connect(tmp_path).create_table("notes", rows_of(IDS, TEXTS, old(TEXTS)))
    counter = Counter()
    encoder = cs.encoders.Function(counter, dim=DIM, fingerprint="counter")
    v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="cosine")
    v2 = cs.EmbeddingVersion("v2", dim=DIM, metric="cosine", encoder=encoder)
    gallery = cs.Gallery.adopt(table, v1, vector="vector", id="id", source="text")
    gallery.register(v2)
    gallery.artifacts.link(
        Ridge().fit(Pairs(old(TEXTS[::2]), Counter()(TEXTS[::2]), source_version=v1, target_version=v2))
    )
    gallery.upgrade("v2", backfill=HALF)
    assert len(counter.texts) == N // 2
    return table, gallery, counter


def origins(gallery):
    found = gallery.get(IDS, ["id", "v2__origin"])
    return dict(zip(found["id"].to_pylist(), found["v2__origin"].to_pylist(), strict=True))


def natives(gallery):
    return {item for item, origin in origins(gallery).items() if origin == "native"}


def app_update(table, gallery, ids, texts, vectors):
    table.checkout_latest()
    table.merge_insert("id").when_matched_update_all().execute(rows_of(ids, texts, vectors))


def gallery_upsert(table, gallery, ids, texts, vectors):
    gallery.add({"id": ids, "source": texts, "vector": vectors}, upsert=True)


@pytest.mark.parametrize("write", [app_update, gallery_upsert])
def test_other_source_vectors_leave_native_ones_as_they_are(life, write):
    table, gallery, counter = life
    before, stored = natives(gallery), gallery.get(IDS, ["id", "v2"])["v2"].to_pylist()
    write(table, gallery, IDS, TEXTS, old(TEXTS, shift=0.01))
    gallery.upgrade("v2", backfill=HALF)
    assert natives(gallery) == before
    assert len(counter.texts) == N // 2
    after = dict(zip(IDS, gallery.get(IDS, ["id", "v2"])["v2"].to_pylist(), strict=True))
    for item, vector in zip(IDS, stored, strict=True):
        assert (after[item] == vector) == (item in before)
    assert not gallery.maintenance.verify().findings


@pytest.mark.parametrize("write", [app_update, gallery_upsert])
def test_other_sources_do_not(life, write):
    table, gallery, counter = life
    chosen = sorted(natives(gallery))[:10]
    texts = [f"text {int(item[1:]) + 500}" for item in chosen]
    write(table, gallery, chosen, texts, old(texts))
    gallery.upgrade("v2", backfill=HALF)
    assert len(natives(gallery)) == N // 2
    assert len(counter.texts) == N // 2 + 10
    found = gallery.get(IDS, ["id", "text", "v2"])
    for item, text, vector in zip(*(found[name].to_pylist() for name in ("id", "text", "v2")), strict=True):
        if item in natives(gallery):
            np.testing.assert_allclose(vector[:DIM], np.sin(old([text]) * 3)[0], atol=1e-6)
    assert not gallery.maintenance.verify().findings


def test_a_vector_that_waits_is_stored_beside_another_source_vector(life):
    """The app writes source vectors again while a batch is embedded; what was paid is not lost."""
    table, gallery, counter = life

    class Beside(Counter):
        def __call__(self, texts):
            app_update(table, None, IDS, TEXTS, old(TEXTS, shift=0.02))
            return super().__call__(texts)

    beside = Beside()
    encoder = cs.encoders.Function(beside, dim=DIM, fingerprint="counter")
    gallery = cs.Gallery.open(table, encoders={"v2": encoder})
    gallery.upgrade("v2", backfill=0.6)
    assert len(natives(gallery)) == len(set(counter.texts + beside.texts)) == len(counter.texts + beside.texts) == 72
    assert not gallery.maintenance.verify().findings
