from dataclasses import replace

import numpy as np
import pytest

from compatstore.artifacts import Architecture, Artifact, Side, Space
from compatstore.errors import Incompatible, InvalidInput
from compatstore.versions import EmbeddingVersion


def linear(source, target, **sides):
    side = sides.get("side_source")
    architecture = Architecture(
        source_dim=source.dim, side_dim=side and side.dim, output_dim=target.dim, normalise=target.normalised
    )
    tensors = {f"h.{name}": np.ones(shape) for name, shape in architecture.shapes().items()}
    return Artifact.create(
        "ForwardTransform", source=source, target=target, networks={"h": architecture}, tensors=tensors, **sides
    )


def test_the_versions_that_it_was_made_for(forward, v1, v2):
    forward.check(v1, v2)


def test_the_reverse_is_a_wrong_direction(forward, v1, v2):
    with pytest.raises(Incompatible, match="from v1 to v2"):
        forward.check(v2, v1)


def test_equal_dimensions_do_not_hide_a_wrong_direction():
    a, b = EmbeddingVersion("a", dim=4), EmbeddingVersion("b", dim=4)
    with pytest.raises(Incompatible, match="found one from"):
        linear(Space.of(a), Space.of(b)).check(b, a)


def test_another_model_of_the_same_shape(forward, v1, v2):
    with pytest.raises(Incompatible, match="v9 as its source") as caught:
        forward.check(replace(v1, name="v9"), v2)
    assert v1.fingerprint in caught.value.expected
    with pytest.raises(Incompatible, match="v9 as its target"):
        forward.check(v1, replace(v2, name="v9"))


def test_side_information_must_be_that_of_training(v1, v2):
    artifact = linear(Space(dim=6), Space(dim=4), side_source=Side(dim=3, fingerprint="another"))
    with pytest.raises(Incompatible, match="side-information of v1"):
        artifact.check(v1, v2)
    with pytest.raises(Incompatible, match="without side-information"):
        artifact.check(replace(v1, side_dim=None), v2)
    with pytest.raises(InvalidInput, match="side-information"):
        linear(Space(dim=6), Space(dim=4), side_source=Side(dim=5)).check(v1, v2)


def test_bare_arrays_are_bound_by_the_users_word(v1, v2):
    artifact = linear(Space(dim=6), Space(dim=4))
    artifact.check(v1, v2)
    with pytest.raises(Incompatible, match="found one from"):
        artifact.check(v2, v1)
    with pytest.raises(InvalidInput, match="expected 6 values; found 7"):
        artifact.check(EmbeddingVersion("v7", dim=7), v2)


def test_a_target_of_unit_vectors_needs_a_normalised_output(v1):
    unit = EmbeddingVersion("v3", dim=4, normalised=True)
    linear(Space(dim=6), Space(dim=4, normalised=True)).check(v1, unit)
    with pytest.raises(Incompatible, match="unit vectors"):
        linear(Space(dim=6), Space(dim=4)).check(v1, unit)


def test_values_and_bits_are_not_each_other(v1, v2):
    bits = replace(v1, side_dim=8, side_dtype="bits")
    trained = linear(Space(dim=6), Space(dim=4), side_source=Side(dim=8, dtype="bits"))
    trained.check(bits, v2)
    with pytest.raises(Incompatible, match="expected bits, as it was trained on; found float32"):
        trained.check(replace(v1, side_dim=8), v2)
    with pytest.raises(Incompatible, match="expected float32, as it was trained on; found bits"):
        linear(Space(dim=6), Space(dim=4), side_source=Side(dim=8)).check(bits, v2)


def test_how_side_information_is_stored_is_remembered(tmp_path):
    for dtype in ("float32", "bits"):
        made = linear(Space(dim=6), Space(dim=4), side_source=Side(dim=8, dtype=dtype))
        made.save(tmp_path / dtype)
        again = Artifact.load(tmp_path / dtype)
        assert (again.id, again.manifest.side_source) == (made.id, Side(dim=8, dtype=dtype))
