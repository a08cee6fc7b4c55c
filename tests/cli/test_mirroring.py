"""`mirror` and `sync`: what they print, and a watch that a signal ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import faiss
import numpy as np
import pytest

import compatstore as cs


@pytest.fixture
def app(tmp_path, monkeypatch):
    """An index of three vectors; a function that adds one."""
    monkeypatch.chdir(tmp_path)
    index = faiss.IndexFlatL2(2)

    def add(*vectors):
        index.add(np.array(vectors, np.float32))
        faiss.write_index(index, "notes.faiss")

    add((0, 1), (1, 0), (1, 1))
    return add


def test_a_check_describes_and_writes_nothing(app, run, tmp_path):
    shown = run("mirror", "faiss:notes.faiss", "notes.lance", "--check")
    assert shown.code == 0
    first, *_ = shown.out.splitlines()
    assert first == "faiss:notes.faiss: 3 rows, 2 values, l2, ids int64"
    assert "new vectors: a file beside the app's; cutover: file in the store" in shown.out
    found = run("mirror", "faiss:notes.faiss", "notes.lance", "--check", "--json").json
    assert (found["rows"], found["dim"], found["beside"], found["is_conditional"]) == (3, 2, "file", False)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.faiss"}


def test_results_as_text_and_as_json(app, run):
    mirrored = run("mirror", "faiss:notes.faiss", "notes.lance", "--version", "old")
    assert mirrored.code == 0
    assert mirrored.out.splitlines()[0].endswith("notes.lance: 3 items, old is active")
    assert "mirrors faiss:notes.faiss: 3 rows, the app reads old" in mirrored.out
    app((2, 2))
    done = run("sync", "notes.lance", "--json").json
    assert (done["store"], done["added"], done["changed"], done["deleted"]) == ("faiss:notes.faiss", 1, 0, 0)
    assert "0 rows added, 0 changed, 0 deleted; 0 vectors written" in run("sync", "notes.lance").out
    assert run("status", "notes.lance", "--json").json["store"]["rows"] == 4
    assert run("verify", "notes.lance").code == 0


def test_a_sync_without_a_store_names_the_command_for_a_new_gallery(app, run):
    assert run("init", "plain.lance", "--version", "v1", "--dim", "2").code == 0
    refused = run("sync", "plain.lance")
    assert refused.code == 7
    assert refused.err.rstrip().endswith("Mirror a store: compatstore mirror STORE NEW_GALLERY")


def test_a_vector_that_is_not_finite_is_left_out_and_named(app, run):
    app((np.nan, 1), (np.inf, 0))
    assert run("mirror", "faiss:notes.faiss", "notes.lance").code == 0
    gallery = cs.Gallery.open("notes.lance")
    assert len(gallery) == 5
    assert gallery.status().missing == 2
    assert len(gallery.search([1.0, 1.0], k=9)) == 3


@pytest.mark.full
def test_a_watch_follows_until_a_signal_ends_it(app, run):
    assert run("mirror", "faiss:notes.faiss", "notes.lance").code == 0
    words = [sys.executable, "-m", "compatstore", "sync", "notes.lance", "--watch", "0.2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        app((2, 2))
        until = time.monotonic() + 120
        while len(cs.Gallery.open("notes.lance")) < 4 and time.monotonic() < until:
            time.sleep(0.05)
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=120)
    assert len(cs.Gallery.open("notes.lance")) == 4
    assert watch.returncode == 0, err
    assert "faiss:notes.faiss: " in out
