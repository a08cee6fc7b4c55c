"""What tests of several folders share: linear artifacts, small galleries, and a table's files byte for byte."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

# Before NumPy and torch load. The networks of the tests are too small to gain from a second thread, and threads that
# wait by spinning make a busy machine many times slower.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Haystack reports its use over the network, from a thread that logs into whatever test runs then.
os.environ.setdefault("COMPATSTORE_TRACEBACK", "full")  # a test that fails shows where
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

import numpy as np
import pytest
from hypothesis import settings

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from cpu_seconds import (  # noqa: F401  (hooks)
    pytest_addoption,
    pytest_collection_finish,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)
from properties import PROFILE
from states import at, templates  # noqa: F401  (fixtures)

settings.load_profile(PROFILE)

SOURCE = cs.EmbeddingVersion("v1", dim=4, metric="l2")
TARGET = cs.EmbeddingVersion("v2", dim=6, metric="l2")


def pytest_ignore_collect(collection_path, config):
    """Leave out modules of the full tier where it is deselected: to read them costs as much as to run some tests."""
    deselected = "not full" in config.getoption("markexpr") and collection_path.suffix == ".py"
    return True if deselected and "\npytestmark = pytest.mark.full\n" in collection_path.read_text() else None


def _linear(source=SOURCE, target=TARGET, kind="ForwardTransform", seed=0):
    reads, writes = (source, target) if kind == "ForwardTransform" else (target, source)
    architecture = Architecture(source_dim=reads.dim, output_dim=writes.dim)
    rng = np.random.default_rng(seed)
    tensors = {f"h.{name}": rng.normal(size=shape) for name, shape in architecture.shapes().items()}
    return Artifact.create(
        kind, source=Space.of(source), target=Space.of(target), networks={"h": architecture}, tensors=tensors
    )


@pytest.fixture
def linear():
    """Make an artifact of one random matrix: linear(source, target, kind, seed)."""
    return _linear


@pytest.fixture
def vectors():
    """Make n random vectors: vectors(n, dim, seed) -> (n, dim) float32."""
    return _vectors


@pytest.fixture
def files():
    """SHA-256 of every file below a folder, by its path; with files(folder, but=NAME) none whose path begins so."""

    def digests(folder, but=None):
        found = {str(path.relative_to(folder)): path for path in sorted(Path(folder).rglob("*")) if path.is_file()}
        kept = {name: path for name, path in found.items() if but is None or not name.startswith(but)}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}

    return digests


@pytest.fixture(scope="session")
def copy_of(tmp_path_factory):
    """Make a gallery once and copy it: copy_of(make, path) calls make(path of the original) at its first use only."""
    folder, originals = tmp_path_factory.mktemp("originals"), {}

    def copy(make, path):
        if make not in originals:
            original = folder / f"{len(originals)}.lance"
            make(original)
            originals[make] = original
        return shutil.copytree(originals[make], path)

    return copy


def _vectors(n, dim=SOURCE.dim, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def _make(path):
    gallery = cs.Gallery.create(str(path), SOURCE)
    ids = list("abcdefghij")
    gallery.add({"id": ids, "vector": _vectors(10), "source": [f"{i}.jpg" for i in ids], "number": range(10)})
    return gallery


def _make_upgradable(path):
    gallery = _make(path)
    gallery.register(TARGET)
    gallery.artifacts.link(_linear())


@pytest.fixture
def gallery(tmp_path, copy_of):
    """A gallery of ten items a to j in v1 (l2, 4 values), with a source and a number each."""
    return cs.Gallery.open(str(copy_of(_make, tmp_path / "gallery.lance")))


@pytest.fixture
def upgradable(tmp_path, copy_of):
    """The same gallery with v2 (l2, 6 values) registered and a linear transform linked; nothing is hopped yet."""
    return cs.Gallery.open(str(copy_of(_make_upgradable, tmp_path / "gallery.lance")))
