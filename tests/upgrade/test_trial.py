from __future__ import annotations

import pytest
from digit_galleries import DIGITS, gallery_of

import compatstore as cs


def test_a_better_target_is_advised_and_nothing_is_written(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS[:, ::9], DIGITS)
    before = gallery.status().table_version
    table = gallery.evaluate("v2", labels="digit", sample=1000)
    assert gallery.status().table_version == before
    assert [row.notation for row in table.rows][::11] == ["s/s", "t/t"]
    assert [row.notation for row in table.rows][9:11] == ["s/s & t/h", "s/s & t/t"]
    assert table.advice.verdict == "upgrade"
    assert table.row("full backfill").figures["map"].value > table.row("status quo").figures["map"].high
    assert table.num_queries == 1000


def test_a_worse_target_is_advised_against(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS, DIGITS[:, ::9])
    assert gallery.evaluate("v2", labels="digit", sample=1000).advice.verdict == "do not upgrade"


def test_natives_in_the_table_serve_where_there_is_no_encoder(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS[:, ::9], DIGITS)
    gallery.upgrade("v2", backfill=0.5)
    reopened = cs.Gallery.open(gallery.status().gallery)
    table = reopened.evaluate("v2", sample=1797)
    assert table.truth == "the target's 10 nearest neighbours"
    assert table.num_queries == 898


def test_what_cannot_be_tried_says_what_is_missing(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS[:, ::9], DIGITS, encoder=False)
    with pytest.raises(cs.errors.UpgradeError, match="encoders="):
        gallery.evaluate("v2")
    with pytest.raises(cs.errors.InvalidInput, match="digit"):
        gallery.evaluate("v2", labels="colour")
    with pytest.raises(cs.errors.InvalidInput, match="sample >= 40"):
        gallery.evaluate("v2", sample=3)
