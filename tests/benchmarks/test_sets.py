"""Sets of benchmarks: glosses and their queries, glyphs, files of embeddings, and draws of them."""

from __future__ import annotations

import shlex
import sys

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks.sets import photographs, texts
from benchmarks.sets.embedded import MIDDLE, SOURCE, TARGET, EmbeddedSet, QuerySet, digits, draw
from benchmarks.sets.glyphs import by_networks, plain
from benchmarks.sets.texts import Glosses, queries_of_kinds, queries_of_nouns, read_glosses
from compatstore.trainers import Images, Independent


def test_a_noun_has_the_glosses_of_all_its_synsets():
    glosses = Glosses(texts=["a", "b", "c"], labels=np.zeros(3, np.int64), nouns=["lion", "corgi", "lion"])
    nouns, queries, items = queries_of_nouns(glosses)
    assert (nouns, queries.tolist(), items.tolist()) == (["corgi", "lion"], [1, 0, 1], [0, 1, 2])


LICENCE = "  1 This software and database is provided | as is  \n"
NOUNS = """\
00000001 03 n 01 entity 0 000 | all that is
00000002 05 n 02 feline 0 felid 0 002 @ 00000001 n 0000 ~ 00000003 n 0000 | an agile mammal; "felines see at night"
00000003 05 n 01 big_cat 0 001 @ 00000002 n 0000 | a large feline
00000004 05 n 01 lion 0 002 @ 00000003 n 0000 @ 00000001 n 0000 | a large gregarious feline
00000005 05 n 01 cat 0 001 @ 00000002 n 0000 | a small feline
00000006 05 n 01 Leo 0 001 @i 00000004 n 0000 | a lion of that name
"""


@pytest.fixture
def nouns(tmp_path):
    path = tmp_path / "data.noun"
    path.write_text(LICENCE + NOUNS, encoding="latin-1")
    return path


def test_a_gloss_is_read_with_its_class_and_all_kinds_above_it(nouns):
    glosses = read_glosses(nouns, fewest=1)
    assert glosses.texts == ["an agile mammal", "a large feline", "a large gregarious feline", "a small feline"]
    assert glosses.nouns == ["feline", "big cat", "lion", "cat"]
    assert glosses.labels.tolist() == [0, 1, 2, 1]
    assert sorted(glosses.kinds[2]) == ["00000001", "00000002", "00000003", "00000004"]
    assert read_glosses(nouns, fewest=2).nouns == ["big cat", "cat"]


def test_a_kind_asks_by_its_nouns_for_its_own_gloss_and_all_below(nouns):
    glosses = read_glosses(nouns, fewest=1)
    kinds, queries, items = queries_of_kinds(glosses, fewest=2, most=4)
    assert kinds == ["entity", "feline, felid", "big cat"]
    found = [items[queries == row].tolist() for row in range(3)]
    assert found == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 2]]
    assert queries_of_kinds(glosses, fewest=2, most=3)[0] == ["big cat"]
    assert queries_of_kinds(glosses, fewest=9, most=9)[0] == []


@pytest.fixture
def glyphs(tmp_path):
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(4), 50)
    pixels = rng.integers(0, 255, (4, 32, 32))[labels] + rng.integers(-60, 60, (200, 32, 32))
    path = tmp_path / "glyphs.npz"
    np.savez(path, x=pixels.clip(0, 255).astype(np.uint8), char=labels, font=np.tile(np.arange(50), 4))
    return path


def test_glyphs_are_embedded_by_models_that_have_not_seen_what_is_searched(glyphs, tmp_path):
    for made in (by_networks(glyphs, fewest=20, epochs=2), plain(glyphs, "Characters", fewest=4)):
        made.save(tmp_path / "set.npz")
        read = EmbeddedSet.load(tmp_path / "set.npz")
        assert (read.name, int(read.fresh.sum())) == (made.name, 40)
        assert read.vectors.keys() == made.vectors.keys()
        assert all(np.array_equal(read.vectors[name], made.vectors[name]) for name in made.vectors)
        trial = draw(read, 0, pairs=100, gallery=20, queries=5)
        assert not read.fresh[trial.pairs].any()
        assert read.fresh[trial.gallery].all()


def test_gallery_and_queries_are_of_other_classes_than_the_pairs_if_unseen():
    data = digits()
    trial = draw(data, 3, unseen=True, pairs=100, gallery=80, queries=20)
    assert not set(data.labels[trial.pairs]) & set(data.labels[[*trial.gallery, *trial.queries]])
    assert not set(trial.gallery) & set(trial.queries)
    assert {SOURCE, MIDDLE, TARGET} == data.vectors.keys()


def test_queries_survive_their_file(tmp_path):
    made = QuerySet(name="kinds", vectors={SOURCE: np.ones((2, 3))}, queries=np.array([0, 1]), items=np.array([4, 5]))
    made.save(tmp_path / "queries.npz")
    read = QuerySet.load(tmp_path / "queries.npz")
    assert (read.name, read.queries.tolist(), read.items.tolist()) == ("kinds", [0, 1], [4, 5])


@pytest.mark.full
def test_photographs_are_embedded_by_the_encoders_of_a_command(tmp_path, monkeypatch):
    data, folder = load_digits(), tmp_path / "digits"
    for row in range(60):
        place = folder / str(data.target[row])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((data.images[row] * 15).astype(np.uint8)).save(place / f"{row}.png")
    few = Images((data.images[:60] * 15).astype(np.uint8), data.target[:60])
    Independent(dim=8, width=4, epochs=2).fit(few).encoder.save(tmp_path / "network")
    start(photographs, f"--images {folder} --out {tmp_path}/set.npz --name Digits --leave-out 9 --values 4 "
          f"--source network:{tmp_path}/network --target network:{tmp_path}/network", monkeypatch)  # fmt: skip
    made = EmbeddedSet.load(tmp_path / "set.npz")
    assert made.vectors[TARGET].shape == (sum(data.target[:60] != 9), 4)
    np.testing.assert_allclose(np.linalg.norm(made.vectors[TARGET], axis=1), 1, rtol=1e-5)


def test_glosses_are_embedded_by_the_words_of_a_command(nouns, tmp_path, monkeypatch):
    models = "--source words@16 --target words@64 --fewest 1"
    start(texts, f"--nouns {nouns} --out {tmp_path}/set.npz --asked {tmp_path}/nouns.npz {models}", monkeypatch)
    made = EmbeddedSet.load(tmp_path / "set.npz")
    assert [made.vectors[name].shape for name in (SOURCE, TARGET)] == [(4, 16), (4, 64)]
    assert len(QuerySet.load(tmp_path / "nouns.npz").items) == 4


def start(module, arguments, monkeypatch):
    """Run the command of a module."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *shlex.split(arguments)])
    module.main()
