"""Mirrored galleries outlive kills beside an app that writes: the short form of `python -m stores.lives`.

COMPATSTORE_STORE_LIVES is the number of lives of each engine, COMPATSTORE_STORE_SEED the seed of the first.
"""

from __future__ import annotations

import os

import pytest
from stores.conftest import ENGINES
from stores.lives.__main__ import live

pytestmark = pytest.mark.slow  # minutes each, and what a life does is chance

LIVES, SEED = (int(os.environ.get(f"COMPATSTORE_STORE_{name}", value)) for name, value in (("LIVES", 2), ("SEED", 0)))


@pytest.mark.parametrize("seed", range(SEED, SEED + LIVES))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_mirror_outlives_a_random_life(engine, seed):
    try:
        lived = live(engine, seed, sessions=3, quiet=2)
    except ImportError as error:
        pytest.skip(f"{error}")
    assert lived.violations == []
    assert lived.checks >= 2
    assert lived.writes > 10
