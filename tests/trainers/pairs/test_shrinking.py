"""What is chosen of a transform's doubts: factors that descend, and none that find less on the pairs held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from labelled_spaces import unit

from compatstore import trainers
from compatstore.artifacts.shrinkage import FIGURE, Shrinkage
from compatstore.trainers import Pairs
from compatstore.trainers.pairs import shrinking
from compatstore.trainers.pairs.shrinking import EXPONENTS, LEVELS, HeldOutRows, _slope
from compatstore.versions import EmbeddingVersion
from lazily import Lazy

linear_model = Lazy("sklearn.linear_model")


ROWS = 300


def shrinkage_of(*rows):
    return shrinking.shrinkage_of(HeldOutRows(*rows))


def cross_fitted_factors(*rows):
    return shrinking.cross_fitted_factors(HeldOutRows(*rows))


def backfill(*rows):
    return shrinking._Backfill(HeldOutRows(*rows))


def doubted_of(rows):
    """Half of the items are transformed well, the others badly and towards another class; sigma^2 says which."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 12, rows)
    centres = random.normal(size=(12, 16))
    native = unit(centres[labels] + 0.4 * random.normal(size=(rows, 16)))
    bad = np.arange(rows) % 2 == 1
    error = np.where(bad, 0.9, 0.2)[:, None] * random.normal(size=(rows, 16)) + bad[:, None] * centres[labels[::-1]]
    transformed = unit(native + error)
    return (
        np.where(bad, 2.0, 0.5).astype(np.float32) * random.uniform(0.9, 1.1, rows).astype(np.float32),
        transformed,
        (native),
        labels,
    )


@pytest.fixture
def doubted():
    return doubted_of(ROWS)


def test_what_cosines_keep_is_the_line_of_least_squares():
    random = np.random.default_rng(0)
    logs = random.normal(size=500)
    cosines = 0.7 - 0.2 * logs + random.normal(0, 0.01, 500)
    assert _slope(logs, cosines) == pytest.approx(
        linear_model.LinearRegression().fit(logs[:, None], cosines).coef_[0], rel=1e-3
    )
    assert _slope(logs, -cosines) == 0  # what is doubted most never keeps more
    assert _slope(np.zeros(500), cosines) == 0
    assert _slope(logs, np.full(500, 0.5)) == pytest.approx(0, abs=1e-15)


@pytest.mark.full
def test_one_row_does_not_tilt_the_line(doubted):
    sigma2, transformed, native, labels = doubted
    at = np.array([0.6, 1.9], np.float32)
    for rows in (40, ROWS):
        others = transformed[:rows], native[:rows], labels[:rows]
        plain = shrinkage_of(sigma2[:rows], *others).at(at)
        for extreme in (0.0, 1e38, np.inf):
            odd = np.r_[np.float32(extreme), sigma2[1:rows]].astype(np.float32)
            np.testing.assert_allclose(plain, shrinkage_of(odd, *others).at(at), atol=0.05)


@pytest.mark.full
def test_what_chance_makes_of_few_rows_is_not_taken_for_doubt():
    random = np.random.default_rng(0)
    drawn = [(random.normal(size=60), random.normal(0.7, 0.3, 60)) for _ in range(100)]
    least = [abs(linear_model.LinearRegression().fit(logs[:, None], cosines).coef_[0]) for logs, cosines in drawn]
    kept = [abs(_slope(logs, cosines)) for logs, cosines in drawn]
    assert np.mean(least) > 0.03
    assert np.mean(kept) < np.mean(least) / 4


@pytest.mark.full
@pytest.mark.parametrize("labelled", [True, False])
def test_what_the_transform_doubts_keeps_less(doubted, labelled):
    sigma2, transformed, native, labels = doubted
    found = shrinkage_of(sigma2, transformed, native, labels if labelled else None)
    assert found is not None
    assert found.exponent > 0
    certain, doubtful = found.at(np.array([0.5, 2.0], np.float32))
    assert certain > doubtful >= 0
    cosines = np.einsum("nd,nd->n", transformed, native)
    for rows, factor in ((sigma2 < 1, certain), (sigma2 > 1, doubtful)):
        kept = cosines[rows].mean() / cosines.mean() ** found.level
        assert factor == pytest.approx(kept**found.exponent, rel=0.1)


@pytest.mark.full
def test_what_is_chosen_finds_no_less_than_cosines_as_they_are(doubted):
    sigma2, transformed, native, labels = doubted
    drawn = unit(native + 0.6 * np.random.default_rng(2).normal(size=native.shape))
    away = unit(transformed + 3 * np.eye(16)[0])
    for made in (transformed, away, drawn):
        found = shrinkage_of(sigma2, made, native, labels)
        assert found is not None
        trial = backfill(sigma2, made, native, labels)
        gained = trial.found(found) - trial.found(replace(found, factors=(1.0,) * len(found.factors)))
        assert gained.mean() >= 0
        found = shrinkage_of(sigma2, made, native)
        trial = backfill(sigma2, made, native, None)
        gained = trial.found(found) - trial.found(replace(found, factors=(1.0,) * len(found.factors)))
        assert gained.mean() >= 3 * gained.std(ddof=1) / np.sqrt(len(gained))


@pytest.mark.full
def test_what_chance_gains_by_neighbours_is_not_taken(doubted):
    """The best of many factors finds a little more on the rows that they are compared on, whatever they are."""
    _, _, native, _ = doubted
    random = np.random.default_rng(4)
    best, taken = [], []
    for _ in range(10):
        made = unit(native + 0.5 * random.normal(size=native.shape))
        sigma2 = random.uniform(0.5, 2, len(native)).astype(np.float32)
        found = shrinkage_of(sigma2[:200], made[:200], native[:200])
        trial = backfill(sigma2[:200], made[:200], native[:200], None)
        kept = replace(found, factors=(1.0,) * len(found.factors))
        others = [replace(kept, factors=tuple(np.linspace(1, least, len(kept.factors)))) for least in (0.99, 0.9, 0.8)]
        best.append(max(trial.found(one).mean() for one in others) > trial.found(kept).mean())
        taken.append(found.exponent > 0)
    assert sum(best) >= 3
    assert sum(taken) <= 1


@pytest.mark.full
def test_the_native_shares_that_are_named_decide(doubted):
    """At level 0 transformed vectors stand back behind native ones: without any of these it is level 1."""
    sigma2, transformed, native, labels = doubted
    found = {share: shrinkage_of(sigma2, transformed, native, labels, (share,)) for share in (0.0, 0.05, 0.5, 0.75)}
    assert found[0.0].level == 1.0
    assert len(set(found.values())) > 1
    for share, chosen in found.items():
        trial = backfill(sigma2, transformed, native, labels, (share,))
        assert all(trial.found(chosen).mean() >= trial.found(other).mean() for other in found.values())


@pytest.mark.full
def test_doubts_that_say_nothing_leave_cosines_nearly_as_they_are(doubted):
    _, transformed, native, labels = doubted
    random = np.random.default_rng(1).uniform(0.5, 2, ROWS).astype(np.float32)
    found = shrinkage_of(random, transformed, native, labels)
    assert found is not None
    assert np.ptp(found.at(random)) < 0.1


def test_nothing_is_said_of_few_rows_or_of_vectors_that_point_away(doubted):
    sigma2, transformed, native, labels = doubted
    assert shrinkage_of(sigma2[:39], transformed[:39], native[:39], labels[:39]) is None
    assert shrinkage_of(sigma2, -transformed, native, labels) is None
    assert shrinkage_of(sigma2[:40], transformed[:40], native[:40], labels[:40]) is not None


@pytest.mark.full
@pytest.mark.parametrize(
    "labels", [np.zeros(ROWS, int), np.arange(ROWS), np.array([f"it's {n % 7}" for n in range(ROWS)])]
)
def test_labels_of_any_kind_will_do(doubted, labels):
    sigma2, transformed, native, _ = doubted
    found = shrinkage_of(sigma2, transformed, native, labels)
    assert found is not None
    assert found.exponent in (0.0, *EXPONENTS)
    assert found.level in LEVELS


def test_sigma2_outside_what_was_seen_takes_the_nearest_factor():
    shrinkage = Shrinkage((0.0, 1.0), (1.2, 0.8), 1.0)
    found = shrinkage.at(np.array([0.0, 1e-30, 1.0, np.e, 1e30, np.inf, np.nan], np.float32))
    np.testing.assert_allclose(found, [1.2, 1.2, 1.2, 0.8, 0.8, 0.8, 1.0], rtol=1e-6)
    assert Shrinkage.of({"h": {FIGURE: shrinkage.figure()}}) == shrinkage
    assert Shrinkage.of({}) is None
    assert Shrinkage.of({"h": {"rows": 4.0}}) is None


@pytest.mark.full
def test_a_transform_with_sigma2_records_it_where_angles_rank():
    _, transformed, native, labels = doubted_of(2 * ROWS)  # a tenth is held out, which must be enough to measure
    small = {"epochs": 2, "branch_width": 8, "mixer_width": 8}
    pairs = Pairs(transformed, native, labels=labels)
    made = trainers.FastFill(batch_size=128, scale=16.0, **small).fit(pairs)
    assert Shrinkage.of(made.manifest.figures) is not None
    assert Shrinkage.of(trainers.FCT(**small).fit(pairs).manifest.figures) is None
    fast = trainers.FastFill(batch_size=128, loss="l2", **small)
    bare = Pairs(transformed, 3 * native, labels=labels)
    assert Shrinkage.of(fast.fit(bare).manifest.figures) is not None  # they may be searched by cosine
    longer = replace(bare, target_version=EmbeddingVersion("v2", dim=16, metric="l2"))
    assert Shrinkage.of(fast.fit(longer).manifest.figures) is None
    unmeasured = trainers.FastFill(batch_size=128, scale=16.0, **small | {"holdout": 0})
    assert Shrinkage.of(unmeasured.fit(pairs).manifest.figures) is None


@pytest.mark.full
@pytest.mark.parametrize("labelled", [True, False])
def test_no_row_has_a_part_in_its_own_factor(doubted, labelled):
    """Another target of a row changes what the other half's rows are multiplied by, and nothing of its own half's."""
    order = np.random.default_rng(1).permutation(ROWS)
    sigma2, transformed, native, labels = (values[order] for values in doubted)
    labels = labels if labelled else None
    found = cross_fitted_factors(sigma2, transformed, native, labels)
    moved = native.copy()
    moved[::2] = np.roll(native[::2], 1, axis=0)
    again = cross_fitted_factors(sigma2, transformed, moved, labels)
    assert np.array_equal(found[::2], again[::2])
    assert not np.allclose(found[1::2], again[1::2])
    for half, other in ((slice(None, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(None, None, 2))):
        alone = shrinkage_of(
            sigma2[other], transformed[other], native[other], None if labels is None else labels[other]
        )
        np.testing.assert_allclose(found[half], alone.at(sigma2[half]))


@pytest.mark.full
def test_nothing_is_said_where_a_half_is_too_small(doubted):
    assert cross_fitted_factors(*(values[:79] for values in doubted)) is None
    assert cross_fitted_factors(*(values[:80] for values in doubted)).shape == (80,)
    sigma2, transformed, native, labels = doubted
    assert cross_fitted_factors(sigma2, -transformed, native, labels) is None
