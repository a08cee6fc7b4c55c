from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.trainers import FCT, Pairs, Refit, Residual


def world(seed, n, shift, side=False):
    """Pairs whose map moves by `shift` where classes are new; unit vectors."""
    rng = np.random.default_rng(seed)
    maps = np.random.default_rng(5)
    mix, move = maps.normal(size=(8, 6)), maps.normal(size=(8, 6))
    source = rng.normal(size=(n, 8)).astype(np.float32)
    target = np.tanh(source @ mix) + shift * source @ move
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    return Pairs(source, target.astype(np.float32), side=source[:, :2] if side else None)


@pytest.mark.parametrize("side", [False, True])
def test_gathered_rows_mend_what_the_first_pairs_did_not_know(side):
    small = {"epochs": 8, "branch_width": 32, "mixer_width": 64, "batch_size": 64}
    current = FCT(**small).fit(world(0, 800, 0.0, side))
    refitted = Refit().fit(current, world(1, 400, 0.7, side))
    later = world(2, 500, 0.7, side)

    def error(artifact):
        return float(np.square(artifact.apply(later.source, later.side).vectors - later.target).sum(1).mean())

    assert refitted.improved
    assert refitted.after == pytest.approx(error(refitted.artifact), rel=0.3)
    assert error(refitted.artifact) < 0.8 * error(current)
    assert refitted.artifact.manifest.method == "FCT+refit"
    again = Refit().fit(refitted.artifact, world(3, 400, 0.7, side))
    assert again.artifact.manifest.method == "FCT+refit"


def test_rows_that_follow_the_same_map_change_little():
    current = Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    refitted = Refit().fit(current, world(1, 60, 0.0))
    assert refitted.after < 1.1 * refitted.before


def test_the_sigma_head_is_fitted_to_the_error_that_remains():
    current = Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    refitted = Refit().fit(current, world(1, 600, 0.7))
    later = world(2, 800, 0.7)
    made = refitted.artifact.apply(later.source)
    losses = np.square(made.vectors - later.target).sum(axis=1)
    per_dimension = losses.mean() / later.target.shape[1]
    assert 0.4 < made.uncertainty.mean() / per_dimension < 2.5


def test_too_few_rows_and_other_kinds_are_refused(tmp_path):
    current = Residual(epochs=2, width=16).fit(world(0, 200, 0.0))
    with pytest.raises(cs.errors.InvalidInput, match="20 rows or more"):
        Refit().fit(current, world(1, 10, 0.0))
    identity = cs.Artifact.create("Identity", source=current.manifest.source, target=current.manifest.source)
    with pytest.raises(cs.errors.InvalidInput, match="a ForwardTransform"):
        Refit().fit(identity, world(1, 100, 0.0))
    with pytest.raises(cs.errors.InvalidInput, match="holdout"):
        Refit(holdout=0.0)
