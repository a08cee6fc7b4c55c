from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers import (
    DiagonalScale,
    KernelRidge,
    LowRankAffine,
    LowRankRidge,
    MeanShift,
    Pairs,
    Procrustes,
    Ridge,
)
from compatstore.trainers.pairs.closed_form import Moments
from compatstore.trainers.pairs.ridge import LeastSquares
from compatstore.versions import EmbeddingVersion
from properties import examples

pytestmark = pytest.mark.kernel

FORMS = [Procrustes(), DiagonalScale(), Ridge(), LowRankRidge(), LowRankAffine()]
sizes = st.integers(1, 9)


def vectors(n, dim, seed=0, scale=None):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)) * (rng.uniform(0.5, 3, dim) if scale is None else scale) + rng.normal(size=dim)


def rotation(dim_in, dim_out, seed=0):
    left, _, right = np.linalg.svd(
        np.random.default_rng(seed).normal(size=(max(dim_in, dim_out),) * 2), full_matrices=False
    )
    return (left @ right)[:dim_out, :dim_in]


def layer(artifact):
    return artifact.tensors["h.mixer.0.weight"], artifact.tensors["h.mixer.0.bias"]


@examples(30)
@given(dim=sizes, other=sizes, seed=st.integers(0, 100))
def test_procrustes_finds_a_rotation_and_its_scale(dim, other, seed):
    short, long = sorted((dim, other))
    source = vectors(60, short, seed)
    turn = rotation(short, long, seed)
    artifact = Procrustes(holdout=0.0).fit(Pairs(source, 2.5 * source @ turn.T + 3))
    np.testing.assert_allclose(artifact.apply(source).vectors, 2.5 * source @ turn.T + 3, atol=1e-3)
    rigid, _ = layer(Procrustes(scale=False, holdout=0.0).fit(Pairs(source, 2.5 * source @ turn.T + 3)))
    np.testing.assert_allclose(rigid, turn, atol=1e-4)


def test_procrustes_to_fewer_dimensions_equals_filling_up_with_zeros():
    source, target = vectors(200, 7), vectors(200, 4, seed=1)
    target += source[:, :4]
    filled = np.hstack([target, np.zeros((200, 3))])
    short, _ = layer(Procrustes(scale=False).fit(Pairs(source, target)))
    long, _ = layer(Procrustes(scale=False).fit(Pairs(source, filled)))
    np.testing.assert_allclose(short, long[:4], atol=1e-5)
    np.testing.assert_allclose(short @ short.T, np.eye(4), atol=1e-5)


def test_a_scale_of_each_dimension_is_found_behind_the_rotation_and_without():
    source = vectors(4000, 5, scale=1.0)
    factors = np.array([0.5, 1, 2, 3, 4])
    plain = DiagonalScale(rotate=False).fit(Pairs(source, source * factors - 1))
    np.testing.assert_allclose(layer(plain)[0], np.diag(factors), atol=1e-4)
    turned = DiagonalScale().fit(Pairs(source, (source @ rotation(5, 5).T) * factors))
    bare = Procrustes().fit(Pairs(source, (source @ rotation(5, 5).T) * factors))
    error = [artifact.manifest.figures["h"]["mean_squared_error"] for artifact in (turned, bare)]
    assert error[0] < 0.05 * error[1]


def test_mean_shift_moves_the_mean_and_nothing_else():
    source = vectors(300, 6)
    artifact = MeanShift(holdout=0.0).fit(Pairs(source, source + np.arange(6)))
    np.testing.assert_allclose(artifact.apply(source).vectors, source + np.arange(6), atol=1e-4)
    with pytest.raises(InvalidInput, match=r"one dimension.*6 and 7"):
        MeanShift().fit(Pairs(source, vectors(300, 7)))
    with pytest.raises(InvalidInput, match="one dimension"):
        DiagonalScale(rotate=False).fit(Pairs(source, vectors(300, 7)))


@examples(30)
@given(dim=sizes, other=sizes, penalty=st.sampled_from([0.0, 1e-3, 1.0]), seed=st.integers(0, 100))
def test_ridge_is_the_textbook_solution(dim, other, penalty, seed):
    source, target = vectors(50, dim, seed), vectors(50, other, seed + 1)
    weight, bias = layer(Ridge(penalties=(penalty,), holdout=0.0).fit(Pairs(source, target)))
    x, y = source.astype("f4").astype("f8"), target.astype("f4").astype("f8")
    centred = x - x.mean(axis=0)
    square = centred.T @ centred
    expected = np.linalg.solve(square + penalty * np.trace(square) / dim * np.eye(dim), centred.T @ y).T
    np.testing.assert_allclose(weight, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(bias, y.mean(axis=0) - expected @ x.mean(axis=0), rtol=1e-3, atol=1e-3)


def test_errors_on_other_rows_are_those_of_the_maps_themselves():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 9))
    pairs = [Pairs(x, x @ mix + rng.normal(size=(len(x), 9))) for x in (vectors(80, 6), vectors(40, 6, seed=2))]
    moments = Moments.of(pairs[0])
    squares = LeastSquares(moments)
    errors = squares.errors(0.1, Moments.of(pairs[1], about=moments))
    assert len(errors) == squares.full_rank == 6
    for rank in range(1, 7):
        weight = squares.weight(0.1, rank)
        assert np.linalg.matrix_rank(weight) == rank
        predicted = moments.output_mean + (pairs[1].source - moments.input_mean) @ weight.T
        assert errors[rank - 1] == pytest.approx(np.square(predicted - pairs[1].target).sum(axis=1).mean())


def test_low_rank_is_chosen_where_few_directions_are_common_and_pairs_are_few():
    rng = np.random.default_rng(0)
    source, narrow = rng.normal(size=(240, 40)), rng.normal(size=(40, 4)) @ rng.normal(size=(4, 60))
    pairs = Pairs(source, source @ narrow + 12 * rng.normal(size=(240, 60)))
    full, low = Ridge(penalties=(0.0,)).fit(pairs), LowRankRidge(penalties=(0.0,)).fit(pairs)
    assert low.manifest.figures["h"]["rank"] == 4
    figure = "mean_squared_error"
    assert low.manifest.figures["h"][figure] < 0.95 * full.manifest.figures["h"][figure]
    fixed, _ = layer(LowRankAffine(rank=3).fit(pairs))
    assert np.linalg.matrix_rank(fixed, tol=1e-3) == 3


def test_the_penalty_follows_the_noise():
    rng = np.random.default_rng(0)
    source, mix = rng.normal(size=(60, 30)), rng.normal(size=(30, 5))
    clean, noisy = (Ridge().fit(Pairs(source, source @ mix + s * rng.normal(size=(60, 5)))) for s in (0.0, 20.0))
    assert clean.manifest.figures["h"]["penalty"] == 1e-6
    assert noisy.manifest.figures["h"]["penalty"] >= 0.1


def test_many_rows_stream_through_the_moments_as_one_product_would():
    source, target = vectors(40_000, 3), vectors(40_000, 2, seed=1) + 1000
    moments = Moments.of(Pairs(source, target))
    x, y = source.astype("f4").astype("f8"), target.astype("f4").astype("f8")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    np.testing.assert_allclose(moments.inputs, x.T @ x / 40_000, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moments.cross, x.T @ y / 40_000, rtol=1e-9, atol=1e-9)
    assert moments.output_square == pytest.approx(np.square(y).sum(axis=1).mean())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_side_information_is_read_where_the_pairs_have_it(form):
    source, side = vectors(800, 5, scale=1.0), vectors(800, 3, seed=1, scale=1.0)
    target = np.hstack([source, side]) @ rotation(8, 8).T
    with_side, without = form.fit(Pairs(source, target, side=side)), form.fit(Pairs(source, target))
    error = [a.manifest.figures["h"]["mean_squared_error"] for a in (with_side, without)]
    assert error[0] < 0.1 * error[1]
    assert with_side.apply(source, side).vectors.shape == (800, 8)
    with pytest.raises(InvalidInput, match="side-information"):
        with_side.apply(source)


@pytest.mark.parametrize("name", [*(type(form).__name__ for form in FORMS), "MeanShift", "FCT"])
def test_artifacts_are_unit_where_the_target_is_survive_a_save_and_know_their_direction(name, tmp_path):
    form = getattr(trainers, name)(**({"epochs": 1, "mixer_width": 8} if name == "FCT" else {}))
    source = vectors(120, 6)
    target = vectors(120, 6, seed=1)
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    v1, v2 = EmbeddingVersion("v1", dim=6), EmbeddingVersion("v2", dim=6, normalised=True)
    artifact = form.fit(Pairs(source, target, source_version=v1, target_version=v2))
    artifact.save(tmp_path / "h.compat")
    loaded = Artifact.load(tmp_path / "h.compat")
    moved = loaded.apply(source).vectors
    np.testing.assert_array_equal(moved, artifact.apply(source).vectors)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1, atol=1e-6)
    assert (loaded.manifest.method, loaded.manifest.figures["h"]["rows"]) == (name, 12)
    assert loaded.manifest.settings["holdout"] == 0.1
    loaded.check(v1, v2)
    with pytest.raises(Incompatible, match="found one from"):
        loaded.check(v2, v1)
    with pytest.raises(InvalidInput, match="values"):
        loaded.apply(source[:, :5])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_constant_dimensions_and_few_rows_give_finite_maps(form):
    source = vectors(12, 20)
    source[:, 3:6] = 2.0
    artifact = form.fit(Pairs(source, vectors(12, 7, seed=1)))
    assert np.isfinite(artifact.apply(source).vectors).all()
    flat = form.fit(Pairs(np.ones((12, 4)), vectors(12, 7, seed=1)))
    assert np.isfinite(flat.apply(np.ones((1, 4))).vectors).all()


@examples(30)
@given(rows=st.integers(2, 12), dim=st.integers(3, 16), out=st.integers(1, 16), seed=st.integers(0, 100))
def test_few_rows_are_solved_in_their_span_to_the_same_map(rows, dim, out, seed):
    pairs = Pairs(vectors(rows, dim, seed), vectors(rows, out, seed + 1))
    moments = Moments.of(pairs)
    assert (moments.factor is None) == (rows >= dim)
    whole = LeastSquares(replace(moments, factor=None))
    held_out = Moments.of(Pairs(vectors(20, dim, seed + 2), vectors(20, out, seed + 3)), about=moments)
    squares = LeastSquares(moments)
    assert squares.full_rank == whole.full_rank == min(dim, out)
    for penalty in (1e-3, 0.1, 10.0):
        for rank in {1, min(2, squares.full_rank), squares.full_rank}:
            np.testing.assert_allclose(squares.weight(penalty, rank), whole.weight(penalty, rank), atol=1e-7)
        np.testing.assert_allclose(squares.errors(penalty, held_out), whole.errors(penalty, held_out), atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize("form", [Ridge(), LowRankRidge(), LowRankAffine(rank=4), DiagonalScale(), KernelRidge()])
def test_the_length_of_what_it_predicts_says_what_it_does_not_know(form):
    rng = np.random.default_rng(0)
    source = rng.normal(size=(2000, 6)).astype(np.float32)
    known = source[:, 0] > 0  # of the others the source says little of the target
    target = np.tanh(source @ rng.normal(size=(6, 8))) + np.where(known, 0.1, 3)[:, None] * rng.normal(size=(2000, 8))
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    made = form.fit(Pairs(source, target, labels=np.arange(2000) % 5))
    found = made.apply(source)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)
    plain = made.manifest.networks["h"]
    assert plain.uncertainty == "length"
    raw = Network(replace(plain, uncertainty=False, normalise=False), {n[2:]: t for n, t in made.tensors.items()})
    lengths = np.linalg.norm(raw.run(source, None, Execution())[0], axis=1)
    np.testing.assert_allclose(found.uncertainty, lengths**-2.0, rtol=1e-4)
    assert np.median(found.uncertainty[~known]) > np.median(found.uncertainty[known])
    figures = made.manifest.figures
    assert figures["h"]["kendall_tau"] == figures["h"]["kendall_tau_l2"] > 0.1
    assert Shrinkage.of(figures) is not None
    assert Artifact.from_bytes(*made.to_bytes()).apply(source).uncertainty.tolist() == found.uncertainty.tolist()
    silent = replace(form, uncertainty=False).fit(Pairs(source, target))
    assert silent.apply(source).uncertainty is None
    assert silent.apply(source).vectors.tolist() == found.vectors.tolist()


@pytest.mark.parametrize("form", [*FORMS, KernelRidge()])
def test_lengths_say_nothing_of_vectors_of_other_lengths_or_of_a_rotation(form):
    source, target = vectors(200, 5), vectors(200, 5, seed=1)
    made = form.fit(Pairs(source, target))
    assert made.apply(source).uncertainty is None
    assert Shrinkage.of(made.manifest.figures) is None
    unit = target / np.linalg.norm(target, axis=1, keepdims=True)
    for rigid in (Procrustes(), MeanShift()):
        assert rigid.fit(Pairs(source, unit)).apply(source).uncertainty is None


def test_a_gallery_is_backfilled_and_searched_by_what_a_closed_form_doubts(tmp_path):
    rng = np.random.default_rng(0)
    native = rng.normal(size=(300, 8)).astype(np.float32)
    native /= np.linalg.norm(native, axis=1, keepdims=True)
    source = native @ rng.normal(size=(8, 6)).astype(np.float32) + rng.normal(size=(300, 6)).astype(np.float32)
    source /= np.linalg.norm(source, axis=1, keepdims=True)
    encoder = cs.encoders.Precomputed(dict(enumerate(native)))
    versions = [
        EmbeddingVersion("v1", dim=6, metric="cosine", normalised=True),
        EmbeddingVersion("v2", dim=8, metric="cosine", normalised=True, encoder=encoder),
    ]
    made = Ridge(holdout=0.2).fit(Pairs(source, native, source_version=versions[0], target_version=versions[1]))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), versions[0], id_type="int64")
    gallery.add({"id": range(300), "vector": source})
    gallery.register(versions[1])
    gallery.artifacts.link(made, "v1", "v2")
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.3, order="sigma"))
    table = gallery.get(list(range(300)), ["v2__origin"])
    embedded = np.flatnonzero([origin == "native" for origin in table["v2__origin"].to_pylist()])
    assert set(embedded) == set(np.argsort(-made.apply(source).uncertainty, kind="stable")[:90])
    found = gallery.search(native[0], version="v2", columns=["id"])
    assert found.num_rows == 10
