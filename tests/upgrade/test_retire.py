"""Retiring a source is the last moment at which what apps wrote behind the gallery's back can be found."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import UpgradeError
from tests.known.galleries import OWN, item_id, make_template
from tests.known.vectors import ENCODERS, bridge, source_vector

pytestmark = pytest.mark.full

LATE = {item_id(1): "changed", "new": "new/0"}


@pytest.fixture
def path(tmp_path):
    return str(make_template(tmp_path, OWN, fragments=2, rows=40))


def write_late(path):
    merge = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(OWN.rows(LATE))


def test_retire_catches_up_with_plain_writes_first(path):
    gallery = cs.Gallery.open(path, encoders=ENCODERS)
    gallery.upgrade("v2")
    gallery.cutover("v2")
    write_late(path)
    assert gallery.retire("v1").missing == 0
    expected = bridge().apply(np.stack([source_vector(source) for source in LATE.values()])).vectors
    np.testing.assert_allclose(gallery.vectors(list(LATE), "v2"), expected, rtol=1e-5)
    assert gallery.maintenance.verify().clean


def test_retire_is_refused_while_items_have_their_only_vector_in_the_source(path):
    gallery = cs.Gallery.open(path, encoders=ENCODERS)
    gallery.upgrade("v2")
    gallery.cutover("v2")
    broken = OWN.rows({"new": "new/0"})
    vector = pa.FixedSizeListArray.from_arrays(pa.array(np.full(12, np.nan, np.float32)), 12)
    lance.write_dataset(broken.set_column(2, "v1", vector), path, mode="append")
    with pytest.raises(UpgradeError, match="1 items without one"):
        gallery.retire("v1")
    assert gallery.retire("v1", force=True).missing == 1
