import numpy as np
import pytest

from compatstore.artifacts import KINDS, Architecture, Artifact, Side, Space
from compatstore.errors import CorruptArtifact, InvalidInput

QUERIES = np.array([[3, 4, 12], [0, 0, 5]], np.float32)


def test_the_kinds_that_exist_and_what_they_act_on():
    acts = {name: kind.acts_on for name, kind in KINDS.items()}
    of_queries = {"QueryAdapter": "query", "Prefix": "query", "Identity": "query"}
    assert acts == {"ForwardTransform": "gallery", "Derivation": "gallery", **of_queries}
    assert [name for name, kind in KINDS.items() if kind.exact] == ["Derivation"]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_gallery_kind_reads_the_source_and_a_query_kind_the_target(name):
    manifest = Artifact.create("Identity", source=Space(dim=2), target=Space(dim=2, name="t")).manifest
    reads = KINDS[name].reads(manifest)
    assert reads is (manifest.source if KINDS[name].acts_on == "gallery" else manifest.target)
    assert KINDS[name].writes(manifest) is not reads


def test_prefix_truncates_and_normalises_and_leaves_zero_at_zero():
    out = Artifact.create("Prefix", source=Space(dim=2), target=Space(dim=3)).apply(QUERIES)
    np.testing.assert_allclose(out.vectors, [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_prefix_refuses_a_longer_source():
    with pytest.raises(CorruptArtifact, match="at most 3"):
        Artifact.create("Prefix", source=Space(dim=4), target=Space(dim=3))


def test_a_derivation_cuts_off_and_scales():
    short = Artifact.create("Derivation", source=Space(dim=3), target=Space(dim=2, normalised=True)).apply(QUERIES)
    np.testing.assert_array_equal(short.vectors, np.array([[0.6, 0.8], [np.nan, np.nan]], np.float32))
    cut = Artifact.create("Derivation", source=Space(dim=3, normalised=True), target=Space(dim=2)).apply(QUERIES)
    np.testing.assert_array_equal(cut.vectors, QUERIES[:, :2])


def test_a_derivation_to_another_metric_gives_nothing_of_vectors_that_are_not_of_unit_length():
    spaces = {"source": Space(dim=3, metric="cosine"), "target": Space(dim=3, metric="dot")}
    made = Artifact.create("Derivation", **spaces).apply([[0.6, 0, 0.8], [3, 4, 12]]).vectors
    np.testing.assert_array_equal(made, np.array([[0.6, 0, 0.8], [np.nan] * 3], np.float32))
    spaces["target"] = Space(dim=3, metric="dot", normalised=True)
    made = Artifact.create("Derivation", **spaces).apply([[3, 0, 4]]).vectors
    np.testing.assert_array_equal(made, np.array([[0.6, 0, 0.8]], np.float32))


def test_a_derivation_leaves_the_vectors_that_it_reads_as_they_are():
    spaces = {"source": Space(dim=3, metric="cosine"), "target": Space(dim=3, metric="dot")}
    vectors = QUERIES.copy()
    assert np.isnan(Artifact.create("Derivation", **spaces).apply(vectors).vectors).all()
    np.testing.assert_array_equal(vectors, QUERIES)


def test_a_derivation_refuses_what_it_cannot_have():
    with pytest.raises(CorruptArtifact, match="at most 3 values; found 4"):
        Artifact.create("Derivation", source=Space(dim=3), target=Space(dim=4))
    with pytest.raises(CorruptArtifact, match="side-information"):
        Artifact.create("Derivation", source=Space(dim=3), target=Space(dim=3), side_source=Side(dim=1))
    architecture = Architecture(source_dim=3, output_dim=3)
    tensors = {f"h.{name}": np.ones(shape, np.float32) for name, shape in architecture.shapes().items()}
    with pytest.raises(CorruptArtifact, match="networks"):
        Artifact.create(
            "Derivation", source=Space(dim=3), target=Space(dim=3), networks={"h": architecture}, tensors=tensors
        )


def test_identity_changes_nothing():
    out = Artifact.create("Identity", source=Space(dim=3), target=Space(dim=3)).apply(QUERIES)
    assert np.array_equal(out.vectors, QUERIES)
    with pytest.raises(CorruptArtifact, match="dimension"):
        Artifact.create("Identity", source=Space(dim=3), target=Space(dim=4))


def test_a_query_adapter_takes_target_queries_to_the_source():
    adapter = Artifact.create(
        "QueryAdapter",
        source=Space(dim=2),
        target=Space(dim=3),
        networks={"h": Architecture(source_dim=3, output_dim=2)},
        tensors={"h.mixer.0.weight": np.array([[1, 0, 0], [0, 0, 1]]), "h.mixer.0.bias": np.zeros(2)},
    )
    assert adapter.apply(QUERIES).vectors.tolist() == [[3, 12], [0, 5]]
    assert adapter.apply(QUERIES[:0]).vectors.shape == (0, 2)
    with pytest.raises(InvalidInput, match="expected vectors of 3"):
        adapter.apply(np.ones((1, 2)))


@pytest.mark.parametrize("kind", ["QueryAdapter", "Prefix", "Identity"])
def test_query_kinds_have_no_side_information(kind):
    with pytest.raises(CorruptArtifact, match="side-information"):
        Artifact.create(kind, source=Space(dim=3), target=Space(dim=3), side_source=Side(dim=1))
