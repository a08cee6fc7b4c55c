"""The graph: nearly all of the nearest, exactly as many as there are, and the memory that was said."""

from __future__ import annotations

import numpy as np
import pytest

from compatstore.in_memory import graph as graphs
from compatstore.in_memory.graph import Chosen, Graph, graph_bytes


@pytest.fixture
def walks(monkeypatch):
    """Lets the graph be walked however few vectors it holds."""
    monkeypatch.setattr(graphs, "FEW", 0)


def made(vectors, metric="l2", breadth=None):
    found = Graph(vectors.shape[1], metric, len(vectors))
    found.add(vectors)
    found.breadth = breadth or found.breadth
    return found


def test_it_returns_only_what_was_chosen(walks, vectors):
    stored = vectors(3000, 8)
    graph = made(stored, breadth=64)
    mask = np.random.default_rng(1).random(3000) < 0.5
    distances, places = graph.search(vectors(40, 8, seed=2), 10, Chosen(mask, np.arange(3000)))
    assert mask[places].all()
    exact, nearest = graph.exact().search(vectors(40, 8, seed=2), 10, Chosen(mask, np.arange(3000)))
    assert (places == nearest).mean() > 0.95
    assert np.allclose(distances[places == nearest], exact[places == nearest], rtol=1e-5)


def test_as_many_are_found_as_there_are_also_among_equal_vectors(walks):
    stored = np.repeat(np.eye(4, dtype=np.float32), 500, axis=0)
    graph = made(stored, breadth=16)
    for chosen in (None, Chosen(np.arange(2000) % 3 > 0, np.arange(2000))):
        distances, places = graph.search(np.eye(4, dtype=np.float32), 200, chosen)
        assert places.shape == (4, 200)
        assert (places >= 0).all()
        assert all(len(set(row)) == 200 for row in places.tolist())
        assert not distances.any()


def test_the_memory_is_what_was_said():
    stored = np.random.default_rng(0).normal(size=(5000, 32)).astype(np.float32)
    graph = made(stored)
    index = graph._index
    links = 4 * index.hnsw.neighbors.size() + 8 * index.hnsw.offsets.size() + 4 * index.hnsw.levels.size()
    assert graph.bytes == stored.nbytes + graph_bytes(5000)
    assert graph.bytes == pytest.approx(stored.nbytes + links, rel=0.02)
    said = graph.bytes_with(1)
    graph.add(stored[:1])
    assert graph.bytes == said > stored.nbytes * 2  # FAISS doubles what it holds


def test_the_breadth_is_the_least_that_finds_enough(walks):
    stored = np.random.default_rng(0).normal(size=(3000, 24)).astype(np.float32)
    graph = made(stored)
    graph.measure(100, 10, 0.99)
    assert graph.recall >= 0.99
    assert graph.breadth > graphs.BREADTHS[0]
    fewer = made(stored)
    fewer.measure(100, 10, 0.1)
    assert fewer.breadth == graphs.BREADTHS[0]
    assert 0 < fewer.recall < graph.recall
