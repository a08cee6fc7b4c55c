"""An artifact from anywhere loads as it was written, or is refused as corrupt, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
import safetensors.numpy
from crafted import HOSTILE, damages, deep, exchanged, mutations, places
from hypothesis import given

from compatstore.artifacts import Artifact
from compatstore.errors import CorruptArtifact, InvalidInput
from confined import run_confined
from galleries import artifact
from properties import examples

MANIFEST, WEIGHTS = artifact().to_bytes()
VALUES = {name: value for name, value in json.loads(MANIFEST).items() if name != "id"}


def signed(values):
    """The bytes of a manifest that carries its own digest, as whoever means harm would make them."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()
    stated = {"id": digest} | values if isinstance(values, dict) else values
    return json.dumps(stated, indent=2).encode()


def for_weights(weights):
    """A signed manifest that names these weights."""
    return signed(VALUES | {"weights_sha256": hashlib.sha256(weights).hexdigest()})


def assert_same_or_corrupt(manifest, weights):
    try:
        loaded = Artifact.from_bytes(manifest, weights)
    except CorruptArtifact:
        return
    again = Artifact.from_bytes(*loaded.to_bytes())
    assert (again.id, again.manifest) == (loaded.id, loaded.manifest)
    assert all(np.array_equal(again.tensors[name], loaded.tensors[name], equal_nan=True) for name in loaded.tensors)


@pytest.mark.full
@examples(200)
@given(damages(MANIFEST), damages(WEIGHTS))
def test_any_damage_is_corrupt(manifest, weights):
    for pair in ((manifest, WEIGHTS), (MANIFEST, weights)):
        if pair != (MANIFEST, WEIGHTS):
            try:
                assert Artifact.from_bytes(*pair).to_bytes() == (MANIFEST, WEIGHTS)  # white space of the JSON changed
            except CorruptArtifact:
                continue


@pytest.mark.full
@examples(400)
@given(mutations(VALUES))
def test_a_signed_manifest_with_another_value_loads_as_it_says_or_is_corrupt(values):
    assert_same_or_corrupt(signed(values), WEIGHTS)


@pytest.mark.parametrize("path", list(places(VALUES)), ids=str)
def test_every_field_is_held_against_its_type(path):
    for value in [*HOSTILE, ...]:
        values = exchanged(VALUES, path, value)
        if values is not ...:
            assert_same_or_corrupt(signed(values), WEIGHTS)


@pytest.mark.full
@examples(200)
@given(damages(WEIGHTS))
def test_signed_weights_of_any_bytes(weights):
    assert_same_or_corrupt(for_weights(weights), weights)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "BOOL", "I64", "F64", "X"])
def test_weights_of_other_types(dtype):
    size = {"BF16": 2, "F8_E4M3": 1, "BOOL": 1, "I64": 8, "F64": 8, "X": 4}[dtype]
    header = json.dumps({"h.mixer.0.weight": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes(2 * size)
    with pytest.raises(CorruptArtifact):
        Artifact.from_bytes(for_weights(weights), weights)


def test_what_could_not_be_read_back_is_not_written():
    manifest = artifact().manifest
    nested = json.loads(deep(40))
    for figures in ({"x": nested}, {"x": 2**80}, {"x": "\ud800"}, {"x": float("nan")}):
        with pytest.raises(InvalidInput):
            Artifact.create(
                manifest.kind, source=manifest.source, target=manifest.target, side_source=manifest.side_source,
                networks=manifest.networks, tensors=artifact().tensors, figures=figures,
            )  # fmt: skip


MEMORY = """
import json, sys
from artifacts.test_crafted import VALUES, WEIGHTS, signed
from compatstore.artifacts import Artifact
from compatstore.errors import CorruptArtifact
from crafted import deep, limit_memory

def network(**changes):
    return signed(VALUES | {"networks": {"h": VALUES["networks"]["h"] | changes}})

wide = 3_000_000
crafted = {
    "deep": deep(100_000).encode(),
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "deep and signed": signed(VALUES | {"settings": {"x": json.loads(deep(300))}}),
    "many lists": b'{"format": 1, "x": [' + b"[]," * 20_000_000 + b"[]]}",
    "a long number": b'{"format": 1, "x": ' + b"9" * 1_000_000 + b"}",
    "wide output": network(output_dim=wide),
    "wide mixer": network(mixer=[wide] * 20),
    "many layers": network(mixer=[1] * 1_000_000),
    "wide target": signed(VALUES | {"target": VALUES["target"] | {"dim": wide}}),
    "an Identity of 2^31 values": signed(VALUES | {"kind": "Identity", "networks": {}, "side_source": None,
        "source": VALUES["source"] | {"dim": 2**31}, "target": VALUES["target"] | {"dim": 2**31}}),
    "a surrogate": signed(VALUES | {"method": chr(0xD800)}),
}
Artifact.from_bytes(signed(VALUES), WEIGHTS)
limit_memory(512 << 20)
for name, manifest in crafted.items():
    try:
        Artifact.from_bytes(manifest, WEIGHTS)
        sys.exit(f"{name}: loaded")
    except CorruptArtifact as error:
        print(name, error.found[:60], sep=": ")
"""


@pytest.mark.full
def test_crafted_manifests_are_corrupt_within_bounded_memory():
    done = run_confined(MEMORY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 11


def test_the_weights_of_the_tests_are_an_artifact():
    assert set(safetensors.numpy.load(WEIGHTS)) == set(Artifact.from_bytes(signed(VALUES), WEIGHTS).tensors)
