"""Leave-one-out predictions of closed forms: what a second solution without the pair predicts."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore.trainers import KernelRidge, LowRankRidge, Pairs, Ridge
from compatstore.trainers.pairs.closed_form import Moments
from compatstore.trainers.pairs.kernel_ridge import _Kernel, _LeastSquares
from compatstore.trainers.pairs.ridge import LeastSquares

pytestmark = pytest.mark.kernel

LEFT_OUT = (0, 7, 29)


def pairs_of(rows, dim, side=0):
    rng = np.random.default_rng(rows)
    source = rng.normal(size=(rows, dim)) + 1
    target = source[:, :4] ** 2 + rng.normal(size=(rows, 4))
    return Pairs(
        source.astype(np.float32),
        target.astype(np.float32),
        side=rng.normal(size=(rows, side)).astype(np.float32) if side else None,
    )


def inputs_of(pairs):
    parts = [pairs.source] if pairs.side is None else [pairs.source, pairs.side]
    return np.concatenate(parts, axis=1, dtype=np.float64)


def without(pairs, row):
    return pairs.subset(np.delete(np.arange(len(pairs)), row))


def squares_of(pairs):
    return LeastSquares(Moments.of(pairs))


def variance(inputs):
    return float(np.square(inputs - inputs.mean(axis=0)).sum())


@pytest.mark.parametrize("shape", [(50, 8), (30, 60), (40, 6, 3)], ids=["tall", "wide", "side"])
@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_ridge_regression_is_that_of_the_others_with_the_same_penalty(shape, penalty):
    pairs = pairs_of(*shape)
    found = Ridge(penalties=(penalty,)).left_out(pairs, squares_of(pairs))
    inputs = inputs_of(pairs)
    for row in LEFT_OUT:
        others = without(pairs, row)
        same = penalty * variance(inputs) / variance(inputs_of(others))
        solved = Ridge(penalties=(same,)).solve(others).tensors
        expected = solved["mixer.0.weight"] @ inputs[row] + solved["mixer.0.bias"]
        np.testing.assert_allclose(found[row], expected, atol=1e-10)


@pytest.mark.parametrize("centres", [2048, 20], ids=["all centres", "few centres"])
def test_kernel_ridge_regression_is_that_of_the_others_with_the_same_gamma(centres):
    pairs = pairs_of(50, 8)
    trainer = KernelRidge(sharpness=(1.0,), penalties=(0.05,), centres=centres)
    found, kernel = trainer.left_out(pairs, squares_of(pairs)), trainer._kernel(pairs, 1.0)
    for row in LEFT_OUT:
        others = without(pairs, row)
        mine = kernel if centres < len(pairs) else _Kernel(np.delete(kernel.centres, row, axis=0), kernel.gamma)
        predicted = mine.between(pairs.source[[row]]) @ _LeastSquares(mine, others).weights(0.05)
        expected = predicted[0] + others.target.mean(axis=0, dtype=np.float64)
        np.testing.assert_allclose(found[row], expected, atol=1e-10)


def test_vectors_of_unit_length_are_given_with_the_uncertainty_that_a_fit_gives():
    pairs = pairs_of(50, 8)
    target = pairs.target / np.linalg.norm(pairs.target, axis=1, keepdims=True)
    pairs = Pairs(pairs.source, target)
    for trainer in (Ridge(penalties=(0.1,)), KernelRidge(sharpness=(1.0,), penalties=(0.05,))):
        made, sigma2 = trainer.held_out(pairs, squares_of(pairs))
        raw = trainer.left_out(pairs, squares_of(pairs))
        np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(sigma2, 1 / np.square(raw).sum(axis=1), rtol=1e-6)
        silent = type(trainer)(penalties=trainer.penalties, uncertainty=False, **_sharp(trainer))
        assert silent.held_out(pairs, squares_of(pairs))[1] is None


def _sharp(trainer):
    return {"sharpness": trainer.sharpness} if isinstance(trainer, KernelRidge) else {}


@pytest.mark.parametrize(
    "trainer",
    [Ridge(), KernelRidge(), LowRankRidge(penalties=(0.1,), ranks=(2,)), Ridge(penalties=(0.0,))],
    ids=["penalty", "kernel", "rank", "exact"],
)
def test_what_is_chosen_and_what_fits_every_pair_needs_further_solutions(trainer):
    pairs = pairs_of(30, 60)
    assert trainer.left_out(pairs, squares_of(pairs)) is None
