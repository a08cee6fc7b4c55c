"""Upgrades that come and go leave a gallery as large as it was."""

from __future__ import annotations

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.storage import compaction

pytestmark = pytest.mark.full

CYCLES = 10


def test_cycles_of_upgrade_cutover_rollback_and_abort_leave_nothing(gallery, tmp_path, vectors, linear, monkeypatch):
    monkeypatch.setattr(compaction, "KEPT", 16)
    monkeypatch.setattr(compaction, "MOST", 32)
    path = tmp_path / "gallery.lance"
    gallery.add({"id": [f"m{n}" for n in range(90)], "vector": vectors(90)})
    ids = [*"abcdefghij", *(f"m{n}" for n in range(90))]
    encoder = cs.encoders.Precomputed(dict(zip(ids, np.ones((100, 6), np.float32), strict=True)))
    target = cs.EmbeddingVersion("v2", dim=6, metric="l2", encoder=encoder)
    gallery.register(target)
    gallery.artifacts.link(linear(target=target))
    files, versions, manifests, beside = [], [], [], []
    for _ in range(CYCLES):
        gallery.upgrade("v2", backfill=0.1)
        gallery.cutover("v2")
        gallery.rollback()
        gallery.abort("v2")
        files.append(sum(file.is_file() for folder in ("data", "_versions") for file in (path / folder).iterdir()))
        versions.append(compaction.count_versions(gallery._catalog.store))
        manifests.append(max(file.stat().st_size for file in (path / "_versions").glob("*.manifest")))
        beside.append({name.name for name in (path / "_compatstore").iterdir() if len(name.name) < 64})
    assert max(files) <= 4 * 32
    assert max(versions) <= 32 + 1  # the clean-up's own count comes before the next verb's commits
    assert max(manifests[CYCLES // 2 :]) <= 1.2 * max(manifests[: CYCLES // 2])
    assert beside[-1] <= beside[0]
    assert len(lance.dataset(str(path)).get_fragments()) < 8
    assert lance.dataset(str(path)).tags.list().keys() == {"compatstore-v1"}
    assert gallery.active == "v1"
    assert gallery.maintenance.verify().clean
