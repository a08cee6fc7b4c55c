"""Looking at a gallery whose upgrade another process begins, ends and drops: nothing false is found."""

from __future__ import annotations

import multiprocessing
import threading
import time

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.upgrade import hop, status
from states import BATCHES, open_with_encoder


def rival(path, seconds):
    end, rounds = time.monotonic() + seconds, 0
    gallery = open_with_encoder(path)
    while time.monotonic() < end:
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.25, write_mode="rewrite_columns"), run=BATCHES)
        gallery.abort("v2") if rounds % 2 else gallery.retire("v2")
        rounds += 1


def test_columns_that_an_upgrade_is_about_to_record_are_no_finding(at, monkeypatch):
    path, edit = at("upgradable"), hop.edit
    columns_are_there, looked = threading.Event(), threading.Event()

    def slow_edit(store, change, entry=None):
        if entry is not None and entry.step == "expand":
            columns_are_there.set()
            assert looked.wait(60)
        return edit(store, change, entry)

    monkeypatch.setattr(hop, "edit", slow_edit)
    thread = threading.Thread(target=lambda: open_with_encoder(path).upgrade("v2"))
    thread.start()
    try:
        assert columns_are_there.wait(60)
        assert open_with_encoder(path).maintenance.verify().clean
    finally:
        looked.set()
        thread.join()


def test_an_upgrade_that_is_dropped_while_its_missing_items_are_named(at, monkeypatch):
    """An app adds rows to an upgrade that is ready; a rival drops it between the count of these and their ids."""
    path, first_of = at("ready"), status.first_of
    table = lance.dataset(path)
    late = table.to_table(limit=2).select(["id", "v1"])
    late = late.set_column(0, "id", pa.array(["late-1", "late-2"], late.schema.field("id").type))
    table.merge_insert("id").when_not_matched_insert_all().execute(
        pa.Table.from_arrays(
            [
                late[name] if name in late.column_names else pa.nulls(2, table.schema.field(name).type)
                for name in table.schema.names
            ],
            schema=table.schema,
        )
    )

    def after_a_rival(*asked):
        open_with_encoder(path).abort("v2")
        return first_of(*asked)

    monkeypatch.setattr(status, "first_of", after_a_rival)
    (run,) = open_with_encoder(path).status().upgrades
    assert set(run.missing) == {"late-1", "late-2"}


@pytest.mark.full
def test_what_looks_at_it_finds_nothing_wrong(at):
    path = at("upgradable")
    process = multiprocessing.get_context("spawn").Process(target=rival, args=(path, 6.0))
    process.start()
    looks = 0
    while process.is_alive():
        gallery = open_with_encoder(path)
        gallery.status()
        gallery.upgrade("v2", dry_run=True)
        assert len(gallery.scan()) == 239
        assert gallery.search(np.ones(24, np.float32), k=3, version="v1").num_rows == 3
        assert [finding for finding in gallery.maintenance.verify().findings if finding.severity != "note"] == []
        looks += 1
    assert process.exitcode == 0
    assert looks > 3
