"""Without its framework a store says what to install, and the rest of the package does not need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.full

PROGRAM = """
import sys
sys.modules["{module}"] = None
import compatstore.integrations.serving
from compatstore.errors import MissingExtra
try:
    import compatstore.integrations.{extra}
except MissingExtra as error:
    print(error)
"""


@pytest.mark.parametrize(("module", "extra"), [("langchain_core", "langchain"), ("haystack", "haystack")])
def test_a_store_without_its_framework(module, extra):
    program = PROGRAM.format(module=module, extra=extra)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f'Run: pip install "compatstore[{extra}]"' in done.stdout
