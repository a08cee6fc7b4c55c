"""Galleries in several states of an upgrade, made once and copied."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders import Precomputed
from galleries import SOURCE, artifact, items

ROWS = 120
TARGET = cs.EmbeddingVersion("v2", dim=40, metric="cosine", normalised=True)


def natives(ids):
    """Vectors of unit length, a function of the id's number."""
    rng = np.random.default_rng(9)
    matrix = rng.normal(size=(2000, TARGET.dim)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return dict(zip(ids, matrix, strict=False))


def embed():
    """An encoder of all items that tests add."""
    return Precomputed(natives([f"item-{number:06d}" for number in range(2000)]))


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """By state, the path of a gallery: upgradable, ready (a quarter native), cutover, retired."""
    folder = tmp_path_factory.mktemp("templates")
    path = folder / "gallery.lance"
    gallery = cs.Gallery.create(str(path), SOURCE)
    gallery.add(items(0, ROWS))
    gallery.add(items(ROWS, ROWS))
    gallery.delete(["item-000003"])
    target = cs.EmbeddingVersion("v2", dim=40, metric="cosine", normalised=True, encoder=embed(), head=np.eye(3, 40))
    gallery.register(target)
    gallery.link(artifact(SOURCE, target))
    steps = {
        "upgradable": lambda: None,
        "ready": lambda: gallery.upgrade("v2", backfill=0.25, policy="sigma"),
        "cutover": lambda: gallery.cutover("v2"),
        "retired": lambda: gallery.retire("v1"),
    }
    for state, step in steps.items():
        step()
        shutil.copytree(path, folder / state / "gallery.lance")
    return {state: folder / state / "gallery.lance" for state in steps}


@pytest.fixture
def at(templates, tmp_path):
    """A gallery of one's own in a state: at("ready") -> its path."""

    def copy(state):
        path = tmp_path / f"{state}.lance"
        shutil.copytree(templates[state], path)
        return str(path)

    return copy
