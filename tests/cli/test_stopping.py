"""Signals in the middle of an upgrade, sent to a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import compatstore as cs

ITEMS = 256 * 5  # five batches
ENCODER = """
import os, time
import numpy as np
from compatstore.encoders import Function

def fn(ids):
    with open(os.environ["SEEN"], "a") as seen:
        seen.write("".join(f"{i}\\n" for i in ids))
    time.sleep(0.25)
    return np.ones((len(ids), 3), np.float32)

encoder = Function(fn, 3, fingerprint="slow", reads="id", spec="python:slow_encoder:encoder")
"""


@pytest.fixture
def slow(tmp_path, monkeypatch, run):
    """A gallery whose v2 is made by an encoder that writes down what it is given, and takes its time."""
    (tmp_path / "slow_encoder.py").write_text(ENCODER)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.txt"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_encoder", raising=False)
    gallery = tmp_path / "g.lance"
    cs.Gallery.create(gallery, cs.EmbeddingVersion("v1", dim=2)).add(
        {"id": [f"item-{n}" for n in range(ITEMS)], "vector": np.ones((ITEMS, 2), np.float32)}
    )
    assert run("register", gallery, "v2", "--encoder", "python:slow_encoder:encoder").code == 0
    return gallery


def upgrade(gallery):
    program = "from compatstore.cli.app import main; main()"
    words = ("upgrade", str(gallery), "v2", "--backfill", "1.0", "--trust-code", "--json")
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def seen(gallery):
    path = gallery.parent / "seen.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_batch_and_the_same_command_goes_on(slow, run, number, code):
    stopped = upgrade(slow)
    while len(seen(slow)) < 256 and stopped.poll() is None:
        time.sleep(0.01)
    stopped.send_signal(number)
    out, err = stopped.communicate(timeout=60)
    assert stopped.returncode == code, err
    assert "Traceback" not in err
    assert json.loads(out)["error"] == "Interrupted"
    assert json.loads(out)["exit_code"] == code
    assert "the same command goes on" in json.loads(out)["fix"]
    done = len(seen(slow))
    assert 0 < done < ITEMS
    assert run("status", slow, "--json").json["active"] == "v1"

    resumed = upgrade(slow)
    out, err = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, err
    assert json.loads(out)["missing"] == 0
    assert len(seen(slow)) == len(set(seen(slow))) == ITEMS  # no item was embedded twice

    again = run("upgrade", slow, "v2", "--backfill", 1.0, "--trust-code", "--json")
    assert (again.json["transformed"], again.json["backfilled"]) == (0, 0)
