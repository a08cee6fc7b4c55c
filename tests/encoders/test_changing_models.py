"""Encoders that are not what they were: another model midway, another length, no array."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import CompatStoreError, Incompatible

TEXTS = [f"text {number}" for number in range(60)]


class Changing:
    """Becomes another model, or another length, after some calls; or returns something else than an array."""

    spec, reads = "", "source"

    def __init__(self, after=10**9, dim_after=10**9, returns=lambda vectors: vectors):
        self.calls, self.after, self.dim_after, self.returns = 0, after, dim_after, returns

    @property
    def fingerprint(self):
        return "one" if self.calls < self.after else "other"

    @property
    def dim(self):
        return 4 if self.calls < self.dim_after else 5

    def encode(self, sources):
        dim = self.dim
        vectors = np.array([[len(text), *map(ord, text[-dim + 1 :])] for text in sources], np.float32)
        self.calls += 1
        return self.returns(vectors)


@pytest.fixture
def gallery(tmp_path):
    first = cs.encoders.Function(lambda texts: np.ones((len(texts), 3), np.float32), 3, fingerprint="first")
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=3, encoder=first))
    gallery.add({"id": [f"i{n:02}" for n in range(60)], "source": TEXTS})
    return gallery


def embedded(folder, ids):
    """A gallery whose items were embedded by an encoder that has not changed yet."""
    encoder = Changing()
    gallery = cs.Gallery.create(str(folder / "g.lance"), cs.EmbeddingVersion("v1", dim=4, metric="l2", encoder=encoder))
    gallery.add({"id": ids, "source": [f"text {number}" for number in range(1, len(ids) + 1)]})
    return gallery, encoder


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_a_backfill_ends_at_the_batch_in_which_the_model_has_changed(gallery, calls):
    encoder = Changing(after=calls)
    gallery.register(cs.EmbeddingVersion("v2", dim=4, metric="l2", encoder=encoder))
    with pytest.raises(Incompatible, match=r"its fingerprint has changed|registered with"):
        gallery.upgrade("v2", backfill=1.0, run=cs.RunSettings(batch_rows=10))
    native = gallery.status().versions[1].native
    assert native <= 10 * (calls - 1)
    encoder.after = 10**9
    assert gallery.upgrade("v2", backfill=1.0).missing == 0


def test_a_search_and_an_add_refuse_a_model_that_has_changed(tmp_path):
    gallery, encoder = embedded(tmp_path, ["a"])
    assert gallery.search("text 1", k=1)["id"].to_pylist() == ["a"]
    encoder.after = 0
    for call in (lambda: gallery.search("text 1"), lambda: gallery.add({"id": ["b"], "source": ["text 2"]})):
        with pytest.raises(Incompatible, match=r"model|fingerprint"):
            call()
    assert len(gallery.scan()) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"returns": lambda vectors: vectors.tolist()},
        {"returns": lambda vectors: None},
        {"returns": lambda vectors: (row for row in vectors)},
        {"returns": lambda vectors: vectors[0]},
        {"returns": lambda vectors: vectors.astype(str)},
        {"dim_after": 1},
    ],
    ids=["list", "none", "generator", "one row", "texts", "another length"],
)
def test_what_is_no_array_of_vectors_is_an_error_of_ours(tmp_path, broken):
    gallery, encoder = embedded(tmp_path, ["a", "b"])
    vars(encoder).update(broken)
    for call in (
        lambda: gallery.search("text 1"),
        lambda: gallery.add({"id": ["c"], "source": ["text 3"]}),
        lambda: gallery.upgrade("v2", backfill=1.0),
    ):
        with pytest.raises(CompatStoreError):
            call()
    assert len(gallery.scan()) == 2
