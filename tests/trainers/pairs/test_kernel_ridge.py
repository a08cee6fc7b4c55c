"""Kernel ridge regression: what scikit-learn gives, what few centres give, and what is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore.artifacts import Artifact
from compatstore.errors import InvalidInput
from compatstore.trainers import KernelRidge, Pairs, Ridge
from lazily import Lazy

kernel_approximation = Lazy("sklearn.kernel_approximation")
kernel_ridge = Lazy("sklearn.kernel_ridge")
linear_model = Lazy("sklearn.linear_model")

pytestmark = pytest.mark.kernel

RANDOM = np.random.default_rng(0)
SOURCE = RANDOM.normal(size=(260, 5)).astype(np.float32) + 3
BENT = np.stack([np.sin(2 * SOURCE[:, 0]), SOURCE[:, 1] * SOURCE[:, 2], np.abs(SOURCE[:, 3] - 3)], axis=1)
TARGET = BENT.astype(np.float32)
LEARNED, NEW = slice(0, 200), slice(200, None)
ONE = {"sharpness": (1.0,), "penalties": (0.1,), "holdout": 0.0}


def fitted(**settings):
    return KernelRidge(**(ONE | settings)).fit(Pairs(SOURCE[LEARNED], TARGET[LEARNED]))


def gamma_of(artifact):
    return float(artifact.tensors["h.mixer.0.gamma"][0])


def error(made):
    return float(((made - TARGET[NEW]) ** 2).mean())


def test_with_as_many_centres_as_pairs_it_is_kernel_ridge_regression():
    artifact, mean = fitted(), TARGET[LEARNED].mean(axis=0)
    apart = ((SOURCE[LEARNED, None] - SOURCE[LEARNED]) ** 2).sum(axis=2)[np.triu_indices(200, 1)]
    assert gamma_of(artifact) == pytest.approx(1 / np.median(apart), rel=1e-5)
    reference = kernel_ridge.KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma_of(artifact))
    expected = reference.fit(SOURCE[LEARNED], TARGET[LEARNED] - mean).predict(SOURCE) + mean
    np.testing.assert_allclose(artifact.apply(SOURCE).vectors, expected, atol=2e-4)


def test_with_fewer_it_is_ridge_regression_on_what_they_span():
    artifact, mean = fitted(centres=50), TARGET[LEARNED].mean(axis=0)
    assert artifact.tensors["h.mixer.0.weight"].shape == (50, 5)
    centres = artifact.tensors["h.mixer.0.weight"] / (2 * gamma_of(artifact))
    spans = kernel_approximation.Nystroem(kernel="rbf", gamma=gamma_of(artifact), n_components=50).fit(centres)
    linear = linear_model.Ridge(alpha=0.1, fit_intercept=False).fit(
        spans.transform(SOURCE[LEARNED]), TARGET[LEARNED] - mean
    )
    expected = linear.predict(spans.transform(SOURCE)) + mean
    np.testing.assert_allclose(artifact.apply(SOURCE).vectors, expected, atol=2e-3)


def test_what_is_bent_is_learned_where_a_line_fails_and_rows_kept_out_choose_how():
    chosen = KernelRidge().fit(Pairs(SOURCE[LEARNED], TARGET[LEARNED]))
    figures = chosen.manifest.figures["h"]
    worst = fitted(sharpness=(0.5,), penalties=(1.0,))
    line = Ridge().fit(Pairs(SOURCE[LEARNED], TARGET[LEARNED]))
    assert error(chosen.apply(SOURCE[NEW]).vectors) < 0.6 * error(line.apply(SOURCE[NEW]).vectors)
    assert error(chosen.apply(SOURCE[NEW]).vectors) < error(worst.apply(SOURCE[NEW]).vectors)
    assert figures["sharpness"] in KernelRidge().sharpness
    assert figures["penalty"] in KernelRidge().penalties
    assert figures["rows"] == 20


def test_the_unit_of_the_source_and_where_its_origin_lies_change_nothing():
    moved = KernelRidge(**ONE).fit(Pairs(100 * SOURCE[LEARNED] - 50, TARGET[LEARNED]))
    np.testing.assert_allclose(
        moved.apply(100 * SOURCE[NEW] - 50).vectors, fitted().apply(SOURCE[NEW]).vectors, atol=2e-3
    )


def test_rows_that_are_all_alike_and_a_single_one_give_their_mean():
    alike = Pairs(np.ones((30, 4)), np.arange(90, dtype=np.float32).reshape(30, 3))
    for pairs in (alike, Pairs(np.ones((1, 4)), np.full((1, 3), 7.0))):
        made = KernelRidge(**ONE).fit(pairs).apply(np.ones((2, 4))).vectors
        np.testing.assert_allclose(made, np.tile(pairs.target.mean(axis=0), (2, 1)), atol=1e-3)


def test_unit_targets_give_unit_vectors_and_the_artifact_survives_its_file(tmp_path):
    unit = TARGET / np.linalg.norm(TARGET, axis=1, keepdims=True)
    artifact = KernelRidge(**ONE).fit(Pairs(SOURCE[LEARNED], unit[LEARNED]))
    made = artifact.apply(SOURCE[NEW]).vectors
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-6)
    artifact.save(tmp_path / "h")
    assert np.array_equal(Artifact.load(tmp_path / "h").apply(SOURCE[NEW]).vectors, made)


@pytest.mark.parametrize(
    "wrong", [{"centres": 0}, {"sharpness": ()}, {"sharpness": (0.0,)}, {"penalties": (0.0,)}, {"validation": 1.0}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(InvalidInput):
        KernelRidge(**wrong)
