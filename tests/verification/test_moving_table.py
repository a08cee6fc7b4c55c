"""A table may move on so far that the version that is verified is cleaned up: then the latest is verified instead."""

from __future__ import annotations

import numpy as np

from compatstore.storage import compaction
from compatstore.storage.compaction import FEWEST
from compatstore.verification import checks


def test_files_that_a_clean_up_took_are_no_damage(gallery, monkeypatch):
    monkeypatch.setattr(compaction, "KEPT", 1)
    monkeypatch.setattr(compaction, "MOST", 1)
    looked = []

    def beside_an_app_that_writes(scene):
        """Take the files away that are read next, as a merge and the clean-up after it do."""
        if not looked:
            for n in range(FEWEST):
                gallery.add({"id": [f"m{n}"], "vector": np.ones((1, 4), np.float32)})
        looked.append(scene.snapshot.version)
        return ()

    monkeypatch.setattr(checks, "CHECKS", {"app": beside_an_app_that_writes, **checks.CHECKS})
    verification = gallery.maintenance.verify()
    assert verification.table_version > looked[0]
    assert verification.rows == 10 + FEWEST
    assert verification.clean
