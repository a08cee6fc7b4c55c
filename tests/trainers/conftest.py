"""What tests of trainers on images share."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore import trainers
from digits import load_digits


@pytest.fixture(scope="session")
def digits() -> trainers.Images:
    """1,797 handwritten digits of 8 x 8 pixels."""
    data = load_digits()
    return trainers.Images((data.images * 255 / 16).astype(np.uint8), data.target)
