"""An upgrade begins, a version is retired, or the same id comes, while items that are added are being embedded."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.ingest import complete, write
from tests.known.galleries import OWN, item_id, make_template
from tests.known.vectors import ENCODERS, Model, bridge, source_vector


class SlowModel(Model):
    """The source's encoder; somebody else comes in between while it works the first time."""

    def __init__(self, meanwhile):
        super().__init__("v1")
        self._meanwhile = [meanwhile]

    def encode(self, sources):
        if self._meanwhile:
            self._meanwhile.pop()()
        return super().encode(sources)


@pytest.fixture
def path(tmp_path):
    return str(make_template(tmp_path, OWN, fragments=2, rows=40))


@pytest.fixture
def operator(path):
    return cs.Gallery.open(path, encoders=ENCODERS)


def test_items_get_vectors_in_a_version_whose_upgrade_began_meanwhile(path, operator):
    app = cs.Gallery.open(path, encoders={"v1": SlowModel(lambda: operator.upgrade("v2"))})
    app.add({"id": [item_id(1), "new"], "source": ["changed", "new/0"]}, upsert=True)
    expected = bridge().apply(np.stack([source_vector("changed"), source_vector("new/0")])).vectors
    np.testing.assert_allclose(app.vectors([item_id(1), "new"], "v2"), expected, rtol=1e-5)
    assert app.maintenance.verify().clean, "no vector is stale, though nothing was caught up with"


def test_items_are_written_without_a_version_that_was_retired_meanwhile(path, operator):
    operator.upgrade("v2")
    operator.cutover("v2")
    app = cs.Gallery.open(path, encoders=ENCODERS | {"v1": SlowModel(lambda: operator.retire("v1"))})
    app.add({"id": [item_id(1), "new"], "source": ["changed", "new/0"]}, upsert=True)
    assert operator.get([item_id(1), "new"], ["source"]).to_pylist() == [{"source": "changed"}, {"source": "new/0"}]
    assert np.isfinite(app.vectors([item_id(1), "new"], "v2")).all()
    assert app.maintenance.verify().clean


def test_items_are_written_in_the_version_that_is_active_after_an_abort_meanwhile(path, operator):
    def go_back():
        operator.rollback("v2")
        operator.abort("v2")

    operator.upgrade("v2")
    operator.cutover("v2")
    app = cs.Gallery.open(path, encoders=ENCODERS | {"v1": SlowModel(go_back)})
    assert app.add({"id": ["new"], "source": ["new/0"]}).version == "v1"
    np.testing.assert_array_equal(app.vectors(["new"], "v1"), source_vector("new/0")[None])
    assert app.maintenance.verify().clean


def test_an_id_that_somebody_else_adds_meanwhile_is_refused(path, operator):
    theirs = {"id": ["new"], "source": ["new/1"]}
    app = cs.Gallery.open(path, encoders=ENCODERS | {"v1": SlowModel(lambda: operator.add(theirs))})
    with pytest.raises(InvalidInput, match="already in the gallery"):
        app.add({"id": ["new"], "source": ["new/0"]})
    assert operator.get(["new"], ["source"]).to_pylist() == [{"source": "new/1"}]


def test_ids_are_looked_up_once_without_other_writers(operator, monkeypatch):
    looked_up, refuse = [], write.refuse_known
    monkeypatch.setattr(write, "refuse_known", lambda *given: looked_up.append(given[2].to_pylist()) or refuse(*given))
    operator.add({"id": ["new"], "source": ["new/0"]})
    assert looked_up == [["new"]]
    operator.add({"id": ["given"], "vector": [source_vector("new/0")]})
    assert looked_up == [["new"], ["given"]]


@pytest.mark.parametrize(
    "handle", ["before", "after"], ids="the handle that writes is taken {} the rival's commit".format
)
def test_an_id_whose_vector_is_given_is_refused_if_it_came_after_the_checks(path, operator, monkeypatch, handle):
    rows, mine = len(operator), {"id": ["other", "new"], "vector": [source_vector("new/0")] * 2}
    rivals = [lambda: cs.Gallery.open(path).add({"id": ["new"], "vector": [source_vector("new/1")]})]
    writer = operator._catalog.store.writer

    def beside_a_rival():
        opened = writer() if handle == "before" else None
        if rivals:
            rivals.pop()()
        return opened or writer()

    monkeypatch.setattr(operator._catalog.store, "writer", beside_a_rival)
    with pytest.raises(InvalidInput, match="already in the gallery: new"):
        operator.add(mine)
    assert not rivals
    np.testing.assert_array_equal(operator.vectors(["new"], "v1"), source_vector("new/1")[None])
    assert len(operator) == rows + 1


def test_items_are_replaced_beside_an_abort_before_their_natives_are_looked_for(path, operator, monkeypatch):
    """The registry names a version whose columns are gone by the time at which its natives are read."""
    operator.upgrade("v2", backfill=0.5)
    keep, rivals = complete.Completion._keep_natives, [lambda: operator.abort("v2")]

    def after_a_rival(completion, mine, record, *rest):
        if rivals and record.name == "v2":
            rivals.pop()()
        keep(completion, mine, record, *rest)

    monkeypatch.setattr(complete.Completion, "_keep_natives", after_a_rival)
    app = cs.Gallery.open(path, encoders=ENCODERS)
    app.add({"id": [item_id(1), "new"], "source": ["changed", "new/0"]}, upsert=True)
    assert not rivals
    assert app.get([item_id(1), "new"], ["source"]).to_pylist() == [{"source": "changed"}, {"source": "new/0"}]
    assert app.maintenance.verify().clean
