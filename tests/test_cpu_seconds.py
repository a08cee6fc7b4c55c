"""`--cpu-seconds` counts what a file takes, fixtures and ended child processes included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import subprocess, sys, time, pytest

BUSY = "import time\\nend = time.process_time() + 0.5\\nwhile time.process_time() < end: pass"

@pytest.fixture
def made():
    exec(BUSY)

def test_of_a_fixture(made):
    time.sleep(1)

def test_of_a_child():
    subprocess.run([sys.executable, "-c", BUSY], check=True)
"""


def test_set_up_and_children_count_and_waiting_does_not(tmp_path):
    (tmp_path / "test_busy.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "cpu_seconds", "--cpu-seconds", "-c", os.devnull, "test_busy.py"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.endswith("  test_busy.py")]
    assert 1.0 <= float(line.split()[0]) < 1.9
