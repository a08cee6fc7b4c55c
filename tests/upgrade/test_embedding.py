"""One batch through an encoder that fails: what is at fault is found, all the rest is embedded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.encoders import Function
from compatstore.errors import EncoderFailed, SourceError
from compatstore.upgrade.backfilling.embedding import BARREN_PARTS, NO_SOURCE, Embedder, ItemBatch
from compatstore.upgrade.requests.run_settings import RunSettings

KINDS = st.sampled_from(["good", "good", "good", "poison", "unreadable", "none"])


def embedder(kinds, calls, retries=0):
    def encode(numbers):
        calls.append(len(numbers))
        if any(kinds[number] == "poison" for number in numbers):
            raise RuntimeError("cannot take one of these")
        unreadable = [i for i, number in enumerate(numbers) if kinds[number] == "unreadable"]
        if unreadable:
            raise SourceError("read", dict.fromkeys(unreadable, "no such file"))
        return np.array([[number, 1.0] for number in numbers])

    encoder = Function(encode, 2, fingerprint="test")
    return Embedder(encoder, "v2", RunSettings(retries=retries), rest=lambda seconds: None)


def batch(kinds):
    inputs = [None if kind == "none" else number for number, kind in enumerate(kinds)]
    ids = [f"id-{number}" for number in range(len(kinds))]
    return ItemBatch(ids=ids, inputs=inputs, input_hash=np.arange(len(kinds), dtype=np.uint64))


@given(st.lists(KINDS, max_size=60))
def test_each_item_is_embedded_or_has_its_reason(kinds):
    calls = []
    try:
        made = embedder(kinds, calls).embed(batch(kinds))
    except EncoderFailed:
        assert kinds.count("poison") > BARREN_PARTS // 4
        return
    by_row = dict(zip(made.rows.tolist(), made.vectors.tolist(), strict=True))
    assert by_row == {number: [number, 1.0] for number, kind in enumerate(kinds) if kind == "good"}
    reasons = {"poison": "RuntimeError: cannot take one of these", "unreadable": "no such file", "none": NO_SOURCE}
    assert made.failures == {number: reasons[kind] for number, kind in enumerate(kinds) if kind != "good"}


def test_a_few_bad_items_cost_few_calls():
    kinds = ["good"] * 1024
    for number in (17, 18, 19, 700):
        kinds[number] = "poison"
    calls = []
    made = embedder(kinds, calls).embed(batch(kinds))
    assert len(made.rows) == 1020
    assert len(calls) < 2 * 4 * 11, "twice the depth of the halving for each of them, at most"


@pytest.mark.parametrize(("rows", "retries"), [(1024, 0), (1024, 4), (64, 2)])
def test_an_encoder_that_takes_nothing_is_found_out_soon(rows, retries):
    calls = []
    with pytest.raises(EncoderFailed, match=f"embed {rows} items in v2: id-0, id-1.*for {BARREN_PARTS} parts"):
        embedder(["poison"] * rows, calls, retries).embed(batch(["poison"] * rows))
    assert len(calls) == 1 + retries + BARREN_PARTS


def test_a_batch_of_one_is_tried_as_often_and_listed():
    calls = []
    made = embedder(["poison"], calls, retries=2).embed(batch(["poison"]))
    assert (len(calls), list(made.failures)) == (3, [0])


def test_a_batch_without_sources_asks_the_encoder_nothing():
    calls = []
    made = embedder(["none", "none"], calls).embed(batch(["none", "none"]))
    assert (calls, made.failures, made.vectors.shape) == ([], {0: NO_SOURCE, 1: NO_SOURCE}, (0, 2))
