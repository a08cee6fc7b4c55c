"""Training by several processes, as on several GPUs: here two, on the CPU."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compatstore import trainers
from compatstore.encoders import NetworkEncoder

pytestmark = pytest.mark.full


@functools.cache
def images() -> trainers.Images:
    return trainers.Images(np.random.default_rng(0).integers(0, 255, (90, 8, 8), np.uint8), np.arange(90) % 3)


def train(folder: Path, rank: str) -> None:
    source = trainers.Independent(dim=4, width=2, epochs=1, warmup_epochs=0, batch_size=8).fit(images())
    method, path = trainers.BCT(dim=4, width=2, epochs=2, batch_size=8), folder / "training.safetensors"
    for name in ("whole", "resumed"):
        model = method.fit(images(), source, checkpoint=path)
        model.encoder.save(folder / f"{name}-{rank}.safetensors")


def test_all_processes_end_with_one_model_and_share_a_checkpoint(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "1"}
    processes = [
        subprocess.Popen([sys.executable, __file__, str(tmp_path), str(rank)],
                         env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in (0, 1)
    ]  # fmt: skip
    assert [process.wait() for process in processes] == [0, 0]
    prints = {file.name: NetworkEncoder.load(file).fingerprint for file in tmp_path.glob("*-?.safetensors")}
    assert len(prints) == 4
    assert len(set(prints.values())) == 1, prints


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2])
