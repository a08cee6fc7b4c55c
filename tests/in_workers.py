"""What runs in the workers of a cluster in tests: a model that writes down what it embeds, and that may be killed.

Workers find this file by PYTHONPATH.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

LOG, ENDS, BROKEN = "COMPATSTORE_TEST_LOG", "COMPATSTORE_TEST_ENDS", "COMPATSTORE_TEST_BROKEN"
DIM = 40


def vector(item):
    """The vector of an id: (40,) float32 of unit length."""
    values = np.random.default_rng(int(item.removeprefix("item-"))).normal(size=DIM).astype(np.float32)
    return values / np.linalg.norm(values)


def end_once(path):
    """Kill this process, unless one was killed here before."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Model:
    """Embeds ids. The folder of the environment variable LOG gets a file for each process that has loaded it."""

    dim, fingerprint, spec, reads = DIM, "40 values of an id", "python:in_workers:Model", "id"

    def encode(self, sources):
        folder = os.environ.get(LOG)
        if folder and Path(folder).is_dir():
            with Path(folder, f"{os.getpid()}.txt").open("a") as log:
                log.writelines(f"{item}\n" for item in sources)
        if os.environ.get(ENDS) and Path(os.environ[ENDS]).is_dir():
            end_once(Path(os.environ[ENDS], "ended"))
        vectors = np.stack([vector(item) for item in sources]) if sources else np.empty((0, DIM), np.float32)
        if os.environ.get(BROKEN) and Path(os.environ[BROKEN]).exists():
            vectors[:1] = np.nan
        return vectors


def always_end(store, shared, job, advance):
    """A job that kills its worker."""
    os.kill(os.getpid(), signal.SIGKILL)
