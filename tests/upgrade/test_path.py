from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Side, Space
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.resolve import find_path


def version(number, **more):
    return cs.EmbeddingVersion(f"v{number}", dim=2 + number, metric="l2", side_dim=2, **more)


def hop(source, target, seed=0, side=True):
    """A linear h on [vector, side], and g on the same where `side` is wanted for the hop after."""
    rng = np.random.default_rng(seed)
    networks, tensors = {}, {}
    for name, dim in (("h", target.dim), *((("g", 2),) if side else ())):
        network = Architecture(source_dim=source.dim, side_dim=2, output_dim=dim, source_branch=(4,), side_branch=(3,))
        networks[name] = network
        for key, shape in network.shapes().items():
            tensors[f"{name}.{key}"] = rng.normal(size=shape).astype(np.float32)
    return Artifact.create(
        "ForwardTransform",
        source=Space.of(source),
        target=Space.of(target),
        side_source=Side(dim=2, fingerprint=source.side_fingerprint),
        side_target=Side(dim=2, fingerprint=target.side_fingerprint) if side else None,
        networks=networks,
        tensors=tensors,
    )


@pytest.fixture
def gallery(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), version(1))
    rng = np.random.default_rng(0)
    gallery.add({"id": ["a", "b", "c"], "vector": rng.normal(size=(3, 3)), "side": rng.normal(size=(3, 2))})
    gallery.register(version(2))
    gallery.register(version(3))
    return gallery


def test_a_chain_applies_h_to_what_h_and_g_made(gallery):
    first, second = hop(version(1), version(2), 1), hop(version(2), version(3), 2, side=False)
    gallery.artifacts.link(first)
    gallery.artifacts.link(second)
    plan = gallery.upgrade("v3", dry_run=True)
    assert plan.path == (first.short_id, second.short_id)
    assert any("2 hops" in warning for warning in plan.warnings)
    gallery.upgrade("v3")
    items = gallery.get(["a", "b", "c"])
    middle = first.apply(gallery.vectors(["a", "b", "c"], "v1"), np.array(items["v1__side"].to_pylist()))
    expected = second.apply(middle.vectors, middle.side).vectors
    np.testing.assert_array_equal(gallery.vectors(["a", "b", "c"], "v3"), expected)
    assert set(items["v3__origin"].to_pylist()) == {f"{first.short_id}+{second.short_id}"}


def test_a_direct_hop_is_preferred_and_the_latest_one_linked(gallery):
    for artifact in (hop(version(1), version(2), 1), hop(version(2), version(3), 2), hop(version(1), version(3), 3)):
        gallery.artifacts.link(artifact)
    latest = hop(version(1), version(3), 4)
    gallery.artifacts.link(latest)
    assert gallery.upgrade("v3", dry_run=True).path == (latest.short_id,)


def test_via_chooses_the_last_hop(gallery):
    first, second, direct = (
        hop(version(1), version(2), 1),
        hop(version(2), version(3), 2),
        hop(version(1), version(3), 3),
    )
    for artifact in (first, second, direct):
        gallery.artifacts.link(artifact)
    assert gallery.upgrade("v3", transform=second.short_id, dry_run=True).path == (first.short_id, second.short_id)
    with pytest.raises(cs.errors.Incompatible, match="to v3"):
        gallery.upgrade("v3", transform=first.id, dry_run=True)
    with pytest.raises(cs.errors.NotFound, match="0 of that id"):
        gallery.upgrade("v3", transform="feed", dry_run=True)
    gallery.upgrade("v3", transform=direct.id)
    with pytest.raises(cs.errors.UpgradeError, match=r"gallery\.retire"):
        gallery.upgrade("v3", transform=second.id)


def test_no_path_says_what_there_is_and_what_to_do(gallery):
    gallery.artifacts.link(hop(version(1), version(2), 1))
    with pytest.raises(cs.errors.NotFound, match=r"v1 -> v2.*FCT"):
        gallery.upgrade("v3")
    assert gallery.status().upgrades == ()


@pytest.mark.full
def test_natives_of_an_earlier_version_are_read_rather_than_what_was_transformed(gallery):
    first, second, direct = (
        hop(version(1), version(2), 1),
        hop(version(2), version(3), 2),
        hop(version(1), version(3), 3),
    )
    for artifact in (first, second):
        gallery.artifacts.link(artifact)
    gallery.upgrade("v2")
    gallery.cutover("v2")
    assert gallery.upgrade("v3", dry_run=True).source == "v2", "nothing leads there from v1 directly"
    gallery.artifacts.link(direct)
    plan = gallery.upgrade("v3", dry_run=True)
    assert (plan.source, plan.path) == ("v1", (direct.short_id,))
    assert gallery.upgrade("v3", transform=second.id, dry_run=True).source == "v2"
    gallery.upgrade("v3")
    side = np.array(gallery.get(["a", "b", "c"])["v1__side"].to_pylist())
    expected = direct.apply(gallery.vectors(["a", "b", "c"], "v1"), side).vectors
    np.testing.assert_array_equal(gallery.vectors(["a", "b", "c"], "v3"), expected)
    gallery.cutover("v3")
    assert gallery.rollback().active == "v2"


@pytest.mark.full
def test_an_earlier_version_that_lacks_items_is_not_read(gallery):
    for artifact in (hop(version(1), version(2), 1), hop(version(2), version(3), 2), hop(version(1), version(3), 3)):
        gallery.artifacts.link(artifact)
    gallery.upgrade("v2")
    gallery.cutover("v2")
    gallery.add({"id": ["new"], "vector": np.ones((1, 4), np.float32), "side": np.ones((1, 2), np.float32)})
    assert gallery.upgrade("v3", dry_run=True).source == "v2"


def test_a_chain_is_not_made_of_hops_that_lack_what_they_read(gallery):
    dead, second = hop(version(1), version(2), 1, side=False), hop(version(2), version(3), 2)
    gallery.artifacts.link(dead)
    gallery.artifacts.link(second)
    with pytest.raises(cs.errors.NotFound, match=r"v1 -> v2 \(reads side-information, writes none\)"):
        gallery.upgrade("v3", dry_run=True)
    handing_on = hop(version(1), version(2), 3)
    gallery.artifacts.link(handing_on)
    gallery.artifacts.link(hop(version(1), version(2), 4, side=False))
    assert gallery.upgrade("v3", dry_run=True).path == (handing_on.short_id, second.short_id)


def test_a_direct_hop_from_an_upgraded_version_is_preferred_to_a_chain(gallery):
    first, second = hop(version(1), version(2), 1), hop(version(2), version(3), 2)
    gallery.artifacts.link(first)
    gallery.upgrade("v2")
    gallery.artifacts.link(second)
    plan = gallery.upgrade("v3", dry_run=True)
    assert (plan.source, plan.path) == ("v2", (second.short_id,)), "what is in v2 may be native; a chain never is"


@st.composite
def links(draw):
    """Artifacts between five versions, each of which may read and write side-information."""
    number, flags = st.integers(0, 4), st.booleans()
    ends = draw(st.lists(st.tuples(number, number, flags, flags), max_size=7))
    return {
        f"{index}": ArtifactRecord(f"{index}", "ForwardTransform", "", f"v{a}", f"v{b}", "", "", reads, writes)
        for index, (a, b, reads, writes) in enumerate(ends)
    }


@pytest.mark.full
@given(links(), st.booleans())
def test_a_path_is_the_shortest_chain_of_all_that_fit(artifacts, named):
    registry = Registry("id", "string", None, "v0", artifacts=artifacts)
    via = next((record.id for record in artifacts.values() if record.target == "v4"), None) if named else None
    chains = [
        chain
        for length in range(1, 5)
        for chain in itertools.permutations(artifacts.values(), length)
        if chain[0].source == "v0" and chain[-1].target == "v4" and via in (None, chain[-1].id)
        if all(a.target == b.source and (a.writes_side or not b.reads_side) for a, b in itertools.pairwise(chain))
    ]
    try:
        found = find_path(registry, "v0", "v4", via)
    except cs.errors.NotFound:
        assert not chains
        return
    assert found in chains or len(found) > 4
    assert not chains or len(found) == min(map(len, chains))
