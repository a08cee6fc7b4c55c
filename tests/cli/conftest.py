"""Real digits in files, and a way to run the program in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shell import invoke

import compatstore as cs
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import locate
from compatstore.upgrade.leases.lease import lease_in, request_in
from digits import load_digits

ITEMS = 300
SLOW_ENCODER = """
import os, time
import numpy as np
from compatstore.encoders import Function

def held():
    try:
        with open(os.environ["SEEN"]) as seen, open(os.path.join(os.path.dirname(seen.name), "hold")) as hold:
            return len(seen.readlines()) >= int(hold.read())
    except FileNotFoundError:
        return False

def fn(ids):
    with open(os.environ["SEEN"], "a") as seen:
        seen.write("".join(f"{i}\\n" for i in ids))
    while held():
        time.sleep(0.01)
    return np.ones((len(ids), 3), np.float32)

encoder = Function(fn, 3, fingerprint="slow", reads="id", spec="python:slow_encoder:encoder")
"""


@pytest.fixture
def run():
    """Run the program; any error that it does not expect is raised."""
    return invoke


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder with v1.npz and v2.npz, two embeddings of the same digits with ids and labels."""
    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    pixels = (data.data[:ITEMS] / 16).astype(np.float32)
    projection = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    ids = np.array([f"digit-{number:04d}" for number in range(ITEMS)])
    np.savez(folder / "v1.npz", id=ids, vector=pixels, label=data.target[:ITEMS])
    np.savez(folder / "v2.npz", id=ids, vector=np.tanh(pixels @ projection / 4))
    return folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder of class folders with 12 images, of which one is broken."""
    folder = tmp_path_factory.mktemp("pictures")
    data = load_digits()
    for number in range(12):
        path = folder / f"class-{data.target[number] % 3}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((data.images[number] * 15).astype(np.uint8)).save(path)
    (folder / "class-0" / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture
def pixels(monkeypatch, tmp_path):
    """Spec of an encoder in a module of its own: 8 x 8 pixels of an image file."""
    (tmp_path / "pixel_encoder.py").write_text(
        "import numpy as np\n"
        "from compatstore.encoders import Function\n"
        "from compatstore.encoders.images import read_image\n"
        "from compatstore.errors import SourceError\n"
        "def fn(sources):\n"
        "    rows, failures = [], {}\n"
        "    for place, source in enumerate(sources):\n"
        "        try:\n"
        "            image = read_image(source, 'L').resize((8, 8))\n"
        "        except SourceError as error:\n"
        "            failures[place] = error.failures[0]\n"
        "        else:\n"
        "            rows.append(np.asarray(image, np.float32).ravel() / 255)\n"
        "    if failures:\n"
        "        raise SourceError('read images', failures)\n"
        "    return np.stack(rows)\n"
        "encoder = Function(fn, 64, fingerprint='pixels', spec='python:pixel_encoder:encoder')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "python:pixel_encoder:encoder"


@pytest.fixture
def empty(run, tmp_path):
    """A gallery without items, for vectors of 64 values."""
    path = tmp_path / "empty.lance"
    assert run("init", path, "--version", "v1", "--dim", 64, "--metric", "l2").code == 0
    return path


@pytest.fixture
def gallery(run, digits, tmp_path):
    """A gallery of all digits in v1; v2 is registered with its vectors as encoder."""
    path = tmp_path / "digits.lance"
    for words in (
        ("init", path, "--version", "v1", "--dim", 64, "--metric", "l2"),
        ("add", path, digits / "v1.npz"),
        ("register", path, "v2", "--encoder", f"precomputed:{digits / 'v2.npz'}", "--metric", "l2"),
    ):
        assert run(*words).code == 0
    return path


@pytest.fixture(scope="session")
def artifact(digits, tmp_path_factory):
    """A ridge regression from v1 to v2, trained on bare files of every second digit."""
    folder = tmp_path_factory.mktemp("artifacts")
    path = folder / "h.compat"
    for name in ("v1", "v2"):
        with np.load(digits / f"{name}.npz") as file:
            np.savez(folder / f"{name}.npz", **{key: file[key][::2] for key in file.files})
    files = ("--pairs", folder / "v1.npz", folder / "v2.npz")
    assert invoke("train", "ridge", *files, "--out", path).code == 0
    return Path(path)


@pytest.fixture
def linked(run, gallery, artifact):
    """That gallery with the artifact linked."""
    assert run("link", gallery, artifact, "--from", "v1", "--to", "v2").code == 0
    return gallery


@dataclass(frozen=True)
class Slow:
    """A gallery without vectors in v2, whose encoder can be held at work."""

    gallery: Path
    items: int

    def upgrade(self, *words):
        """Start a full backfill in a process of its own."""
        program = "from compatstore.cli.app import main; main()"
        words = ("upgrade", str(self.gallery), "v2", "--backfill", "1.0", "--trust-code", "--json", *words)
        command = [sys.executable, "-c", program, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def seen(self):
        """Ids that the encoder was given so far."""
        path = self.gallery.parent / "seen.txt"
        return path.read_text().splitlines() if path.exists() else []

    def hold(self, count):
        """From its `count`-th id on the encoder gives nothing back until it is released."""
        self._held.with_suffix(".new").write_text(str(count))
        self._held.with_suffix(".new").replace(self._held)

    def release(self):
        """Let the encoder go on."""
        self._held.unlink(missing_ok=True)

    @property
    def _held(self):
        return self.gallery.parent / "hold"

    def wait(self, process, count):
        """Wait until the encoder was given `count` ids."""
        while len(self.seen()) < count:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)

    def release_when_asked_to_stop(self):
        """Let the encoder go on as soon as the manager has heard that it shall stop."""
        table = LeaseTable(locate(str(self.gallery)))

        def beat():
            return lease_in(table.read(), "v2").beat

        def listen():
            while (lease := lease_in(table.read(), "v2")) is None or request_in(table.read(), lease) is None:
                time.sleep(0.05)
            asked = beat()
            while beat() < asked + 2:  # the first renewal that begins after the request hears it
                time.sleep(0.05)
            self.release()

        threading.Thread(target=listen, daemon=True).start()


@pytest.fixture
def slow(tmp_path, monkeypatch, run):
    """A gallery whose v2 is made by an encoder that writes down what it is given."""
    (tmp_path / "slow_encoder.py").write_text(SLOW_ENCODER)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.txt"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_encoder", raising=False)
    slow = Slow(tmp_path / "g.lance", 256 * 5)
    vectors = np.ones((slow.items, 2), np.float32)
    gallery = cs.Gallery.create(slow.gallery, cs.EmbeddingVersion("v1", dim=2))
    gallery.add({"id": [f"item-{n}" for n in range(slow.items)], "vector": vectors})
    assert run("register", slow.gallery, "v2", "--encoder", "python:slow_encoder:encoder").code == 0
    return slow


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Sixty digits of three classes, in class folders."""
    folder, data = tmp_path_factory.mktemp("photos"), load_digits()
    for number in np.flatnonzero(data.target < 3)[:60]:
        path = folder / str(data.target[number]) / f"{number:04d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((data.images[number] * 15).astype(np.uint8)).save(path)
    return folder
