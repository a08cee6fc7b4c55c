"""A saved encoder from anywhere loads as it was written, or is refused as corrupt, in bounded memory."""

from __future__ import annotations

import functools
import json
import struct

import pytest
from crafted import HOSTILE, damages, exchanged, mutations, places
from hypothesis import given

from compatstore.encoders.backbones import (
    BasisTransformed,
    FinalNorm,
    FinalReLU,
    GeneralisedMean,
    SmallConvNet,
    SmallVisionTransformer,
)
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.errors import CorruptArtifact
from confined import run_confined
from properties import examples

INNER = SmallConvNet(size=8, dim=12, width=2)
BACKBONES = {
    "convolutional": FinalNorm(inner=SmallConvNet(size=8, dim=4, width=2)),
    "rectified": FinalReLU(inner=SmallConvNet(size=8, dim=4, width=2)),
    "transformer": SmallVisionTransformer(size=8, dim=4, width=16, depth=1),
    "generalised mean": GeneralisedMean(inner=SmallConvNet(size=8, dim=4, width=2)),
    "basis": BasisTransformed(inner=INNER, source_dim=6, extra=2),
}


@functools.cache
def content_of(kind):
    """An encoder's bytes."""
    return NetworkEncoder(BACKBONES[kind], Preprocessing(size=8, mode="L")).to_bytes()


def parts(content):
    """Header, description and the bytes of the weights."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    return header, json.loads(header["__metadata__"]["compatstore"]), content[end:]


def rebuilt(content, description, header=None):
    """The bytes of an encoder with another description."""
    known, _, weights = parts(content)
    known = header or known
    text = json.dumps(known | {"__metadata__": {"compatstore": json.dumps(description)}}).encode()
    return struct.pack("<Q", len(text)) + text + weights


def assert_same_or_corrupt(content):
    try:
        loaded = NetworkEncoder.from_bytes(content)
    except CorruptArtifact:
        return
    again = NetworkEncoder.from_bytes(loaded.to_bytes())
    assert (again.fingerprint, again.identity, again.dim) == (loaded.fingerprint, loaded.identity, loaded.dim)


@pytest.mark.parametrize("kind", BACKBONES)
def test_any_damage_is_corrupt(kind):
    @examples(40)
    @given(damages(content_of(kind)))
    def damaged(content):
        assert_same_or_corrupt(content)

    damaged()


@pytest.mark.full
@pytest.mark.parametrize("kind", BACKBONES)
def test_another_value_loads_as_it_says_or_is_corrupt(kind):
    @examples(40)
    @given(mutations(parts(content_of(kind))[1]))
    def mutated(description):
        assert_same_or_corrupt(rebuilt(content_of(kind), description))

    mutated()


@pytest.mark.full
def test_every_field_is_held_against_its_type():
    content = content_of("basis")
    description = parts(content)[1]
    for path in places(description):
        for value in (*HOSTILE, ...):
            changed = exchanged(description, path, value)
            if changed is not ...:
                assert_same_or_corrupt(rebuilt(content, changed))


MEMORY = """
import json, sys
from encoders.test_crafted import content_of, parts, rebuilt
from compatstore.encoders.network import NetworkEncoder
from compatstore.errors import CorruptArtifact
from crafted import deep, exchanged, limit_memory

content = content_of("basis")
description = parts(content)[1]
wide = 3_000_000
changes = {
    "width": (("backbone", "inner", "width"), wide),
    "dim": (("backbone", "inner", "dim"), wide),
    "extra": (("backbone", "extra"), wide),
    "source": (("backbone", "source_dim"), wide),
    "size": (("preprocessing", "size"), wide),
    "deep": (("backbone", "inner"), json.loads(deep(300))),
    "a model of 2 GiB": (("backbone",), {"kind": "TimmBackbone", "name": "resnet18", "dim": 1_000_000}),
    "a width of a million": (("backbone", "inner", "width"), 1_000_000),
}
NetworkEncoder.from_bytes(content)
import timm.models  # as much as it takes
limit_memory(1 << 30)
for name, (path, value) in changes.items():
    try:
        NetworkEncoder.from_bytes(rebuilt(content, exchanged(description, path, value)))
        sys.exit(f"{name}: loaded")
    except CorruptArtifact as error:
        print(name, error.found[:60], sep=": ")
"""


@pytest.mark.full
def test_crafted_encoders_are_corrupt_within_bounded_memory():
    done = run_confined(MEMORY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 8
