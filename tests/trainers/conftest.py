"""What tests of trainers on images share."""

from __future__ import annotations

import pytest
from digit_images import halves

from compatstore import trainers


@pytest.fixture(scope="session")
def split() -> tuple[trainers.Images, trainers.Images]:
    """Handwritten digits of 8 x 8 pixels to learn from, and others."""
    return halves()
