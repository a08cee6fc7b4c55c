"""Every draw has a domain of its own."""

from __future__ import annotations

import numpy as np

from compatstore.seeds import seed_of
from compatstore.upgrade.ordering.policies import random_scores

IDS = [f"item-{number}" for number in range(4000)]
DOMAINS = ("backfill", "refit", "estimate", "report")


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
