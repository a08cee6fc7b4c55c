"""An index that LanceDB 0.21 has built, which does not say when it was made."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

import compatstore as cs

# A table `a` of 300 rows, key and vec (8 values), with IVF_FLAT of two cells, as written by lancedb 0.21.2.
TABLE = Path(__file__).parents[1] / "data" / "lancedb-0.21.2.tar.xz"


def test_it_is_looked_at_refreshed_and_verified(tmp_path):
    with tarfile.open(TABLE) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # from 3.11.4
        packed.extractall(tmp_path)
    version = cs.EmbeddingVersion("v1", dim=8, metric="l2")
    gallery = cs.Gallery.adopt(f"{tmp_path}#a", version, vector="vec", id="key")
    assert gallery.maintenance.index("v1").status().kind == "IVF_FLAT"
    assert gallery.maintenance.verify().clean
    gallery.add({"key": ["new"], "vector": np.ones((1, 8), np.float32)})
    gallery.maintenance.index("v1").refresh()
    status = gallery.maintenance.index("v1").status()
    assert (status.indexed_rows, status.unindexed_rows) == (301, 0)
    assert 0 <= status.changed <= 1
    assert gallery.maintenance.verify().clean
