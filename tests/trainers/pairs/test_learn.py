"""What a lesson judges by: transforms that have learned from nearly as many pairs as the one that is served."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from labelled_spaces import unit

import compatstore as cs
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.storage.shrinkage import shrinkage_of as recorded
from compatstore.trainers import Procrustes, Ridge
from compatstore.trainers.pairs.learn import NETWORK_PAIRS, _CrossValidation, networks
from compatstore.trainers.pairs.selection import NO_LABEL
from compatstore.trainers.pairs.shrinking import HeldOutRows, cross_fitted_factors, shrinkage_of
from compatstore.trainers.pairs.trainer import describe
from compatstore.trainers.training import EpochProgress
from compatstore.upgrade.training_pairs import FEWEST_PAIRS, TrainingPairs

pytestmark = pytest.mark.full

DIM, PAIRS = 32, 60


def error(made, native):
    return float(np.mean(np.sum((made.astype(np.float64) - native) ** 2, axis=1)))


def test_what_closed_forms_are_judged_by_errs_as_they_do_on_pairs_that_are_new_to_them():
    apart = {"halves": [], "left out": []}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        turn, source = rng.normal(size=(DIM, DIM)), rng.normal(size=(PAIRS + 2000, DIM))
        target = (source @ turn + 2 * rng.normal(size=(PAIRS + 2000, DIM))).astype(np.float32)
        source = source.astype(np.float32)
        spaces = (cs.EmbeddingVersion(name, dim=DIM, metric="l2") for name in ("v1", "v2"))
        lesson = TrainingPairs(
            **dict(zip(("source_version", "target_version"), spaces, strict=True)),
            source=source[:PAIRS],
            target=target[:PAIRS],
            side=None,
            seed=seed,
        )
        (taught,) = cs.Learn(candidates=(Ridge(penalties=(0.1,)),)).train(lesson)
        truth = error(taught.artifact.apply(source[PAIRS:]).vectors, target[PAIRS:])
        apart["left out"].append(error(taught.transformed, lesson.target) / truth)
        halves = [np.arange(PAIRS)[part::2] for part in range(2)]
        coarse = np.empty_like(lesson.target)
        for half, other in (halves, halves[::-1]):
            pairs = cs.trainers.Pairs(lesson.source[other], lesson.target[other])
            fitted = Ridge(penalties=(0.1,), holdout=0.0).fit(pairs)
            coarse[half] = fitted.apply(lesson.source[half]).vectors
        apart["halves"].append(error(coarse, lesson.target) / truth)
    assert np.mean(apart["halves"]) > 1.5
    assert 0.9 < np.mean(apart["left out"]) < 1.15


def pairs_of(rows, seed=0):
    """Source and target of unit length, of 12 classes; the source of every second class says little of the target."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 12, rows)
    target = unit(rng.normal(size=(12, 16))[classes] + 0.4 * rng.normal(size=(rows, 16)))
    noise = np.where(classes % 2, 2.0, 0.1)[:, None] * rng.normal(size=(rows, 12))
    return unit(target @ rng.normal(size=(16, 12)) + noise), target, classes


@pytest.mark.parametrize("labelled", [0.0, 0.05, 0.5, 1.0])
def test_what_it_learned_says_what_is_expected_of_cosines_by_pairs_that_it_was_learned_without(labelled):
    source, target, classes = pairs_of(400)
    v1, v2 = (
        cs.EmbeddingVersion(name, dim=dim, metric="cosine", normalised=True) for name, dim in (("v1", 12), ("v2", 16))
    )
    known = np.where(np.arange(400) < labelled * 400, classes, NO_LABEL)
    lesson = TrainingPairs(
        source=source,
        target=target,
        side=None,
        source_version=v1,
        target_version=v2,
        seed=0,
        classes=known if labelled else None,
        native_share=0.3,
    )
    candidates = (Ridge(penalties=(0.1,)), Ridge(penalties=(0.1,), uncertainty=False), Procrustes())
    taught = {one.name: one for one in cs.Learn(candidates=candidates).train(lesson)}
    doubted, *silent = (taught[describe(candidate)] for candidate in candidates)
    for one in silent:
        assert Shrinkage.of(one.artifact.manifest.figures) is None
        assert one.factors is None
    shrinkage = Shrinkage.of(doubted.artifact.manifest.figures)
    sigma2 = doubted.artifact.apply(source).uncertainty
    assert np.median(sigma2[classes % 2 == 1]) > np.median(sigma2[classes % 2 == 0])
    crossed, made, squares = np.empty(400, np.float32), np.empty_like(target), np.square(source - source.mean(axis=0))
    for row in range(400):
        rest = np.delete(np.arange(400), row)
        pairs = cs.trainers.Pairs(source[rest], target[rest])
        others = np.square(source[rest] - source[rest].mean(axis=0, dtype=np.float64))
        solved = Ridge(penalties=(0.1 * squares.sum() / others.sum(),)).solve(pairs).tensors
        raw = solved["mixer.0.weight"] @ source[row] + solved["mixer.0.bias"]
        crossed[row], made[row] = 1 / np.square(raw).sum(), raw / np.linalg.norm(raw)
    enough = labelled * 400 >= FEWEST_PAIRS
    rows = np.flatnonzero(known != NO_LABEL) if enough else np.arange(400)
    shares = (0.3, 0.6)  # until the next lesson
    pairs = HeldOutRows(crossed[rows], made[rows], target[rows], known[rows] if enough else None, shares)
    np.testing.assert_allclose(shrinkage.at(sigma2), shrinkage_of(pairs).at(sigma2), rtol=1e-6)
    np.testing.assert_allclose(doubted.factors[rows], cross_fitted_factors(pairs), rtol=1e-6)
    rest = np.setdiff1d(np.arange(400), rows)
    np.testing.assert_allclose(doubted.factors[rest], shrinkage.at(crossed[rest]), rtol=1e-6)


def test_an_upgrade_that_teaches_itself_is_searched_by_shrunk_distances(tmp_path):
    source, target, _ = pairs_of(600)
    encoder = cs.encoders.Precomputed(dict(enumerate(target)))
    gallery = cs.Gallery.create(
        str(tmp_path / "g.lance"),
        cs.EmbeddingVersion("v1", dim=12, metric="cosine", normalised=True),
        id_type="int64",
    )
    gallery.add({"id": range(600), "vector": source})
    gallery.register(cs.EmbeddingVersion("v2", dim=16, metric="cosine", normalised=True, encoder=encoder))
    learn = cs.Learn(candidates=(Ridge(penalties=(0.1,)),), first=100)
    gallery.upgrade("v2", backfill=0.25, learn=learn)
    fusion = gallery._catalog.registry().fusion_of("v2")
    assert fusion.shrinkage  # it was judged as it is served
    assert gallery.explain(version="v2").shrinkage
    found = gallery.search(target[0], k=600, version="v2", columns=["id"])
    assert set(found["id"].to_pylist()) == set(range(600))
    made = set(found["_origin"].to_pylist()) - {"native"}
    assert [recorded(gallery._catalog, origin) is None for origin in made] == [False]
    gallery.cutover("v2")
    assert gallery.search(target[0], k=600, columns=["id"]).num_rows == 600
    assert gallery.maintenance.verify().findings == ()


@dataclass(frozen=True)
class Counting:
    """Ridge regression that counts its fits, each of ten epochs of a second."""

    penalty: float
    fits: list = field(default_factory=list, repr=False)

    def fit(self, pairs, progress=None):
        self.fits.append(len(pairs))
        if progress is not None:
            progress(EpochProgress("h", 1, 10, 0.0, 1.0))
        return Ridge(penalties=(self.penalty, 1e9 * self.penalty), holdout=0.0).fit(pairs)


@pytest.mark.parametrize(
    ("penalty", "allowance", "fits"),
    [(1e-3, np.inf, 5), (100.0, np.inf, 1), (1e-3, 50.0, 1), (1e-3, 0.0, 0)],
    ids=["ahead", "behind", "too dear", "no time"],
)
def test_a_network_is_fitted_further_only_if_it_is_ahead_on_one_fold_and_time_is_left(penalty, allowance, fits):
    source, target, _ = pairs_of(200)
    crossed = _CrossValidation(cs.trainers.Pairs(source, target), 0, 3, None)
    crossed.run((Ridge(penalties=(10.0,)),))
    network = Counting(penalty)
    crossed.screen(network, allowance)
    assert len(network.fits) == fits
    assert set(network.fits) <= {160}
    assert [one.trainer for one in crossed.kept][:-1] == ([network] if fits == 5 else [])


def test_networks_are_tried_with_labels_or_where_pairs_are_many():
    assert networks(NETWORK_PAIRS - 1, labelled=False) == ()
    (through_head,) = networks(FEWEST_PAIRS, labelled=True)
    assert through_head.loss == "l2+disc"
    (by_distance,) = networks(NETWORK_PAIRS, labelled=False)
    assert by_distance.loss == "l2"
    assert networks(NETWORK_PAIRS, labelled=True) == (through_head, by_distance)
