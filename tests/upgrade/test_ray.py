"""The engine ray: what the local engine writes, bit for bit, whichever process is killed on the way."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, deque
from pathlib import Path

import lance
import psutil
import pytest

import compatstore as cs
import in_workers
from compatstore.storage.fragments import list_fragments
from compatstore.upgrade.engines import ray_engine
from compatstore.upgrade.engines.ray_engine import RayEngine
from compatstore.upgrade.hop import HopJob
from galleries import SOURCE, artifact, items, orphans, split

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
FRAGMENTS, ITEMS, BATCH = 8, 480, 20
TARGET = cs.EmbeddingVersion("v2", dim=40, metric="cosine", encoder=in_workers.Model())
SETTINGS = {"engine": "ray", "encoders": 2, "batch_rows": BATCH}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A local Ray of two workers, whose processes see the folders that a test makes here."""
    ray = pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("seen-by-workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), str(ROOT)]))
        patch.setenv("OMP_NUM_THREADS", "1")
        for variable in (in_workers.LOG, in_workers.ENDS, in_workers.BROKEN):
            patch.setenv(variable, str(folder / variable))
        ray_engine.connect(None, num_cpus=2, object_store_memory=80_000_000)
        yield folder
        ray.shutdown()


@pytest.fixture
def seen(cluster):
    """The folder that workers look at, cleared after the test."""
    yield cluster
    for path in cluster.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "gallery.lance"
    gallery = cs.Gallery.create(str(path), SOURCE)
    gallery.add(items(0, ITEMS))
    gallery.register(TARGET)
    gallery.artifacts.link(artifact(target=TARGET))
    split(path, FRAGMENTS)
    return path


@pytest.fixture
def fresh(tmp_path, template):
    """A copy of the gallery, ready to be upgraded: fresh(name) -> its path."""
    return lambda name="gallery": shutil.copytree(template, tmp_path / f"{name}.lance")


def opened(path):
    return cs.Gallery.open(str(path), trust_code=True)


def content(path):
    """All columns of a gallery, in the order of its ids."""
    return lance.dataset(str(path)).to_table().sort_by("id")


def backfill(mode="rewrite_columns", share=0.4):
    return cs.Backfill(share=share, write_mode=mode, order="random")


def upgraded(path, mode="rewrite_columns", **settings):
    opened(path).upgrade("v2", backfill=backfill(mode), run=cs.RunSettings(**{"batch_rows": BATCH, **settings}))
    return content(path)


@pytest.fixture(scope="module")
def local(tmp_path_factory, template):
    """What the local engine writes."""
    path = shutil.copytree(template, tmp_path_factory.mktemp("local") / "gallery.lance")
    return upgraded(path)


def embedded(folder):
    """Times that each item went through a model, and the processes that held one."""
    logs = list((folder / in_workers.LOG).iterdir())
    return Counter(line for log in logs for line in log.read_text().split()), len(logs)


def test_the_content_is_that_of_the_local_engine_bit_for_bit(fresh, seen, local):
    path = fresh()
    (seen / in_workers.LOG).mkdir()
    assert upgraded(path, **SETTINGS) == local
    times, processes = embedded(seen)
    assert set(times.values()) == {1}, "nothing is embedded twice"
    assert processes == 2, "one model for each actor"
    assert opened(path).maintenance.verify().clean
    assert not orphans(path)
    before = opened(path).status().table_version
    assert upgraded(path, **SETTINGS) == local
    assert opened(path).status().table_version == before, "a finished upgrade does nothing"


def busy_workers():
    """Processes of this test's cluster that are at a job of the engine; Ray's own are called ray:: as well."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, IndexError):
            if process.cmdline()[0].startswith("ray::compatstore job"):
                found.append(process)
    return found


def test_a_killed_worker_and_a_stop_lose_nothing(fresh, cluster, local):
    path, killed, told = fresh(), [], []

    def kill(progress):
        told.append(progress.done)
        for worker in busy_workers()[: 1 - len(killed)]:
            worker.send_signal(signal.SIGKILL)
            killed.append(worker)

    with pytest.raises(cs.errors.Interrupted):
        opened(path).upgrade("v2", run=cs.RunSettings(engine="ray"), progress=kill, should_stop=lambda: any(told))
    assert killed
    assert upgraded(path) == local, "the local engine goes on"
    assert opened(path).maintenance.verify().clean
    left = {name for name in orphans(path) if not name.startswith(".tmp")}
    assert not left, "of a killed worker only the file that it was at is left, for `optimize`"


def test_a_batch_of_a_killed_actor_is_embedded_by_another_one(fresh, seen, local):
    path = fresh()
    opened(path).upgrade("v2")
    for name in (in_workers.LOG, in_workers.ENDS):
        (seen / name).mkdir()
    assert upgraded(path, "move_rows", **SETTINGS) == local
    times, processes = embedded(seen)
    assert sum(times.values()) - len(times) == BATCH, "the batch at hand, and nothing else, a second time"
    assert processes == 3
    assert opened(path).maintenance.verify().clean


def test_a_job_that_kills_each_of_its_workers_ends_with_an_error(template, cluster):
    gallery = opened(template)
    store = gallery._catalog.store
    jobs = deque([HopJob(list_fragments(store.snapshot())[0], None)])
    with RayEngine() as engine:
        made = [
            pair for part in engine.run(in_workers.always_end, store, None, jobs, lambda rows: None) for pair in part
        ]
    assert [outcome for _, outcome in made] == [None]


def test_errors_of_the_model_in_another_process_are_told_as_they_are(fresh, seen):
    path = fresh()
    opened(path).upgrade("v2")
    (seen / in_workers.BROKEN).touch()
    with pytest.raises(cs.errors.InvalidInput, match="NaN or infinite values for item-") as raised:
        upgraded(path, engine="ray")
    assert raised.value.fix.startswith("Nothing of this batch is stored")


def test_more_gpus_than_there_are_are_refused(fresh, cluster):
    path = fresh()
    opened(path).upgrade("v2")
    with pytest.raises(cs.errors.UpgradeError, match=r"64 GPUs .* a cluster with 0"):
        upgraded(path, engine="ray", num_gpus=64)


DRIVER = """
import os, signal, sys
import compatstore as cs
path, address, step, updates = sys.argv[1:]
left = int(updates)

def progress(at):
    global left
    left -= at.step == step and at.done > 0
    if left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    cs.Gallery.open(path, trust_code=True).upgrade(
        "v2",
        backfill=cs.Backfill(share=0.4, write_mode="rewrite_columns", order="random"),
        run=cs.RunSettings(engine="ray", encoders=2, batch_rows=20, address=address),
        progress=progress,
    )
"""


def test_a_killed_driver_is_resumed_by_either_engine(fresh, seen, local, tmp_path):
    import ray

    path, address = fresh(), ray.get_runtime_context().gcs_address
    (seen / in_workers.LOG).mkdir()
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    for step, updates in (("hop", 2), ("backfill", 3)):
        command = [sys.executable, str(script), str(path), address, step, str(updates)]
        assert subprocess.run(command, check=False, cwd=ROOT).returncode == -signal.SIGKILL
    assert upgraded(path) == local
    assert opened(path).maintenance.verify().clean
    times, _ = embedded(seen)
    assert sum(times.values()) - len(times) <= 4 * BATCH, "two at the encoders, one written, one waiting to be"
    assert set(times) == {row["id"] for row in content(path).to_pylist() if row["v2__origin"] == "native"}
