"""Preferences by blind comparisons: intervals that cover the truth, and what may be said by them."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore.errors import InvalidInput
from compatstore.evaluation import Preference

JUDGES = 50


def preference(wins, losses, same=0, differing=340, queries=500):
    return Preference(
        source="v1",
        target="v2",
        queries=queries,
        differing=differing,
        target_wins=wins,
        source_wins=losses,
        same=same,
    )


def judge(random, everything, answers):
    """A judge who answers some of all differing queries, drawn at random."""
    given = random.choice(everything, answers, replace=False)
    wins, losses, same = ((given == value).sum() for value in (1.0, 0.0, 0.5))
    return preference(int(wins), int(losses), int(same), differing=len(everything))


@pytest.mark.parametrize("differing", [100, 340, 5_000])
@pytest.mark.parametrize("same", [0.0, 0.4])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05, 0.3, 0.5, 0.62, 0.8, 0.97, 1.0])
def test_the_interval_covers_the_truth_for_nine_of_ten_judges(rate, same, differing):
    random = np.random.default_rng([int(1000 * rate), int(10 * same), differing])
    covered = 0
    for _ in range(JUDGES):
        decided = (random.random(differing) < rate).astype(float)
        everything = np.where(random.random(differing) < same, 0.5, decided)
        found = judge(random, everything, random.integers(40, 101)).win_rate
        covered += found.low <= everything.mean() <= found.high
    assert covered >= 0.9 * JUDGES


def test_the_rate_counts_same_as_half_and_lies_in_its_interval():
    for wins, losses, same in ((62, 38, 0), (50, 26, 24), (0, 0, 40), (1, 0, 0), (0, 1, 0), (40, 0, 0), (0, 40, 0)):
        found = preference(wins, losses, same).win_rate
        assert found.value == pytest.approx((wins + same / 2) / (wins + losses + same))
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.high - found.low > 0.03


def test_nearly_complete_answers_and_many_equal_ones_narrow_the_interval():
    def width(*counts, **numbers):
        found = preference(*counts, **numbers).win_rate
        return found.high - found.low

    assert width(60, 40, differing=100) < width(60, 40, differing=120) < 0.7 * width(60, 40, differing=5_000)
    assert width(30, 10, 60, differing=5_000) < width(60, 40, differing=5_000)
    assert 0 < width(60, 40, differing=100) < 0.05


@pytest.mark.parametrize(
    ("counts", "better"),
    [((62, 38), "v2"), ((38, 62), "v1"), ((55, 45), None), ((0, 0, 100), None), ((1, 0), None), ((3, 0), None)],
)
def test_a_version_is_better_only_if_the_interval_excludes_one_half(counts, better):
    found = preference(*counts)
    assert found.better == better
    said = "no significant preference" if better is None else f"{better} is better"
    assert str(found).endswith(f": {said}")
    assert ("is better" in str(found)) == (not found.win_rate.low <= 0.5 <= found.win_rate.high)


def test_one_query_that_differs_is_no_evidence():
    assert preference(1, 0, differing=1, queries=1).better is None


def test_the_sentence_says_rate_interval_and_population():
    assert str(preference(62, 38)) == (
        "v2 preferred in 62 % of 100 answers (95 % CI 53 to 70 %), among the 340 of 500 queries whose top 10 differ: "
        "v2 is better"
    )


def test_no_answer_is_no_preference():
    with pytest.raises(InvalidInput, match="at least one answer"):
        preference(0, 0)
