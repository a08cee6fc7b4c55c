"""What a lesson judges by: transforms that have learned from nearly as many pairs as the one that is served."""

from __future__ import annotations

import numpy as np

import compatstore as cs
from compatstore.trainers import Ridge
from compatstore.trainers.pairs.learn import FINER
from compatstore.upgrade.learning import Lesson

DIM, PAIRS = 32, 60


def error(made, native):
    return float(np.mean(np.sum((made.astype(np.float64) - native) ** 2, axis=1)))


def test_what_closed_forms_are_judged_by_errs_as_they_do_on_pairs_that_are_new_to_them():
    apart = {2: [], FINER: []}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        turn, source = rng.normal(size=(DIM, DIM)), rng.normal(size=(PAIRS + 2000, DIM))
        target = (source @ turn + 2 * rng.normal(size=(PAIRS + 2000, DIM))).astype(np.float32)
        source = source.astype(np.float32)
        spaces = (cs.EmbeddingVersion(name, dim=DIM, metric="l2") for name in ("v1", "v2"))
        lesson = Lesson(
            **dict(zip(("source_version", "target_version"), spaces, strict=True)),
            source=source[:PAIRS],
            target=target[:PAIRS],
            side=None,
            seed=seed,
        )
        (taught,) = cs.Learn(candidates=(Ridge(penalties=(0.1,)),)).teach(lesson)
        truth = error(taught.artifact.apply(source[PAIRS:]).vectors, target[PAIRS:])
        apart[FINER].append(error(taught.transformed, lesson.target) / truth)
        halves = [np.arange(PAIRS)[part::2] for part in range(2)]
        coarse = np.empty_like(lesson.target)
        for half, other in (halves, halves[::-1]):
            pairs = cs.trainers.Pairs(lesson.source[other], lesson.target[other])
            fitted = Ridge(penalties=(0.1,), holdout=0.0).fit(pairs)
            coarse[half] = fitted.apply(lesson.source[half]).vectors
        apart[2].append(error(coarse, lesson.target) / truth)
    assert np.mean(apart[2]) > 1.5
    assert 0.9 < np.mean(apart[FINER]) < 1.15
