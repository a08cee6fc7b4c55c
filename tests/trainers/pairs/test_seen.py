"""Every trainer on pairs says which source vectors its artifact has learned from."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore import trainers
from compatstore.artifacts import Artifact, Space
from compatstore.digests import digest_half
from compatstore.trainers import (
    Correction,
    DiagonalScale,
    KernelRidge,
    LowRankAffine,
    LowRankRidge,
    MeanShift,
    Pairs,
    Procrustes,
    QueryAdapter,
    Ridge,
)

RANDOM = np.random.default_rng(0)
SOURCE = RANDOM.normal(size=(120, 6)).astype(np.float32)
TARGET = (SOURCE @ RANDOM.normal(size=(6, 6))).astype(np.float32)
LABELS = np.arange(120) % 4
QUICK = {"epochs": 1, "batch_size": 32}
TRAINERS = {
    "fct": lambda: trainers.FCT(**QUICK, branch_width=8, mixer_width=8),
    "fastfill": lambda: trainers.FastFill(**QUICK, branch_width=8, mixer_width=8, disc_weight=1.0),
    "residual": lambda: trainers.Residual(**QUICK, width=8),
    "rbt": lambda: trainers.RBT(**QUICK),
    "drift adapter": lambda: trainers.DriftAdapter(**QUICK, width=8),
    "dmu head": lambda: trainers.DMUHead(**QUICK, width=8),
    "lce": lambda: trainers.LCE(**QUICK, width=8),
    "mean shift": MeanShift,
    "procrustes": Procrustes,
    "diagonal": DiagonalScale,
    "ridge": Ridge,
    "low-rank ridge": LowRankRidge,
    "kernel ridge": KernelRidge,
    "low-rank affine": LowRankAffine,
    "query adapter": lambda: QueryAdapter(form=Ridge()),
    "auto": lambda: trainers.Auto(candidates=(MeanShift(), Ridge()), by="row"),
}


def pairs(rows=slice(None)):
    return Pairs(SOURCE[rows], TARGET[rows], labels=LABELS[rows])


@pytest.mark.parametrize("name", TRAINERS)
def test_all_rows_that_a_trainer_was_given_are_seen(name):
    artifact = TRAINERS[name]().fit(pairs())
    assert artifact.seen.tolist() == sorted(set(digest_half(SOURCE).tolist()))
    assert artifact.manifest.seen == len(SOURCE)


def test_a_correction_has_seen_what_its_parent_saw_and_what_it_was_given():
    first = Ridge().fit(pairs(slice(80)))
    assert Correction(current=first).fit(pairs(slice(60, None))).seen.tolist() == sorted(digest_half(SOURCE).tolist())


def test_what_a_correction_of_a_transform_without_records_has_seen_is_not_known():
    known = Ridge().fit(pairs(slice(80)))
    manifest = known.manifest
    silent = Artifact.create(
        known.kind, source=Space(dim=6), target=Space(dim=6), networks=manifest.networks, tensors=known.tensors
    )
    assert silent.seen is None
    assert Correction(current=silent).fit(pairs(slice(60, None))).seen is None
