"""Encoders whose vectors are derived of another's."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders import (
    Bill,
    Derived,
    Encoder,
    Function,
    Metered,
    Precomputed,
    encode_queries,
    encode_readable,
)
from compatstore.errors import InvalidInput

VECTORS = np.random.default_rng(0).standard_normal((20, 12)).astype(np.float32)
SHORT = cs.Derivation(dim=4, normalise=True)


def whole():
    return Precomputed({f"item-{row}": vector for row, vector in enumerate(VECTORS)})


def test_it_is_an_encoder_that_derives_what_its_model_gives():
    made = Derived(whole(), SHORT)
    assert isinstance(made, Encoder)
    assert (made.dim, made.reads, made.spec) == (4, "id", "")
    np.testing.assert_array_equal(made.encode(["item-3", "item-0"]), SHORT.apply(VECTORS[[3, 0]]))
    assert made.knows(["item-1", "other"]).tolist() == [True, False]


def test_a_model_that_does_not_say_what_it_knows_stays_silent():
    texts = Function(lambda texts: [[len(text), 1.0] for text in texts], dim=2, fingerprint="length")
    assert not hasattr(Derived(texts, cs.Derivation(dim=1)), "knows")


def test_the_fingerprint_is_of_the_model_and_of_every_step():
    steps = (cs.Derivation(dim=8, normalise=True), SHORT)
    at_once, one_by_one = Derived(whole(), *steps), Derived(Derived(whole(), steps[0]), steps[1])
    assert at_once.fingerprint == one_by_one.fingerprint
    assert one_by_one.encoder.dim == 12
    assert len({at_once.fingerprint, whole().fingerprint, Derived(whole(), SHORT).fingerprint}) == 3
    np.testing.assert_array_equal(at_once.encode(["item-5"]), one_by_one.encode(["item-5"]))


def test_what_has_no_direction_is_a_failure_of_its_item_alone():
    lost = Precomputed({"a": [0.0, 0.0, 1.0], "b": [3.0, 4.0, 0.0]})
    encoded = encode_readable(Derived(lost, cs.Derivation(dim=2, normalise=True)), ["a", "b"])
    assert list(encoded.failures) == [0]
    np.testing.assert_array_equal(encoded.vectors, np.array([[0.6, 0.8]], np.float32))


def test_wrong_steps_are_refused():
    with pytest.raises(InvalidInput, match="found none"):
        Derived(whole())
    with pytest.raises(InvalidInput, match="12 values at most"):
        Derived(whole(), cs.Derivation(dim=13))
    with pytest.raises(InvalidInput, match="4 values at most"):
        Derived(whole(), SHORT, cs.Derivation(dim=5))


def test_a_gallery_keeps_the_model_and_the_steps(tmp_path):
    np.savez(tmp_path / "v.npz", id=np.array([f"item-{n}" for n in range(20)]), vector=VECTORS)
    model = Precomputed(tmp_path / "v.npz")
    version = cs.EmbeddingVersion("v1", dim=4, normalised=True, encoder=Derived(model, SHORT))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), version)
    gallery.add({"id": ["item-2"], "source": ["x"]})
    again = cs.Gallery.open(str(tmp_path / "g.lance"))
    again.add({"id": ["item-7"], "source": ["x"]})
    np.testing.assert_array_equal(again.vectors(["item-2", "item-7"]), SHORT.apply(VECTORS[[2, 7]]))
    assert again.version("v1").fingerprint == version.fingerprint


class Paid:
    """Embeds queries by another way than items, and says what a call will cost."""

    dim, fingerprint, spec, reads, request_rows = 12, "paid", "", "source", 16

    def encode(self, sources):
        return VECTORS[[int(source) for source in sources]]

    def encode_queries(self, queries):
        return -self.encode(queries)

    def expected_bill(self, sources):
        return Bill(items=len(sources), cost=0.5 * len(sources))


def test_queries_and_bills_are_the_models():
    made = Derived(Paid(), SHORT)
    np.testing.assert_array_equal(encode_queries(made, ["2"]).vectors, SHORT.apply(-VECTORS[[2]]))
    assert isinstance(made, Metered)
    assert (made.request_rows, made.expected_bill(["1", "2"]).cost) == (16, 1.0)
    assert not isinstance(Derived(whole(), SHORT), Metered)
    np.testing.assert_array_equal(
        encode_queries(Derived(whole(), SHORT), ["item-2"]).vectors, SHORT.apply(VECTORS[[2]])
    )
