"""Versions and artifacts leave the registry once nothing uses them, and not before."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import NotFound, UpgradeError

TARGET = cs.EmbeddingVersion("v2", dim=6, metric="l2")


def refusal(call):
    with pytest.raises(UpgradeError) as refused:
        call()
    return str(refused.value)


@pytest.mark.full
def test_each_use_of_a_version_is_named_with_the_way_out(upgradable):
    artifact = upgradable.artifacts[0].id
    assert "v1 is the active version of searches" in refusal(lambda: upgradable.maintenance.unregister("v1"))
    assert f'gallery.artifacts.unlink("{artifact[:12]}")' in refusal(lambda: upgradable.maintenance.unregister("v2"))
    upgradable.upgrade("v2")
    assert 'gallery.abort("v2")' in refusal(lambda: upgradable.maintenance.unregister("v2"))
    upgradable.rollback()
    assert 'gallery.retire("v2")' in refusal(lambda: upgradable.maintenance.unregister("v2"))
    upgradable.retire("v2")
    upgradable.artifacts.unlink(artifact)
    upgradable.maintenance.unregister("v2")
    assert upgradable.versions() == ("v1",)
    assert len(upgradable.artifacts) == 0
    assert [step.step for step in upgradable.maintenance.history()][-2:] == ["unlink", "unregister"]
    assert upgradable.maintenance.verify().clean
    with pytest.raises(NotFound, match="version"):
        upgradable.maintenance.unregister("v2")


def test_the_name_can_be_registered_again(upgradable, linear):
    upgradable.artifacts.unlink(upgradable.artifacts[0].id[:6])
    upgradable.maintenance.unregister("v2")
    upgradable.register(TARGET)
    upgradable.artifacts.link(linear())
    assert upgradable.upgrade("v2").transformed == 10


@pytest.mark.full
def test_the_source_of_a_finished_upgrade_can_go_when_nothing_was_made_from_it(upgradable):
    encoder = cs.encoders.Precomputed(
        {item: np.arange(6) for item in upgradable.get(list("abcdefghij"))["id"].to_pylist()}
    )
    upgradable.register(cs.EmbeddingVersion("v3", dim=6, metric="l2", encoder=encoder))
    upgradable.upgrade("v3", backfill=1.0)
    upgradable.cutover("v3")
    upgradable.retire("v1")
    upgradable.artifacts.unlink(upgradable.artifacts[0].id)
    upgradable.maintenance.unregister("v1")
    assert upgradable.versions() == ("v2", "v3")
    assert upgradable.maintenance.verify().clean
    assert upgradable.cutover("v3").changed is False
    assert upgradable.status().upgrades == ()


@pytest.mark.full
def test_each_use_of_an_artifact_is_named_with_the_way_out(upgradable):
    artifact = upgradable.artifacts[0].id
    upgradable.upgrade("v2")
    assert "the upgrade to v2 applies it" in refusal(lambda: upgradable.artifacts.unlink(artifact))
    upgradable.cutover("v2")
    upgradable.retire("v1")
    assert "10 vectors of v2 were made by it" in refusal(lambda: upgradable.artifacts.unlink(artifact))
    with pytest.raises(NotFound, match="use artifact"):
        upgradable.artifacts.unlink("f" * 64)
    assert upgradable.artifacts[0].id == artifact


def test_an_artifact_that_searches_go_through_stays(gallery, linear):
    gallery.register(TARGET)
    linked = gallery.artifacts.link(linear(kind="QueryAdapter"))
    assert "queries of v2 search the vectors of v1" in refusal(lambda: gallery.artifacts.unlink(linked))
