"""A training that was killed and begun again, against one that was not."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from compatstore.errors import CompatStoreError, CorruptArtifact, Incompatible, StorageError
from compatstore.trainers.training import EpochProgress
from lazily import Lazy
from properties import examples

safetensors = Lazy("safetensors.torch")


@functools.cache
def images() -> trainers.Images:
    return trainers.Images(np.random.default_rng(0).integers(0, 255, (90, 8, 8), np.uint8), np.arange(90) % 3)


def killed() -> trainers.Independent:
    """The training that is killed; an encoder's fingerprint is a digest of every bit of its weights."""
    settings = {"epochs": 15, "batch_size": 8, "warmup_epochs": 2}
    return trainers.Independent(dim=4, width=4, augmentation=trainers.Augmentation(), **settings)


class Stopped(Exception):  # noqa: N818
    """Stands for whatever ends a process."""


def stop_after(epoch: int):
    def report(progress: EpochProgress) -> None:
        if progress.epoch == epoch:
            raise Stopped

    return report


@pytest.fixture(scope="module")
def whole() -> tuple[str, float]:
    model = killed().fit(images())
    return model.encoder.fingerprint, model.figures["loss"]


@pytest.mark.full
def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(tmp_path: Path, whole: tuple[str, float]) -> None:
    path, random = tmp_path / "training.safetensors", np.random.default_rng()
    for _ in range(2):
        process = subprocess.Popen([sys.executable, __file__, str(path)])
        before = path.stat().st_mtime_ns if path.exists() else 0
        while process.poll() is None and (path.stat().st_mtime_ns if path.exists() else 0) == before:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    model = killed().fit(images(), checkpoint=path)
    assert (model.encoder.fingerprint, model.figures["loss"]) == whole


@pytest.mark.full
@given(epoch=st.integers(1, 3))
@examples(3)
def test_where_it_stops_changes_nothing(tmp_path_factory: pytest.TempPathFactory, epoch: int) -> None:
    short = trainers.Independent(dim=4, width=2, epochs=4, batch_size=16)
    path = tmp_path_factory.mktemp("stopped") / "training.safetensors"
    with pytest.raises(Stopped):
        short.fit(images(), checkpoint=path, progress=stop_after(epoch))
    seen: list[int] = []
    resumed = short.fit(images(), checkpoint=path, progress=lambda progress: seen.append(progress.epoch))
    assert resumed.encoder.fingerprint == short.fit(images()).encoder.fingerprint
    assert seen == list(range(epoch + 1, 5))


def test_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    short = trainers.Independent(dim=4, width=2, epochs=2)
    path = tmp_path / "new folder" / "training.safetensors"
    first = short.fit(images(), checkpoint=path)
    seen: list[EpochProgress] = []
    again = short.fit(images(), checkpoint=path, progress=seen.append)
    assert seen == []
    assert again.encoder.fingerprint == first.encoder.fingerprint
    assert again.figures["loss"] == first.figures["loss"]


@pytest.mark.parametrize("name", ["x" * 250, "x" * 300])
def test_a_place_that_cannot_be_written_is_refused_before_the_training(tmp_path: Path, name: str) -> None:
    epochs = list[EpochProgress]()
    with pytest.raises(StorageError, match="save a training to"):
        trainers.Independent(dim=4, width=2, epochs=2).fit(images(), progress=epochs.append, checkpoint=tmp_path / name)
    assert not epochs
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are of Unix")
def test_a_disk_that_is_full_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "training.safetensors"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(at: EpochProgress) -> None:
        if at.epoch == 2:  # saved after epochs; more than this is too large for any file
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    training = trainers.Independent(dim=4, width=2, epochs=4)
    try:
        with pytest.raises(StorageError, match="make room there"):
            training.fit(images(), progress=fill, checkpoint=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    epochs = list[EpochProgress]()
    training.fit(images(), progress=epochs.append, checkpoint=path)
    assert 0 < len(epochs) < 4


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    short, path = trainers.Independent(dim=4, width=2, epochs=2), tmp_path / "training.safetensors"
    short.fit(images(), checkpoint=path)
    with pytest.raises(Incompatible, match=r"expected epochs 3; found 2.*remove the file"):
        trainers.Independent(dim=4, width=2, epochs=3).fit(images(), checkpoint=path)
    with pytest.raises(Incompatible, match="expected images"):
        short.fit(images().take(range(60)), checkpoint=path)
    trainers.Independent(dim=4, width=2, epochs=2, workers=1).fit(images(), checkpoint=path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, share: float) -> None:
    short, path = trainers.Independent(dim=4, width=2, epochs=1, warmup_epochs=0), tmp_path / "training.safetensors"
    short.fit(images(), checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CorruptArtifact, match="Remove the file"):
        short.fit(images(), checkpoint=path)
    path.write_bytes(b"no safetensors at all")
    with pytest.raises(CompatStoreError):
        short.fit(images(), checkpoint=path)


if __name__ == "__main__":
    killed().fit(images(), checkpoint=sys.argv[1])
