"""A correction of a transform: what it mends, what it keeps of the uncertainty, and where it cannot run."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore import trainers
from compatstore.errors import InvalidInput
from compatstore.trainers import Correction, Pairs
from compatstore.trainers.pairs.trainer import describe


def world(seed, n, shift, side=False, blur=0.0):
    """Pairs whose map moves by `shift` where classes are new, `blur` of it unpredictable; unit vectors."""
    rng = np.random.default_rng(seed)
    maps = np.random.default_rng(5)
    mix, move = maps.normal(size=(8, 6)), maps.normal(size=(8, 6))
    source = rng.normal(size=(n, 8)).astype(np.float32)
    target = np.tanh(source @ mix) + shift * source @ move + blur * rng.normal(size=(n, 6)) * (np.arange(6) > 0)
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    return Pairs(source, target.astype(np.float32), side=source[:, :2] if side else None)


def corrected(current, pairs):
    return Correction(current=current).fit(pairs)


def error(artifact, pairs):
    return float(np.square(artifact.apply(pairs.source, pairs.side).vectors - pairs.target).sum(1).mean())


SMALL = {"epochs": 8, "branch_width": 32, "mixer_width": 64, "batch_size": 64}


@pytest.mark.full
@pytest.mark.parametrize("side", [False, True])
def test_pairs_mend_what_the_first_pairs_did_not_know(side):
    current = trainers.FCT(**SMALL).fit(world(0, 800, 0.0, side))
    found, later = corrected(current, world(1, 400, 0.7, side)), world(2, 500, 0.7, side)
    assert error(found, later) < 0.8 * error(current, later)
    assert found.manifest.method == "FCT+correction"
    assert found.manifest.settings["of"] == current.id
    assert corrected(found, world(3, 400, 0.7, side)).manifest.method == "FCT+correction"


@pytest.mark.parametrize(
    "trainer", [trainers.Ridge(), trainers.KernelRidge(centres=40), trainers.Residual(epochs=2, width=16)], ids=describe
)
def test_the_result_is_the_transform_plus_an_affine_map_of_output_and_input(trainer):
    current = trainer.fit(world(0, 300, 0.0))
    rows = world(1, 200, 0.7)
    found = corrected(current, rows)
    assert error(found, rows) < error(current, rows)
    assert found.manifest.networks["h"].mixer == current.manifest.networks["h"].mixer


@pytest.mark.full
def test_lengths_go_on_saying_sigma2():
    current = trainers.FCT(**SMALL, uncertainty=True).fit(world(0, 800, 0.0, blur=0.5))
    found = corrected(current, world(1, 400, 0.7, blur=0.5))
    source = world(2, 500, 0.7, blur=0.5).source
    assert found.manifest.networks["h"].uncertainty == "length"
    assert np.corrcoef(*(np.log(one.apply(source).uncertainty) for one in (current, found)))[0, 1] > 0.3


@pytest.mark.full
def test_the_sigma_head_is_fitted_to_the_error_that_remains():
    current = trainers.Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    later = world(2, 800, 0.7)
    made = corrected(current, world(1, 600, 0.7)).apply(later.source)
    losses = np.square(made.vectors - later.target).sum(axis=1)
    assert 0.4 < made.uncertainty.mean() / (losses.mean() / later.target.shape[1]) < 2.5


def test_it_learns_from_pairs_alone_that_the_transform_was_not_trained_on():
    first, more = world(0, 100, 0.0), world(1, 60, 0.7)
    current = trainers.Ridge().fit(first)
    both = Pairs(np.concatenate([first.source, more.source]), np.concatenate([first.target, more.target]))
    for name, tensor in corrected(current, both).tensors.items():
        np.testing.assert_allclose(tensor, corrected(current, more).tensors[name], rtol=1e-5, atol=1e-6)
    with pytest.raises(InvalidInput):
        corrected(current, first)


def test_pairs_without_the_side_information_that_it_reads_are_refused():
    current = trainers.Ridge().fit(world(0, 100, 0.0, side=True))
    with pytest.raises(InvalidInput, match="side-information"):
        corrected(current, world(1, 60, 0.7))


def test_its_name_holds_no_weights():
    assert describe(Correction(current=trainers.Ridge().fit(world(0, 50, 0.0)))) == "Correction"
