"""Digests of rows: the same in float16 and float32, and of no two items alike. Every draw has a domain of its own."""

from __future__ import annotations

import numpy as np

from compatstore.digests import digest_half, seed_of
from compatstore.upgrade.backfilling.cells import random_scores

ROWS = np.random.default_rng(0).normal(size=(20_000, 24)).astype(np.float32)


def test_what_a_float16_table_holds_has_the_digests_of_what_was_written():
    stored = ROWS.astype(np.float16).astype(np.float32)
    assert (stored != ROWS).any()
    np.testing.assert_array_equal(digest_half(stored), digest_half(ROWS))


def test_other_rows_have_other_digests_and_blocks_do_not_matter():
    digests = digest_half(ROWS)
    assert len(np.unique(digests)) == len(ROWS)
    np.testing.assert_array_equal(digest_half(ROWS[17_000:17_003]), digests[17_000:17_003])
    assert digest_half(ROWS[:0]).shape == (0,)


def test_zeros_of_either_sign_and_values_beyond_float16_are_digested_without_a_warning():
    one, other = np.array([[0.0, 1e6]], np.float32), np.array([[-1e-9, 2e6]], np.float32)
    assert digest_half(one) == digest_half(other)


IDS = [f"item-{number}" for number in range(4000)]
DOMAINS = ("backfill", "learn", "estimate", "report")


def test_a_seed_depends_on_domain_and_number():
    seeds = {seed_of(domain, number) for domain in DOMAINS for number in range(50)}
    assert len(seeds) == len(DOMAINS) * 50
    assert seed_of("backfill", 3) == seed_of("backfill", 3) < 2**64


def test_what_one_draw_takes_says_nothing_of_what_another_takes():
    for ids in (IDS, np.arange(4000)):
        taken = {domain: random_scores(ids, domain, 0) > 0.8 for domain in DOMAINS}
        for one in DOMAINS:
            assert 0.18 < taken[one].mean() < 0.22
            for other in DOMAINS:
                if one != other:
                    assert 0.16 < taken[other][taken[one]].mean() < 0.24
