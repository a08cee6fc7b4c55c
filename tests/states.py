"""Galleries in every state of an upgrade, made once and copied for each test that wants one."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders import Precomputed
from compatstore.upgrade.requests.run_settings import RunSettings
from galleries import SOURCE, artifact, items

ROWS = 120
IDS = [f"item-{number:06d}" for number in range(2 * ROWS)]
BATCHES = RunSettings(batch_rows=16)
UPGRADE = {"backfill": cs.Backfill(share=0.25, order="sigma", write_mode="rewrite_columns"), "run": BATCHES}


def natives():
    """Unit vectors of 40 values for all items, in the order of `IDS`."""
    matrix = np.random.default_rng(9).normal(size=(len(IDS), 40)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def target():
    """The version upgraded to."""
    encoder = Precomputed(dict(zip(IDS, natives(), strict=True)))
    return cs.EmbeddingVersion("v2", dim=40, metric="cosine", normalised=True, encoder=encoder, head=np.eye(3, 40))


def encoder_file(folder):
    """The target's vectors in a file, and its path."""
    path = folder / "v2.npz"
    np.savez(path, id=np.array(IDS), vector=natives())
    return path


def open_with_encoder(path):
    """Open a gallery of these with the target's encoder."""
    return cs.Gallery.open(str(path), encoders={"v2": target().encoder})


def _interrupted_in_backfill(gallery):
    backfilling = []

    def progress(done):
        if done.step == "backfill":
            backfilling.append(done)

    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", **UPGRADE, progress=progress, should_stop=lambda: len(backfilling) >= 2)


STEPS = {
    "upgradable": lambda gallery: None,
    "backfilling": _interrupted_in_backfill,
    "ready": lambda gallery: gallery.upgrade("v2", **UPGRADE),
    "cutover": lambda gallery: gallery.cutover("v2"),
    "retired": lambda gallery: gallery.retire("v1"),
}


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """By state, the path of a gallery."""
    folder = tmp_path_factory.mktemp("templates")
    path = folder / "gallery.lance"
    gallery = cs.Gallery.create(str(path), SOURCE)
    gallery.add(items(0, ROWS))
    gallery.add(items(ROWS, ROWS))
    gallery.delete(["item-000003"])
    version = target()
    gallery.register(version)
    gallery.artifacts.link(artifact(SOURCE, version))
    for state, step in STEPS.items():
        step(gallery)
        shutil.copytree(path, folder / state / "gallery.lance")
    return {state: folder / state / "gallery.lance" for state in STEPS}


@pytest.fixture
def at(templates, tmp_path):
    """A gallery of one's own in a state: at("ready") -> its path."""

    def copy(state):
        path = tmp_path / f"{state}.lance"
        shutil.copytree(templates[state], path)
        return str(path)

    return copy
