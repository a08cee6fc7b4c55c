import numpy as np
import pytest
from labelled_spaces import unit

from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.trainers import Pairs, Ridge
from lazily import Lazy

loop = Lazy("compatstore.trainers.pairs.loop")
torch = Lazy("torch")

SMALL = {"epochs": 12, "width": 64, "batch_size": 64}


def nearly_linear(n=600, seed=0):
    """A linear map, a little bent; half of it from side-information; five classes."""
    rng = np.random.default_rng(seed)
    source, side = rng.normal(size=(n, 6)) * 5 + 2, rng.normal(size=(n, 3))
    maps = np.random.default_rng(99).normal(size=(9, 8))
    straight = np.concatenate([source / 5, side], axis=1) @ maps
    target = straight + 0.3 * np.abs(straight) + 0.1 * rng.normal(size=(n, 8))
    labels = target[:, :5].argmax(axis=1)
    return source, side, target, labels


def error(artifact, source, target, side=None):
    return np.square(artifact.apply(source, side).vectors - target).sum(axis=1).mean()


@pytest.mark.parametrize("with_side", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_it_starts_as_the_ridge_solution(with_side, normalise):
    source, side, target, _ = nearly_linear()
    target, side = unit(target) if normalise else target, side if with_side else None
    trainer = trainers.Residual(**SMALL | {"epochs": 1, "learning_rate": 1e-12, "weight_decay": 0.0, "holdout": 0.0})
    pairs = Pairs(source, target, side=side)
    start, ridge = trainer.fit(pairs), Ridge(holdout=0.0).fit(pairs)
    np.testing.assert_allclose(start.apply(source, side).vectors, ridge.apply(source, side).vectors, atol=1e-4)


@pytest.mark.full
def test_training_improves_on_the_start_and_on_fct_where_pairs_are_few():
    source, side, target, labels = nearly_linear()
    fresh, fresh_side, fresh_target, _ = nearly_linear(seed=1)
    pairs = Pairs(source, target, side=side, labels=labels)
    compared = [
        trainers.Residual(**SMALL, loss="l2"),
        Ridge(),
        trainers.FCT(epochs=30, branch_width=64, mixer_width=256),
    ]
    residual, ridge, fct = (error(trainer.fit(pairs), fresh, fresh_target, fresh_side) for trainer in compared)
    assert residual < 0.9 * min(ridge, fct)


@pytest.mark.full
def test_uncertainty_costs_the_vectors_little():
    source, side, target, _ = nearly_linear()
    fresh, fresh_side, fresh_target, _ = nearly_linear(seed=1)
    pairs = Pairs(source, target, side=side)
    errors = [
        error(trainers.Residual(**SMALL, loss="l2", uncertainty=each).fit(pairs), fresh, fresh_target, fresh_side)
        for each in (True, False)
    ]
    assert errors[0] < 1.2 * errors[1]


@pytest.mark.full
def test_side_information_enters_both_parts():
    source, side, target, labels = nearly_linear()
    artifact = trainers.Residual(**SMALL).fit(Pairs(source, target, side=side, labels=labels))
    fresh, fresh_side, fresh_target, _ = nearly_linear(seed=1)
    blind = trainers.Residual(**SMALL).fit(Pairs(source, target, labels=labels))
    assert error(artifact, fresh, fresh_target, fresh_side) < 0.5 * error(blind, fresh, fresh_target)
    assert artifact.tensors["h.skip_side.weight"].shape == (8, 3)


@pytest.mark.full
def test_the_artifact_is_plain_dense_layers_and_repeats_itself():
    source, side, target, labels = nearly_linear()
    artifact = trainers.Residual(**SMALL | {"epochs": 2}).fit(Pairs(source, target, side=side, labels=labels))
    parts = {name.rpartition(".")[0] for name in artifact.tensors}
    assert parts == {"h.mixer.0", "h.mixer.1", "h.mixer.2", "h.skip", "h.skip_side", "h.log_sigma2"}
    first, again = artifact.apply(source, side), Artifact.from_bytes(*artifact.to_bytes()).apply(source, side)
    assert np.array_equal(first.vectors, again.vectors)
    assert np.array_equal(first.uncertainty, again.uncertainty)


@pytest.mark.full
def test_the_linear_map_is_trained_on():
    source, _, target, _ = nearly_linear()
    pairs = Pairs(source, target)
    start = trainers.Residual(**SMALL | {"epochs": 1, "learning_rate": 1e-12}, loss="l2").fit(pairs)
    end = trainers.Residual(**SMALL, loss="l2").fit(pairs)
    assert np.abs(end.tensors["h.skip.weight"] - start.tensors["h.skip.weight"]).max() > 1e-3


def test_noise_and_dropout_act_in_training_alone():
    source, _, target, _ = nearly_linear(64)
    rows = loop.Batch(source=torch.from_numpy(source).float(), target=torch.from_numpy(target).float())
    trainer = trainers.Residual(**SMALL, noise=0.5)
    artifact = trainer.fit(Pairs(source, target))
    model = trainer.network(artifact.manifest.networks["h"], rows)
    assert not torch.equal(model(rows.source, None).vectors, model(rows.source, None).vectors)
    model.eval()
    assert torch.equal(model(rows.source, None).vectors, model(rows.source, None).vectors)


@pytest.mark.full
def test_whole_classes_are_held_out_where_that_leaves_out_two():
    source, _, target, labels = nearly_linear()
    many = np.repeat(np.arange(60), 10)
    short = SMALL | {"epochs": 1}
    kept, held_out = trainers.Residual(**short).split(Pairs(source, target, labels=many))
    assert len(np.intersect1d(kept.labels, held_out.labels)) == 0
    assert len(np.unique(held_out.labels)) == 6
    kept, held_out = trainers.Residual(**short).split(Pairs(source, target, labels=labels))
    assert len(np.intersect1d(kept.labels, held_out.labels)) == 5
    figures = trainers.Residual(**short).fit(Pairs(source, target, labels=many)).manifest.figures["h"]
    assert figures["rows"] == 60
