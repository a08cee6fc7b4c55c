"""A process that does not know of a cutover is told which version is active, and the way out."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import Incompatible, InvalidInput

OLD, NEW = np.ones(4, np.float32), np.ones(6, np.float32)


@pytest.fixture
def switched(upgradable):
    """Active is v2, with 6 values; v1, with 4, is still there."""
    upgradable.upgrade("v2")
    upgradable.cutover("v2")
    return upgradable


def refusal(call):
    with pytest.raises(InvalidInput) as refused:
        call()
    return refused.value


@pytest.mark.full
@pytest.mark.parametrize("query", [OLD, OLD.tolist(), [OLD.tolist()] * 2, np.ones((2, 4))], ids=repr)
def test_a_query_of_the_version_before_a_cutover(switched, query):
    error = refusal(lambda: switched.search(query))
    assert "v2, the active version," in error.expected
    assert error.expected.endswith("vectors of 6 values")
    assert "4" in error.found
    assert error.fix == 'v1 has 4 values: name it, version="v1", or embed with the model of v2.'
    assert switched.search(query, version="v1").num_rows


@pytest.mark.full
def test_items_of_the_version_before_a_cutover(switched):
    error = refusal(lambda: switched.add({"id": ["new"], "vector": OLD[None]}))
    assert "v2, the active version," in error.expected
    assert error.fix.startswith('v1 has 4 values: name it, version="v1"')
    assert switched.add({"id": ["new"], "vector": OLD[None]}, "v1").rows == 1


@pytest.mark.full
def test_after_a_rollback_the_version_before_is_active(switched):
    switched.rollback()
    error = refusal(lambda: switched.search(NEW))
    assert "v1, the active version," in error.expected
    assert error.fix.startswith('v2 has 6 values: name it, version="v2"')


@pytest.mark.full
def test_a_version_that_is_gone_is_no_way_out(switched):
    switched.retire("v1")
    assert refusal(lambda: switched.search(OLD)).fix == (
        "v1 has 4 values, and no vectors in this gallery: embed with the model of v2."
    )
    assert refusal(lambda: switched.search(np.ones(5))).fix == (
        "No version of this gallery has 5 values: embed with the model of v2."
    )


@pytest.mark.full
def test_a_version_that_was_named_is_not_called_active(switched):
    error = refusal(lambda: switched.search(NEW, version="v1"))
    assert error.expected == "vectors of v1, which are vectors of 4 values"
    assert error.fix.startswith("v2 has 6 values")


def test_side_information_of_another_length_is_no_other_versions_vectors(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=4, side_dim=3))
    error = refusal(lambda: gallery.add({"id": ["a"], "vector": OLD[None], "side": OLD[None]}))
    assert (error.expected, error.fix) == ("vectors of 3 values", "")


@pytest.mark.full
def test_a_fingerprint_of_another_version_names_it(switched):
    with pytest.raises(Incompatible, match='That is the model of v1: name it, version="v1"'):
        switched.search(NEW, fingerprint=switched.version("v1").fingerprint)
    with pytest.raises(Incompatible, match="Embed with the model of v2"):
        switched.search(NEW, fingerprint="of nobody")


@pytest.mark.full
def test_damage_to_the_history_does_not_hide_the_way_out(switched, tmp_path):
    for number in range(40):  # the first steps move to a page beside the table
        switched.register(cs.EmbeddingVersion(f"w{number}", dim=2))
    kept = tmp_path / "gallery.lance" / "_compatstore"
    pages = [path for path in kept.iterdir() if path.is_file() and b'"entries"' in path.read_bytes()]
    assert pages
    for page in pages:
        page.write_bytes(b"{}")
    error = refusal(lambda: switched.search(OLD))
    assert "v2, the active version, which" in error.expected
    assert error.fix.startswith("v1 has 4 values")
