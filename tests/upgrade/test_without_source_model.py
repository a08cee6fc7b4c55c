"""Upgrades of a gallery whose own model nobody has: judged and served by what can be asked, and a model given later."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore.cli.app import app
from compatstore.errors import CompatStoreWarning, Incompatible
from compatstore.storage.registry import edit

WORDS = [f"w{number}" for number in range(40)]
TEXTS = [" ".join(np.random.default_rng(number).choice(WORDS, 4)) for number in range(240)]


def model(seed, dim):
    table = {word: np.random.default_rng([seed, n]).normal(size=dim) for n, word in enumerate(WORDS)}

    def embed(texts):
        return np.array([sum(table[word] for word in text.split()) for text in texts], np.float32)

    return cs.encoders.Function(embed, dim, fingerprint=f"{seed}")


OLD, NEW = model(1, 16), model(2, 24)
WITHOUT = cs.EmbeddingVersion("v1", dim=16, metric="cosine")


def upgraded(path, version=WITHOUT):
    gallery = cs.Gallery.create(path, version)
    items = {"id": [f"{n}" for n in range(240)], "source": TEXTS, "vector": OLD.encode(TEXTS)}
    gallery.add(items)
    gallery.register(cs.EmbeddingVersion("v2", dim=24, metric="cosine", encoder=NEW))
    gallery.upgrade("v2", backfill=0.4)
    return gallery


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("without") / "g.lance"
    upgraded(str(path))
    return path


@pytest.fixture
def path(original, tmp_path):
    return str(shutil.copytree(original, tmp_path / "g.lance"))


def opened(path, **encoders):
    return cs.Gallery.open(path, encoders={"v2": NEW, **encoders})


@pytest.mark.full
def test_it_is_judged_by_what_can_be_asked(path):
    gallery = opened(path)
    run = gallery.status().upgrades[0]
    assert run.serving == "source"
    assert run.weight in (0.0, 1.0)
    assert gallery.cutover("v2").serving == "v2 alone"


@pytest.mark.full
def test_a_search_that_both_should_answer_says_that_one_does(path):
    gallery = opened(path)
    gallery.evaluate("v2", weight=0.5, sample=100)
    gallery.cutover("v2")
    with pytest.warns(CompatStoreWarning, match="v1 has no encoder here: this search is answered by v2 alone"):
        gallery.search("w1 w2", k=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = opened(path, v1=OLD).explain("w1 w2")
        assert fused.merge == "fused"
        gallery.search({"v1": OLD.encode(["w1 w2"])[0], "v2": NEW.encode(["w1 w2"])[0]}, k=1)


@pytest.mark.full
def test_a_model_is_given_later_and_known_by_its_vectors(path):
    gallery = opened(path)
    for version in ({"v1": model(3, 16)}, {"v1": model(3, 15)}):
        with pytest.raises((Incompatible, cs.errors.InvalidInput)):
            opened(path, **version)
    with pytest.raises(Incompatible, match="16 of 16 items"):
        gallery.register(cs.EmbeddingVersion("v1", dim=16, encoder=model(3, 16)))
    gallery.register(cs.EmbeddingVersion("v1", dim=16, metric="cosine", encoder=OLD))
    gallery.evaluate("v2", weight=0.5, sample=100)
    assert gallery.explain("w1 w2").merge == "fused"
    assert gallery.maintenance.verify().clean
    with pytest.raises(cs.errors.AlreadyExists):
        gallery.register(cs.EmbeddingVersion("v2", dim=24, encoder=NEW))


@pytest.mark.full
def test_the_shell_takes_it_too(path, tmp_path):
    files = {}
    for name, encoder in (("v1", OLD), ("v2", NEW)):
        files[name] = tmp_path / f"{name}.npz"
        np.savez(files[name], id=np.array([f"{n}" for n in range(240)]), vector=encoder.encode(TEXTS))
    said = CliRunner().invoke(app, ["register", path, "v1", "--encoder", f"precomputed:{files['v1']}"])
    assert said.exit_code == 0, said.output
    assert "precomputed" in said.stdout
    wrong = CliRunner().invoke(app, ["search", path, "--encoder", "openai:v1", "--vector", "1"])
    assert wrong.exit_code == 2
    assert "VERSION=ENCODER" in wrong.output


@pytest.mark.full
def test_an_encoder_whose_code_is_not_trusted_ends_no_upgrade_that_is_done(path):
    store = cs.Gallery.open(path)._catalog.store
    edit(
        store,
        lambda state: state.with_version(replace(state.record("v2"), encoder="python:no_such_module:ENCODER")),
    )
    gallery = cs.Gallery.open(path)
    assert not gallery._catalog.can_ask_both("v1", "v2")
    assert gallery.upgrade("v2").state == "ready"
