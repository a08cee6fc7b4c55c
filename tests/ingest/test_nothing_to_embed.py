"""Items whose source is None or NaN are listed by id, and no encoder is given such a source."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import compatstore as cs
from compatstore.errors import SourceError
from compatstore.upgrade.backfilling import account

NAN = float("nan")


class Seeing:
    """Embeds anything, and remembers what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, sources):
        self.seen += sources
        return [[float(len(str(source))), 1.0] for source in sources]

    def version(self, name):
        return cs.EmbeddingVersion(name, dim=2, encoder=cs.encoders.Function(self, dim=2, fingerprint=name))


@pytest.fixture
def seeing():
    return Seeing()


@pytest.fixture
def gallery(tmp_path, seeing):
    return cs.Gallery.create(str(tmp_path / "g.lance"), seeing.version("v1"), metadata={"lang": "string"})


def rows(*sources):
    return {"id": ["a", "b", "c"][: len(sources)], "source": list(sources)}


@pytest.mark.parametrize(
    "data",
    [
        rows("x", None, NAN),
        rows("x", None, None),
        rows("x", pd.NA, pd.NaT),
        [{"id": "a", "source": "x"}, {"id": "b", "source": NAN}, {"id": "c"}],
        pd.DataFrame(rows("x", NAN, None)),
        {"id": ["a", "b", "c"], "source": pd.Series(["x", pd.NA, NAN])},
        pd.DataFrame(rows("x", NAN, None)).to_dict("records"),
    ],
)
@pytest.mark.parametrize("upsert", [False, True])
def test_they_are_listed_and_the_rest_is_written(gallery, seeing, data, upsert):
    added = gallery.add(data, upsert=upsert)
    assert (added.rows, [name for name, _ in added.failures], seeing.seen) == (1, ["b", "c"], ["x"])
    assert gallery.scan(["id", "source"]).to_arrow().to_pylist() == [{"id": "a", "source": "x"}]


@pytest.mark.parametrize("column", [[NAN, NAN], np.array([NAN, NAN]), pd.Series([NAN, NAN])])
def test_a_column_of_nan_alone_is_no_text(gallery, seeing, column):
    with pytest.raises(SourceError, match="found a: it has no source, b: it has no source"):
        gallery.add({"id": ["a", "b"], "source": column})
    given = {"id": ["a", "b"], "vector": [[1.0, 0.0]] * 2, "source": column, "lang": column}
    gallery.add(given)  # kept by their vectors
    assert gallery.scan(["source", "lang"]).to_arrow().to_pylist() == [{"source": None, "lang": None}] * 2
    assert seeing.seen == []


def test_a_whole_backfill_lists_them_however_many_come_in_a_row(tmp_path, seeing, monkeypatch):
    monkeypatch.setattr(account, "FAILURES_IN_A_ROW", 5)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=2))
    sources = ["x", None, *[None] * 120, "y"]
    ids = [f"{number:03}" for number in range(len(sources))]
    gallery.add({"id": ids, "vector": [[1.0, float(n)] for n in range(len(ids))], "source": sources})
    gallery.register(seeing.version("v2"))
    gallery.upgrade("v2", backfill=1.0, run=cs.RunSettings(batch_rows=4))
    assert sorted(seeing.seen) == ["x", "y"]
    assert sorted(gallery.maintenance.unbackfillable("v2")["id"].to_pylist()) == ids[1:-1]


def test_nan_of_a_model_that_reads_ids_is_the_models_affair():
    given = []

    def embed(ids):
        given.extend(ids)
        return [[0.0]] * len(ids)

    by_id = cs.encoders.Function(embed, 1, fingerprint="ids", reads="id")
    assert cs.encoders.encode_readable(by_id, ["", "a"]).failures == {}
    by_source = cs.encoders.Function(embed, 1, fingerprint="sources")
    assert cs.encoders.encode_readable(by_source, [NAN, "a", b"", None]).failures.keys() == {0, 3}
    assert given == ["", "a", "a", b""]
    assert not any(isinstance(one, float) and math.isnan(one) for one in given)
