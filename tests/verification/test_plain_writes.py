"""What apps do behind a gallery's back, and what stays theirs, is no flaw of the gallery."""

from __future__ import annotations

import lance
import pytest

import compatstore as cs
from tests.known.galleries import ADOPTED, OWN, make_template
from tests.known.vectors import ENCODERS

pytestmark = pytest.mark.full


def test_an_adopted_table_stays_the_apps_when_its_version_is_retired(tmp_path):
    path = str(make_template(tmp_path, ADOPTED, fragments=2, rows=40))
    gallery = cs.Gallery.open(path, encoders=ENCODERS)
    gallery.upgrade("v2")
    gallery.cutover("v2")
    gallery.retire("v1")
    assert gallery.maintenance.verify().clean, "no tag is missed"
    gallery.register(cs.EmbeddingVersion("v3", dim=12, metric="l2", encoder=ENCODERS["v1"], model="of that size"))
    gallery.upgrade("v3", backfill=1.0)
    gallery.cutover("v3")
    assert lance.dataset(path).tags.list() == {}, "a tag would make the app's own clean-up fail"
    table = lance.dataset(path)
    assert [table.schema.field("embedding").type.list_size] != table.schema.field("v3").type.shape, (
        "or LanceDB would not know which of the two an app's search means"
    )


def test_rows_that_were_written_without_our_columns_are_sound(tmp_path):
    path = str(make_template(tmp_path, OWN, fragments=2, rows=40))
    lance.write_dataset(OWN.rows({"new": "new/0"}), path, mode="append")
    gallery = cs.Gallery.open(path, encoders=ENCODERS)
    assert gallery.maintenance.verify().clean
    gallery.upgrade("v2")
    assert gallery.maintenance.verify().clean
