from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.trainers import Pairs, Refit, Ridge
from compatstore.upgrade.refit import Gathered


def world(seed, n, shift, side=False, blur=0.0):
    """Pairs whose map moves by `shift` where classes are new, `blur` of it unpredictable; unit vectors."""
    rng = np.random.default_rng(seed)
    maps = np.random.default_rng(5)
    mix, move = maps.normal(size=(8, 6)), maps.normal(size=(8, 6))
    source = rng.normal(size=(n, 8)).astype(np.float32)
    target = np.tanh(source @ mix) + shift * source @ move + blur * rng.normal(size=(n, 6)) * (np.arange(6) > 0)
    target[:, 0] *= 0.2  # along this one, natives vary least
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    return Pairs(source, target.astype(np.float32), side=source[:, :2] if side else None)


def gathered(pairs, native=0.01, validation_rows=None):
    rows = np.arange(len(pairs)) if validation_rows is None else validation_rows
    return Gathered(source=pairs.source, target=pairs.target, side=pairs.side, validation_rows=rows, native=native)


def error(artifact, pairs):
    return float(np.square(artifact.apply(pairs.source, pairs.side).vectors - pairs.target).sum(1).mean())


@pytest.mark.full
@pytest.mark.parametrize("side", [False, True])
def test_gathered_rows_mend_what_the_first_pairs_did_not_know(side):
    small = {"epochs": 8, "branch_width": 32, "mixer_width": 64, "batch_size": 64}
    current = trainers.FCT(**small).fit(world(0, 800, 0.0, side))
    refitted = Refit().fit(current, gathered(world(1, 400, 0.7, side)))
    later = world(2, 500, 0.7, side)
    assert refitted.improved
    assert refitted.after == pytest.approx(error(refitted.artifact, later), rel=0.3)
    assert error(refitted.artifact, later) < 0.8 * error(current, later)
    assert refitted.artifact.manifest.method == "FCT+refit"
    again = Refit().fit(refitted.artifact, gathered(world(3, 400, 0.7, side)))
    assert again.artifact.manifest.method == "FCT+refit"


@pytest.mark.full
def test_lengths_go_on_saying_sigma2():
    small = {"epochs": 8, "branch_width": 32, "mixer_width": 64, "batch_size": 64}
    current = trainers.FCT(**small, uncertainty=True).fit(world(0, 800, 0.0, blur=0.5))
    refitted = Refit().fit(current, gathered(world(1, 400, 0.7, blur=0.5))).artifact
    source = world(2, 500, 0.7, blur=0.5).source
    assert refitted.manifest.networks["h"].uncertainty == "length"
    assert np.corrcoef(*(np.log(one.apply(source).uncertainty) for one in (current, refitted)))[0, 1] > 0.3


@pytest.mark.full
def test_rows_that_follow_the_same_map_are_no_reason_to_hop_again():
    current = trainers.Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    for seed in (1, 2, 3):
        assert not Refit().fit(current, gathered(world(seed, 60, 0.0))).improved


@pytest.mark.full
def test_the_distance_that_is_kept_does_not_count_against_a_refitted_transform():
    current = trainers.Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    rows = gathered(world(1, 400, 0.7, blur=0.5), native=0.3)
    refitted = Refit().fit(current, rows)
    again = Refit().fit(refitted.artifact, rows)
    assert again.before == pytest.approx(refitted.after, rel=0.15)
    assert error(refitted.artifact, world(2, 400, 0.7, blur=0.5)) > 1.2 * again.before


@pytest.mark.full
def test_the_more_is_native_the_farther_transformed_vectors_keep_from_queries():
    """An estimate lies nearer to a query than the native that it stands for would, and natives lose the first place."""
    current = trainers.Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    learned, later, queries = (world(seed, n, 0.7, blur=0.5) for seed, n in ((1, 1000), (2, 500), (3, 300)))

    def nearest(vectors):
        return float(np.square(queries.target[:, None] - vectors[None]).sum(axis=2).min(axis=1).mean())

    few, many = (Refit().fit(current, gathered(learned, native)).artifact.apply(later.source) for native in (0.01, 0.3))
    assert nearest(few.vectors) < nearest(many.vectors)
    np.testing.assert_allclose(few.uncertainty, many.uncertainty, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(many.vectors, axis=1), 1.0, rtol=1e-5)


@pytest.mark.full
def test_only_the_judges_decide():
    """Rows that the order chose are mended, those like what remains are not: the refit is refused."""
    current = trainers.Residual(epochs=40, width=64).fit(world(0, 2000, 0.0))
    odd, like = world(1, 400, 0.7), world(2, 60, 0.0)
    both = Pairs(np.concatenate([odd.source, like.source]), np.concatenate([odd.target, like.target]))
    assert Refit().fit(current, gathered(both)).improved
    assert not Refit().fit(current, gathered(both, validation_rows=np.arange(400, 460))).improved


@pytest.mark.full
def test_the_sigma_head_is_fitted_to_the_error_that_remains():
    current = trainers.Residual(epochs=6, width=64).fit(world(0, 800, 0.0))
    refitted = Refit().fit(current, gathered(world(1, 600, 0.7)))
    later = world(2, 800, 0.7)
    made = refitted.artifact.apply(later.source)
    losses = np.square(made.vectors - later.target).sum(axis=1)
    per_dimension = losses.mean() / later.target.shape[1]
    assert 0.4 < made.uncertainty.mean() / per_dimension < 2.5


def test_too_few_rows_and_other_kinds_are_refused():
    current = trainers.Residual(epochs=2, width=16).fit(world(0, 200, 0.0))
    with pytest.raises(cs.errors.InvalidInput, match="20 rows or more"):
        Refit().fit(current, gathered(world(1, 10, 0.0)))
    with pytest.raises(cs.errors.InvalidInput, match="10 to validate by"):
        Refit().fit(current, gathered(world(1, 100, 0.0), validation_rows=np.arange(9)))
    identity = cs.Artifact.create("Identity", source=current.manifest.source, target=current.manifest.source)
    with pytest.raises(cs.errors.InvalidInput, match="a ForwardTransform"):
        Refit().fit(identity, gathered(world(1, 100, 0.0)))
    with pytest.raises(cs.errors.InvalidInput, match="holdout"):
        Refit(holdout=0.0)
    with pytest.raises(cs.errors.InvalidInput, match="farthest"):
        Refit(farthest=1.1)


@pytest.mark.full
@pytest.mark.parametrize("native", [0.01, 0.3])
def test_what_sigma_lets_expect_of_cosines_is_measured_again_by_rows_that_a_correction_was_learned_without(native):
    small = {"epochs": 8, "branch_width": 32, "mixer_width": 64, "batch_size": 64}
    first, later = world(0, 800, 0.0, blur=0.5), world(2, 500, 0.7, blur=0.5)
    for trainer in (trainers.FCT(**small, uncertainty=True), trainers.Residual(epochs=6, width=64), Ridge()):
        current = trainer.fit(first)
        refitted = Refit().fit(current, gathered(world(1, 400, 0.7, blur=0.5), native)).artifact
        shrinkage = Shrinkage.of(refitted.manifest.figures)
        assert shrinkage is not None
        made = refitted.apply(later.source)
        cosines = np.einsum("nd,nd->n", made.vectors, later.target)
        kept = (shrinkage.at(made.uncertainty) * cosines.mean() ** shrinkage.level) ** (1 / (shrinkage.exponent or 1))
        if shrinkage.exponent:  # the factors are what is expected of cosines, of rows that are new to all of it
            assert kept.mean() == pytest.approx(cosines.mean(), abs=0.1)
            halves = made.uncertainty < np.median(made.uncertainty)
            assert (kept[halves].mean() > kept[~halves].mean()) == (cosines[halves].mean() > cosines[~halves].mean())
    few = gathered(world(1, 400, 0.7, blur=0.5), validation_rows=np.arange(39))
    assert Shrinkage.of(Refit().fit(Ridge().fit(first), few).artifact.manifest.figures) is None
    silent = trainers.FCT(**small).fit(first)
    assert Refit().fit(silent, gathered(world(1, 400, 0.7))).artifact.manifest.figures == {}
