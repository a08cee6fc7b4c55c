import numpy as np
import pytest
from labelled_spaces import unit

from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.errors import Incompatible, InvalidInput
from compatstore.evaluation import retrieval_metrics
from compatstore.trainers import (
    Pairs,
    Procrustes,
    QueryAdapter,
    Ridge,
)
from compatstore.versions import EmbeddingVersion

V1 = EmbeddingVersion("v1", dim=8, normalised=True)
V2 = EmbeddingVersion("v2", dim=8, normalised=True)
FORMS = {
    "Procrustes": {},
    "DiagonalScale": {},
    "Ridge": {},
    "LowRankRidge": {},
    "KernelRidge": {},
    "LowRankAffine": {"rank": 8},
    "DriftAdapter": {"epochs": 10, "learning_rate": 5e-3, "batch_size": 128, "device": "cpu"},
    "Auto": {"candidates": (Procrustes(), Ridge())},
}


def made_up(n=900, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 12, n)
    hidden = np.random.default_rng(7).normal(size=(12, 8))[labels] + 0.3 * rng.normal(size=(n, 8))
    turn = np.linalg.qr(np.random.default_rng(8).normal(size=(8, 8)))[0]
    target = unit(hidden @ turn)
    return unit(hidden + 0.1 * rng.normal(size=(n, 8))), target, labels


def pairs():
    source, target, labels = made_up()
    return Pairs(source, target, labels=labels, source_version=V1, target_version=V2)


@pytest.fixture(scope="module", params=FORMS)
def adapter(request):
    return QueryAdapter(form=getattr(trainers, request.param)(**FORMS[request.param])).fit(pairs())


def cmc(queries, gallery, query_labels, labels):
    return retrieval_metrics(queries, gallery, query_labels, labels, metric="cosine").cmc[1]


def test_target_queries_find_their_class_in_the_gallery_as_it_is(adapter):
    source, _, labels = made_up(seed=1)
    _, queries, query_labels = made_up(200, seed=2)
    found = cmc(adapter.apply(queries).vectors, source, query_labels, labels)
    assert found > 0.95
    assert cmc(queries, source, query_labels, labels) < 0.5


def test_the_direction_is_recorded_and_enforced(adapter, tmp_path):
    adapter.save(tmp_path / "q.compat")
    loaded = Artifact.load(tmp_path / "q.compat")
    manifest = loaded.manifest
    assert (loaded.kind, manifest.source.name, manifest.target.name) == ("QueryAdapter", "v1", "v2")
    assert loaded.behaviour.acts_on == "query"
    loaded.check(V1, V2)
    with pytest.raises(Incompatible, match=r"from v2 to v1.*expected.*found"):
        loaded.check(V2, V1)


def test_figures_are_of_rows_held_out(adapter):
    figures = adapter.manifest.figures["h"]
    assert figures["rows"] == 90
    assert figures["cosine_similarity"] > 0.9
    assert figures["recall_at_10"] > 0.5
    assert "Ridge" in QueryAdapter(form=Ridge()).fit(pairs()).manifest.settings["form"]


def test_dimensions_of_the_wrong_side_are_refused():
    source, target, _ = made_up(100)
    artifact = QueryAdapter().fit(Pairs(source, target[:, :5]))
    assert artifact.apply(target[:, :5]).vectors.shape == (100, 8)
    with pytest.raises(InvalidInput, match="values"):
        artifact.apply(source)
    with pytest.raises(Incompatible, match="found one from"):
        artifact.check(EmbeddingVersion("v2", dim=5), EmbeddingVersion("v1", dim=8))


def test_side_information_of_the_gallery_is_left_out():
    source, target, _ = made_up(100)
    artifact = QueryAdapter(holdout=0.0).fit(Pairs(source, target, side=target))
    assert artifact.manifest.side_source is None
    assert "rows" not in artifact.manifest.figures["h"]
    assert artifact.apply(target).vectors.shape == (100, 8)
