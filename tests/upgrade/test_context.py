"""The context of an upgrade: what is read through it belongs to one table version."""

import pytest

import compatstore as cs
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.plan import make_plan
from compatstore.upgrade.resolve import resolve_run
from galleries import SOURCE, items, make


@pytest.fixture
def gallery(tmp_path):
    return make(str(tmp_path / "gallery.lance"), fragments=2, rows=30)


def more(gallery, start):
    gallery.add(items(start, 10))


def context_of(gallery):
    catalog = gallery._catalog
    return UpgradeContext.of(catalog, catalog.registry().runs["v2"])


@pytest.mark.full
def test_a_context_stays_as_it_is_while_others_write(gallery):
    gallery.upgrade("v2")
    context = context_of(gallery)
    rows = context.count()
    more(gallery, 1000)
    gallery.cutover("v2")
    assert context.count() == context.count(context.target.present) == rows
    assert context.registry.active == "v1"


def test_a_later_context_sees_what_was_written(gallery):
    gallery.upgrade("v2")
    context = context_of(gallery)
    rows = context.count()
    more(gallery, 1000)
    later = context.later()
    assert later.count() == rows + 10
    assert later.run == context.run
    assert later.snapshot.version > context.snapshot.version


def test_what_was_counted_is_handed_on(gallery):
    gallery.upgrade("v2")
    context = context_of(gallery)
    counted = context.count(context.target.present)
    more(gallery, 1000)
    later = context.later()
    assert later.counts is context.counts
    assert later.count(later.target.present) == later.snapshot.count_rows(later.target.present) == counted + 10
    assert context.with_run(context.run).counts is context.counts


def test_before_an_upgrade_there_are_no_columns_to_count(gallery):
    context = resolve_run(gallery._catalog, "v2")
    assert context.counts is None
    assert not context.has_both
    assert context.count() == context.count(context.source.present) == len(gallery)


def test_a_plan_is_of_one_table_version(gallery):
    """Its rows and steps are those of the moment when it was asked for, whatever is added meanwhile."""
    context = resolve_run(gallery._catalog, "v2", backfill=cs.Backfill(share=0.5))
    before = make_plan(context)
    more(gallery, 1000)
    after = make_plan(context)
    assert (after.rows, [step.rows for step in after.steps]) == (before.rows, [step.rows for step in before.steps])


def test_a_context_of_an_empty_table_version_stays_in_it(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), SOURCE)
    gallery.register(cs.EmbeddingVersion("v2", dim=6, metric="l2"))
    empty = gallery._catalog.store.snapshot()
    gallery.add(items(0, 10))
    run = resolve_run(gallery._catalog, "v2", backfill=cs.Backfill(share=1.0)).run
    assert UpgradeContext.of(gallery._catalog, run, empty).count() == 0
