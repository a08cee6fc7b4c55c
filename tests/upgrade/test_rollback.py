"""An upgrade that was rolled back and goes on is the same upgrade: what it has spent, and how it is served."""

from __future__ import annotations

from click.testing import CliRunner

from compatstore.cli.app import app
from states import open_with_encoder


def fused(at):
    path = at("ready")
    gallery = open_with_encoder(path)
    gallery.evaluate("v2", weight=0.5, sample=60)
    return path, gallery


def test_it_keeps_being_served_by_both_models(at):
    _, gallery = fused(at)
    there = gallery.cutover("v2")
    assert (there.served_before, there.serving) == ("the fusion of v1 and v2", "the fusion of v1 and v2")
    back = gallery.rollback()
    assert (back.active, back.served_before, back.serving) == ("v1", "the fusion of v1 and v2", "v1 alone")
    assert gallery.upgrade("v2").state == "ready"
    assert gallery.cutover("v2").serving == "the fusion of v1 and v2"


def test_what_it_has_spent_is_told_of_the_whole_upgrade(at):
    _, gallery = fused(at)
    before = gallery.status().upgrades[0]
    assert before.spent.rows > 0
    gallery.cutover("v2")
    gallery.rollback()
    gallery.upgrade("v2")
    after = gallery.status().upgrades[0]
    assert after.spent.rows == before.spent.rows
    gallery.cutover("v2")
    report = gallery.report("v2", measure=False)
    assert report.embedded == before.spent.rows


def test_another_transform_ends_the_fusion(at, linear):
    _, gallery = fused(at)
    gallery.rollback("v2")
    other = linear(gallery.version("v1", encoders=False), gallery.version("v2", encoders=False), seed=5)
    gallery.artifacts.link(other)
    gallery.upgrade("v2", transform=other.id)
    change = gallery.cutover("v2")
    assert change.serving == "v2 alone"


def test_an_abandoned_upgrade_begins_anew(at):
    _, gallery = fused(at)
    gallery.abort("v2")
    gallery.upgrade("v2", backfill=0.0)
    assert gallery.status().upgrades[0].spent.rows == 0
    assert gallery.cutover("v2").serving == "v2 alone"


def test_the_shell_says_what_answers_searches_before_and_after(at):
    path, gallery = fused(at)
    gallery.cutover("v2")
    said = CliRunner().invoke(app, ["rollback", path]).stdout
    assert "searches are answered by v1 alone (before: the fusion of v1 and v2)" in said
