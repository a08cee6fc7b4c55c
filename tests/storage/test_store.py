"""Threads share the handle of a table: none disturbs what another one does."""

from __future__ import annotations

import threading

import pytest


class NoLease:
    target = "v9"

    def require(self):
        """Nothing is required of whoever works here."""


def keep_doing(act, done, errors):
    while not done.is_set():
        try:
            act()
        except BaseException as error:
            errors.append(error)
            return


@pytest.mark.full
def test_threads_that_look_are_not_disturbed_by_threads_that_write(gallery, vectors):
    """Lance's handle lends itself to one thread alone while it is moved or tagged."""
    store, done, errors, tagged = gallery._catalog.store, threading.Event(), [], []

    def tag():
        name = f"tag-{threading.get_ident()}"
        store.tag(name)
        tagged.append(name in store.tags())
        store.untag(name)

    acts = [lambda: store.snapshot().count_rows(), lambda: gallery.get(["a"]), lambda: store.fenced(NoLease()), tag]
    threads = [threading.Thread(target=keep_doing, args=(act, done, errors)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            gallery.add({"id": [f"new-{number}"], "vector": vectors(1, seed=number)})
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert tagged
    assert all(tagged)
    assert len(gallery) == 22


@pytest.mark.parametrize("again", [False, True])
def test_a_tag_pins_the_latest_version_or_the_one_that_is_named(gallery, again):
    store = gallery._catalog.store
    first = store.snapshot().version
    if again:
        store.tag("pinned")
    gallery.delete(["a"])
    store.tag("pinned", first)
    assert store.tags()["pinned"] == first
    store.tag("pinned")
    assert store.tags()["pinned"] == store.snapshot().version > first
    store.untag("pinned")
    store.untag("pinned")
    assert "pinned" not in store.tags()
