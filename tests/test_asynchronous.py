"""Async verbs: the sync ones in a thread. Same results, same errors; the event loop goes on; a cancellation is safe."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import doctest
import inspect
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from tiers import few

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api" / "gallery.md"
VERBS = {
    name: verb
    for name, verb in inspect.getmembers_static(cs.Gallery)
    if inspect.isfunction(verb) and not name.startswith("_")
}
NEVER = 60.0  # seconds after which a test fails instead of hanging


class Awaiting(ast.NodeTransformer):
    """Turns calls of a verb on a gallery into calls of its async form that are run to their end."""

    def __init__(self, verb):
        self.verb, self.changed = verb, 0

    def visit_Call(self, node):
        self.generic_visit(node)
        called = node.func
        if not isinstance(called, ast.Attribute) or called.attr != self.verb or not isinstance(called.value, ast.Name):
            return node
        if called.value.id not in ("gallery", "sampled", "sided"):
            return node
        called.value = ast.Attribute(called.value, "aio")
        self.changed += 1
        return ast.Call(ast.Attribute(ast.Name("asyncio"), "run"), [node], [])


@pytest.fixture(scope="module")
def beginning(tmp_path_factory):
    """What the examples of a gallery begin with: the folder of its table, and the names that they use."""
    folder = tmp_path_factory.mktemp("examples")
    text = "".join(re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL))
    with contextlib.chdir(folder):
        session = doctest.DocTestParser().get_doctest(text, {"asyncio": asyncio}, "beginning", None, 0)
        doctest.DocTestRunner().run(session, clear_globs=False)
    return folder, session.globs


@pytest.mark.parametrize("name", few(6, VERBS))
def test_the_examples_of_a_verb_hold_for_its_async_form(name, beginning, tmp_path, monkeypatch):
    folder, names = beginning
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    gallery = cs.Gallery.open("letters.lance", encoders={"v2": names["v2"].encoder})
    session = doctest.DocTestParser().get_doctest(
        inspect.getdoc(VERBS[name]), {**names, "gallery": gallery}, name, None, 0
    )
    awaiting = Awaiting(name)
    for example in session.examples:
        tree = awaiting.visit(ast.parse(example.source))
        example.source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(session)
    assert runner.failures == 0
    assert awaiting.changed


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("get", {"ids": ["nobody"]}),
        ("search", {"query": [0.0]}),
        ("search", {"query": [0.0] * 4, "k": "three"}),
        ("upgrade", {"target": "v9"}),
        ("upgrade", {"target": "v2", "should_stop": 3}),
        ("cutover", {"target": "v2"}),
        ("add", {"data": {"id": ["a"], "vector": [[0.0] * 4]}}),
    ],
)
def test_errors_are_those_of_the_verb(upgradable, verb, arguments):
    with pytest.raises(cs.CompatStoreError) as said:
        getattr(upgradable, verb)(**arguments)
    with pytest.raises(type(said.value)) as awaited:
        asyncio.run(getattr(upgradable.aio, verb)(**arguments))
    assert str(awaited.value) == str(said.value)
    assert awaited.value.to_dict() == said.value.to_dict()


class Slow:
    """A model that waits, for each batch, until somebody lets it go on; it says when it has begun."""

    def __init__(self, dim):
        self.entered, self.go, self.batches, self.dim = threading.Event(), threading.Event(), 0, dim

    def __call__(self, sources):
        self.batches += 1
        self.entered.set()
        assert self.go.wait(NEVER)
        return np.ones((len(sources), self.dim), np.float32) * self.batches

    def version(self, name):
        encoder = cs.encoders.Function(self, self.dim, fingerprint=f"slow-{name}")
        return cs.EmbeddingVersion(name, dim=self.dim, metric="l2", encoder=encoder)

    async def has_begun(self):
        """Wait in the loop, which must be free for that."""
        while not self.entered.is_set():
            await asyncio.sleep(0.001)


@pytest.fixture
def slow():
    model = Slow(6)
    yield model
    model.go.set()


@pytest.fixture
def texts(tmp_path, slow):
    """An empty gallery whose only version is embedded by the slow model."""
    return cs.Gallery.create(str(tmp_path / "texts.lance"), slow.version("v1"))


def with_threads(count, run):
    """Run a coroutine in a loop whose default executor has some threads."""

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(count))
        return await run()

    return asyncio.run(main())


def test_the_loop_goes_on_while_a_verb_works(texts, slow):
    async def run():
        adding = asyncio.create_task(texts.aio.add({"id": ["a"], "source": ["red"]}))
        await slow.has_begun()  # were the loop blocked, nobody would let the model go on
        assert not adding.done()
        slow.go.set()
        assert (await adding).rows == 1
        return (await texts.aio.get("a", ["source"]))["source"].to_pylist()

    assert asyncio.run(run()) == ["red"]


@pytest.mark.full
def test_an_upgrade_takes_no_thread_of_the_searches(gallery, slow):
    """With one thread for all other verbs, searches are answered while an upgrade waits for its model."""

    async def run():
        await gallery.aio.register(slow.version("v2"))
        upgrading = asyncio.create_task(gallery.aio.upgrade("v2", backfill=1.0, learn=None))
        await slow.has_begun()
        vectors = gallery.vectors(list("abcdefghij"))
        answers = await asyncio.gather(*(gallery.aio.search(vector, k=1) for vector in np.repeat(vectors, 10, 0)))
        assert not upgrading.done()
        slow.go.set()
        assert (await upgrading).backfilled == 10
        return [answer["id"][0].as_py() for answer in answers]

    assert with_threads(1, run) == [letter for letter in "abcdefghij" for _ in range(10)]


def test_what_is_cancelled_before_a_thread_is_free_does_not_happen(texts, slow):
    async def run():
        first = asyncio.create_task(texts.aio.add({"id": ["a"], "source": ["red"]}))
        await slow.has_begun()
        second = asyncio.create_task(texts.aio.add({"id": ["b"], "source": ["green"]}))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        slow.go.set()
        await first

    with_threads(1, run)
    assert texts.scan([texts.columns.id], native=[]).to_arrow()[texts.columns.id].to_pylist() == ["a"]


def test_a_write_that_has_begun_is_made_as_a_whole_though_its_await_is_cancelled(texts, slow):
    async def run():
        adding = asyncio.create_task(texts.aio.add({"id": ["a", "b"], "source": ["red", "green"]}))
        await slow.has_begun()
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        slow.go.set()

    asyncio.run(run())  # waits for the threads of the loop
    assert texts.scan([texts.columns.id], native=["v1"]).to_arrow()[texts.columns.id].to_pylist() == ["a", "b"]
    assert texts.maintenance.verify().clean


@pytest.mark.full
def test_a_cancelled_upgrade_has_stopped_when_its_await_ends(gallery, slow):
    gallery.register(slow.version("v2"))

    async def run():
        upgrading = asyncio.create_task(
            gallery.aio.upgrade("v2", backfill=1.0, learn=None, run=cs.RunSettings(batch_rows=1))
        )
        await slow.has_begun()
        upgrading.cancel()
        await asyncio.sleep(0)
        slow.go.set()
        with pytest.raises(asyncio.CancelledError):
            await upgrading
        native = gallery.status().versions[1].native
        return native, await gallery.aio.upgrade("v2", backfill=1.0, learn=None)

    native, report = asyncio.run(run())
    assert native < 10
    assert (report.state, report.backfilled, report.missing) == ("ready", 10 - native, 0)


def test_a_second_cancellation_does_not_wait(upgradable):
    asked, go_on = threading.Event(), threading.Event()

    def should_stop():
        asked.set()
        return go_on.wait(NEVER)

    async def run():
        upgrading = asyncio.create_task(upgradable.aio.upgrade("v2", should_stop=should_stop))
        while not asked.is_set():
            await asyncio.sleep(0.001)
        upgrading.cancel()
        done, _ = await asyncio.wait([upgrading], timeout=0.05)
        assert not done, "the thread has not stopped"
        upgrading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upgrading
        assert not go_on.is_set()
        go_on.set()

    asyncio.run(run())


@pytest.mark.full
def test_the_callers_own_stop_and_progress_count(upgradable):
    seen = []
    with pytest.raises(cs.errors.Interrupted):
        asyncio.run(upgradable.aio.upgrade("v2", progress=seen.append, should_stop=lambda: True))
    assert asyncio.run(upgradable.aio.upgrade("v2", progress=seen.append)).state == "ready"
    assert seen


@pytest.mark.full
@pytest.mark.parametrize("verb", ["search", "upgrade"])
def test_context_variables_are_those_of_the_caller(gallery, verb):
    request = contextvars.ContextVar("request", default="nobody's")
    seen = []

    def embed(sources):
        seen.append(request.get())
        return np.ones((len(sources), 6), np.float32)

    encoder = cs.encoders.Function(embed, 6, fingerprint="sees")
    gallery.register(cs.EmbeddingVersion("v2", dim=6, metric="l2", encoder=encoder))

    async def run():
        request.set("mine")
        await gallery.aio.upgrade("v2", backfill=1.0, learn=None)
        seen.clear()
        await gallery.aio.search("a.jpg", version="v2")

    asyncio.run(run())
    assert seen == ["mine"]
