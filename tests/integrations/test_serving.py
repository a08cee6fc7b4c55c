"""An app goes on while its gallery is upgraded by others, and is told once; another model is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import Incompatible, InvalidInput
from compatstore.integrations.models import FrameworkModel, identity_of
from compatstore.integrations.serving import ServedGallery, serve
from toy_models import NEW, OLD, TEXTS, vector


def model(size, shift=0):
    def embed(texts):
        return [vector(text, size, shift) for text in texts]

    return FrameworkModel(f"toy of {size}, {shift}", embed, embed)


@pytest.fixture
def path(tmp_path):
    """A gallery of a few texts in v1, embedded by the old model."""
    path = str(tmp_path / "texts.lance")
    served = serve(path, [model(OLD)])
    served.now().add({"id": [f"{n}" for n in range(len(TEXTS))], "source": TEXTS})
    return path


def upgrade(path):
    """What a manager does elsewhere: register the new model, embed all by it."""
    gallery = cs.Gallery.open(path)
    gallery.register(cs.EmbeddingVersion("v2", dim=NEW, encoder=model(NEW).encoder(NEW)))
    gallery.upgrade("v2", backfill=1.0)
    return gallery


def answers(served):
    """Whether each text is found by itself."""
    gallery, version = served.now(), served.version()
    return [gallery.search(text, 1, version, columns=["source"])["source"].to_pylist() == [text] for text in TEXTS]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "compatstore.integrations"]


@pytest.mark.full
def test_an_app_with_both_models_goes_on_and_is_told_once(path, caplog):
    served = ServedGallery(path, [model(OLD), model(NEW)])
    assert all(answers(served))
    manager = upgrade(path)
    assert all(answers(served))
    assert warnings(caplog) == []
    manager.cutover("v2")
    assert all(answers(served))
    assert served.version() is None
    manager.retire("v1")
    assert all(answers(served))
    (told,) = warnings(caplog)
    assert "serves version v2 now" in told


@pytest.mark.full
def test_a_rollback_is_told_too(path, caplog):
    served = ServedGallery(path, [model(OLD), model(NEW)])
    manager = upgrade(path)
    for switch in (lambda: manager.cutover("v2"), manager.rollback):
        switch()
        assert all(answers(served))
        assert all(answers(served))
    assert [message.split("version ")[1][:2] for message in warnings(caplog)] == ["v2", "v1"]


def test_an_app_without_the_new_model_goes_on_until_the_old_version_is_retired(path, caplog):
    served = ServedGallery(path, [model(OLD)])
    manager = upgrade(path)
    manager.cutover("v2")
    assert served.version() == "v1"
    assert all(answers(served))
    (told,) = warnings(caplog)
    assert "whose model this process does not have" in told
    assert "models=[...]" in told
    manager.retire("v1")
    with pytest.raises(Incompatible, match=r"the model of v2, which is active now.*toy of 8.*models=\[\.\.\.\]"):
        served.version()


def test_an_app_that_starts_after_the_cutover(path, caplog):
    upgrade(path).cutover("v2")
    served = ServedGallery(path, [model(NEW)])
    assert served.version() is None
    assert all(answers(served))
    assert warnings(caplog) == []
    assert served.first() == "v2"


def test_another_model_is_refused_with_the_command_that_upgrades(path):
    before = cs.Gallery.open(path).status()
    for other in (model(OLD, shift=1), model(NEW)):
        with pytest.raises(Incompatible, match=r'gallery\.upgrade\("NEW_VERSION"\)'):
            ServedGallery(path, [other])
    assert cs.Gallery.open(path).status() == before
    assert ServedGallery(path, [model(OLD), model(OLD, shift=1)]).version() is None


@pytest.mark.full
def test_a_cutover_by_another_process(path, caplog):
    served = ServedGallery(path, [model(OLD), model(NEW)])
    upgrade(path)
    code = f"import compatstore as cs; cs.Gallery.open({path!r}).cutover('v2')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(answers(served))
    assert len(warnings(caplog)) == 1


MODULE = """
import numpy as np
from compatstore.integrations.models import FrameworkModel
from toy_models import NEW, vector
embed = lambda texts: [vector(text, NEW) for text in texts]
encoder = FrameworkModel("toy of 24, 0", embed, embed).measured()
"""


@pytest.mark.full
def test_the_command_that_the_refusal_names(path, tmp_path, monkeypatch):
    (tmp_path / "app_models.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[1]}")
    command = ["compatstore", "upgrade", path, "v2", "--encoder", "python:app_models:encoder", "--trust-code"]
    program = "import sys; from compatstore.cli.app import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program, *command[1:], "--backfill", "1.0"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    cs.Gallery.open(path).cutover("v2")
    served = ServedGallery(path, [model(NEW)])
    assert all(answers(served))


def test_a_model_that_is_used_outside(tmp_path):
    path = str(tmp_path / "outside.lance")
    with pytest.raises(InvalidInput, match="the length of its vectors"):
        serve(path, [FrameworkModel("api@1")])
    served = serve(path, [FrameworkModel("api@1")], dim=4)
    served.now().add({"id": ["a"], "vector": np.ones((1, 4), np.float32)})
    assert served.first() == "v1"
    with pytest.raises(Incompatible, match="the model of v1"):
        served.version()
    with pytest.raises(Incompatible, match=r"model|fingerprint"):
        serve(path, [FrameworkModel("api@2")])


class Model:
    def __init__(self, **settings):
        self.__dict__.update(settings)


def test_an_identity_names_what_decides_the_vectors_and_no_secret():
    made = {"model": "small", "dimensions": 8, "api_key": "s3cret", "token": "s3cret", "_inner": "s3cret"}
    made |= {"base_url": "https://user:s3cret@host", "timeout": 3, "kwargs": {"normalize": True, "api_key": "s3cret"}}
    named = identity_of(Model(**made), "toys")
    assert "s3cret" not in named
    assert named.startswith("toys: Model(dimensions=8, kwargs={'normalize': True}, model=small) of ")
    assert identity_of(Model(**made | {"timeout": 4, "api_key": "other"}), "toys") == named
    assert identity_of(Model(**made | {"model": "large"}), "toys") != named
